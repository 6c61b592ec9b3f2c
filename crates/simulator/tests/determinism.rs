//! The same seed writes the same bytes.

mod verdict;

use evenkeel_simulator::Scenario;
use verdict::good;

// Needs the flag that .cargo/config.toml sets; RUSTFLAGS from elsewhere takes its place.
#[cfg(tokio_unstable)]
#[test]
fn the_same_seed_writes_the_same_bytes() {
    let first = good(Scenario::small(), 3);
    assert_eq!(first, good(Scenario::small(), 3));
    assert_ne!(first, good(Scenario::small(), 4));
}
