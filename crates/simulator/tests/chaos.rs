//! The cluster under cuts, crashes, resets and outages of the store, on virtual time.

use evenkeel_simulator::{Run, Scenario};

fn good(scenario: Scenario, seed: u64) -> u64 {
    let verdict = match (Run { scenario, seed }).execute() {
        Ok(verdict) => verdict,
        Err(error) => panic!("seed {seed}: {error:#}"),
    };
    assert!(verdict.is_good(), "seed {seed}\n{verdict}");
    assert!(verdict.acknowledged > 0, "seed {seed}: nothing was published\n{verdict}");
    verdict.trace
}

#[test]
fn a_small_cluster_survives_everything_on_many_seeds() {
    for seed in 1..=8 {
        good(Scenario::small(), seed);
    }
}

// Needs the flag that .cargo/config.toml sets; RUSTFLAGS from elsewhere takes its place.
#[cfg(tokio_unstable)]
#[test]
fn the_same_seed_writes_the_same_bytes() {
    let first = good(Scenario::small(), 3);
    assert_eq!(first, good(Scenario::small(), 3));
    assert_ne!(first, good(Scenario::small(), 4));
}

#[test]
fn two_hundred_brokers_survive_everything() {
    good(Scenario::large(), 1);
}
