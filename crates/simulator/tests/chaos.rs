//! The cluster under cuts, crashes, resets and outages of the store, on virtual time.

mod verdict;

use evenkeel_simulator::Scenario;
use verdict::good;

#[test]
fn a_small_cluster_survives_everything_on_many_seeds() {
    for seed in 1..=8 {
        good(Scenario::small(), seed);
    }
}

#[test]
fn two_hundred_brokers_survive_everything() {
    good(Scenario::large(), 1);
}
