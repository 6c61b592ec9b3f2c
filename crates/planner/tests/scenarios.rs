//! Every rule of the planner as a small text with its golden output. `UPDATE_GOLDEN=1` rewrites.
#![expect(clippy::unwrap_used, reason = "a fault of the harness fails the test")]

mod scenario;

use std::path::{Path, PathBuf};

#[test]
fn every_scenario_prints_what_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "scn"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let faults: Vec<String> = files.iter().filter_map(|path| scenario::check(path).err()).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
