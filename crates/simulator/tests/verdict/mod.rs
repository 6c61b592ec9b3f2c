//! What a run has to show.

use evenkeel_simulator::{Run, Scenario};

/// Runs it, holds it to everything, and returns the hash of what was written.
pub(crate) fn good(scenario: Scenario, seed: u64) -> u64 {
    let verdict = match (Run { scenario, seed }).execute() {
        Ok(verdict) => verdict,
        Err(error) => panic!("seed {seed}: {error:#}"),
    };
    assert!(verdict.is_good(), "seed {seed}\n{verdict}");
    assert!(verdict.acknowledged > 0, "seed {seed}: nothing was published\n{verdict}");
    verdict.trace
}
