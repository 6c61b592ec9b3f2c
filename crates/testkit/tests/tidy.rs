//! The repository keeps its own rules: layering, file sizes, links, and tables that match the code.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every file below the root with this ending, outside `target`.
fn files(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Words that start with the metrics' prefix.
fn metric_names(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("evenkeel_") && word.matches('_').count() > 1)
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_metric_is_in_the_documentation_and_the_other_way_round() {
    let declared: BTreeSet<String> = [
        "load-manager/src/metrics.rs",
        "broker-agent/src/metrics.rs",
        "migrator/src/metrics.rs",
        "crates/coordination/src/metrics.rs",
    ]
    .iter()
    .flat_map(|file| {
        // Names are string literals; crate paths are not.
        let text = read(file);
        let literals: Vec<String> = text.split('"').skip(1).step_by(2).map(str::to_owned).collect();
        metric_names(&literals.join(" "))
    })
    .collect();
    let documented = metric_names(&read("docs/metrics.md"));
    let undocumented: Vec<_> = declared.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&declared).collect();
    assert!(undocumented.is_empty(), "not in docs/metrics.md: {undocumented:?}");
    assert!(unknown.is_empty(), "in docs/metrics.md and nowhere else: {unknown:?}");
}

#[test]
fn alerts_and_dashboards_name_metrics_that_exist() {
    let documented = metric_names(&read("docs/metrics.md"));
    for file in ["deploy/monitoring/alerts.yaml", "deploy/monitoring/copies-dashboard.json"] {
        let used = metric_names(&read(file));
        assert!(used.len() > 5, "{file} names {used:?}");
        let unknown: Vec<_> = used.difference(&documented).collect();
        assert!(unknown.is_empty(), "{file} names what no service tells: {unknown:?}");
    }
}

#[test]
fn a_file_is_one_idea() {
    let long: Vec<String> = files(".rs")
        .iter()
        .filter_map(|path| {
            let lines = std::fs::read_to_string(path).unwrap().lines().count();
            let name = shown(path);
            let is_test = name.contains("/tests/") || name.ends_with("tests.rs");
            let limit = if is_test { 600 } else { 470 };
            (lines > limit).then(|| format!("{name}: {lines} lines"))
        })
        .collect();
    assert!(long.is_empty(), "too long: {long:#?}");
}

#[test]
fn every_link_of_the_documentation_leads_somewhere() {
    let mut broken = Vec::new();
    for path in files(".md") {
        let text = std::fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            if !path.parent().unwrap().join(target).exists() {
                broken.push(format!("{}: {link}", shown(&path)));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The dependencies of a crate itself, without those of its tests.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let text = read(manifest);
    let section = text.split("[dependencies]").nth(1).unwrap_or_default();
    section
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn borders_between_crates_hold() {
    for pure in ["crates/model", "crates/planner", "crates/throttle"] {
        let dependencies = dependencies(&format!("{pure}/Cargo.toml"));
        for banned in ["tokio", "tonic", "etcd-client", "rand", "evenkeel-coordination"] {
            assert!(!dependencies.contains(banned), "{pure} must not know {banned}");
        }
    }
    for path in files("Cargo.toml") {
        let name = shown(&path);
        let text = std::fs::read_to_string(&path).unwrap();
        let may_know_etcd = matches!(
            name.as_str(),
            "Cargo.toml" | "crates/coordination/Cargo.toml" | "crates/embedded-etcd/Cargo.toml"
        );
        assert!(
            may_know_etcd || !text.contains("etcd-client"),
            "{name}: only coordination and embedded-etcd may name etcd-client"
        );
    }
}
