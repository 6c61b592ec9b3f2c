//! The tables and pictures of the documents are what the scenarios give.
//!
//! `UPDATE_GOLDEN=1 cargo test --release -p evenkeel-storm --test shipped`
//! writes them anew.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use evenkeel_storm::{Scenario, draw, simulate, table};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/storms")
}

fn check(name: &str) {
    let path = folder().join(format!("{name}.storm"));
    let scenario = Scenario::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
    let storm = simulate(&scenario, 1).unwrap();
    for (kind, made) in [("txt", table(&storm)), ("svg", draw(&storm))] {
        let path = folder().join(format!("{name}.{kind}"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, made).unwrap();
            continue;
        }
        let shipped = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(shipped == made, "{} is not what the scenario gives now:\n{made}", path.display());
    }
}

macro_rules! shipped {
    ($($test:ident $name:literal $(#[$attribute:meta])?;)+) => {
        $(#[test] $(#[$attribute])? fn $test() { check($name); })+

        #[test]
        fn every_scenario_is_held_to_its_table() {
            let mut there: Vec<String> = std::fs::read_dir(folder())
                .unwrap()
                .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
                .filter_map(|name| name.strip_suffix(".storm").map(str::to_owned))
                .collect();
            there.sort();
            let mut held = vec![$($name),+];
            held.sort_unstable();
            assert_eq!(there, held);
        }
    };
}

shipped! {
    flapping "flapping";
    out_of_capacity "out-of-capacity";
    overload "overload";
    returns "returns";
    slow_disk "slow-disk";
    stability "stability" #[cfg_attr(debug_assertions, ignore = "long without optimisation")];
    step "step";
    the_storm "storm" #[cfg_attr(debug_assertions, ignore = "long without optimisation")];
    two_lost "two-lost" #[cfg_attr(debug_assertions, ignore = "long without optimisation")];
}
