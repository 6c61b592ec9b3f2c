//! `keelctl simulate` as programs and people see it.

mod program;

use program::{keelctl, refused};

/// Two brokers' worth of a minute, with and without a law.
const SCENARIO: &str = "title A node is lost
run 60s
[cluster]
nodes 6
shards 12
replicas 2
data 12GB
link 1Gbit/s
detection 5s
restore_delay 5s
[traffic]
utilisation 50%
p99_idle 10ms
[controls]
target 50ms
[events]
at 10s lose n2
[variant off]
law off
[variant on]
law steady
";

const SIMULATE: [&str; 3] = ["simulate", "--scenario", "-"];

#[test]
fn variants_are_told_side_by_side_as_a_table_a_document_and_a_picture() {
    let picture = tempfile::NamedTempFile::new().unwrap();
    let file = picture.path().to_str().unwrap();
    let told = keelctl(&[&SIMULATE[..], &["--svg", file]].concat(), SCENARIO);
    assert_eq!((told.code, told.stderr), (0, format!("wrote {file}\n")));
    let header = told.stdout.lines().find(|line| line.contains("OFF")).unwrap();
    assert!(header.contains("ON"), "{header}");
    let drawn = std::fs::read_to_string(file).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
    let document = keelctl(&[&SIMULATE[..], &["-o", "json"]].concat(), SCENARIO);
    let again = keelctl(&[&SIMULATE[..], &["-o", "json"]].concat(), SCENARIO);
    assert_eq!(document.stdout, again.stdout, "the same scenario and seed");
    let document = document.json();
    assert_eq!(document["title"], "A node is lost");
    assert_eq!(document["variants"].as_array().unwrap().len(), 2);
}

#[test]
fn what_cannot_be_run_is_one_line_with_its_place() {
    let bad = SCENARIO.replace("nodes 6", "nodes six");
    refused(&SIMULATE, &bad, "error: stdin:4: nodes: 'six' is not valid: expected a whole number");
    refused(&SIMULATE, "", "error: stdin:0: run: is missing: expected it before the first section");
    let smaller = [&SIMULATE[..], &["--smaller", "6"]].concat();
    refused(&smaller, SCENARIO, "error: stdin:");
    refused(&["simulate", "--scenario", "/no/such"], "", "error: cannot read /no/such: ");
    let nowhere = [&SIMULATE[..], &["--svg", "/no/such/x.svg"]].concat();
    refused(&nowhere, SCENARIO, "error: cannot write /no/such/x.svg: ");
    #[cfg(unix)]
    refused(
        &["simulate", "--scenario", "/dev/zero"],
        "",
        "error: /dev/zero: expected at most 268435456 bytes",
    );
}
