use std::io::Write as _;

use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Sample {
    listen: String,
    advertise: Option<String>,
    interval_ms: u64,
    names: Vec<String>,
    inner: Inner,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Inner {
    enabled: bool,
    max_moves: Option<u32>,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".to_owned(),
            advertise: None,
            interval_ms: 1000,
            names: Vec::new(),
            inner: Inner::default(),
        }
    }
}

impl Settings for Sample {
    const SERVICE: &'static str = "sample";
    const KEYS: &'static [Key] = &[
        Key { name: "listen", unit: "host:port", about: "where it listens", zero: "any free port" },
        Key { name: "interval_ms", unit: "milliseconds", about: "how often", zero: "refused" },
    ];

    fn check(&self) -> Result<(), Invalid> {
        if self.interval_ms == 0 {
            return Err(Invalid::new("interval_ms", self.interval_ms, "at least 1 millisecond"));
        }
        Ok(())
    }
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn refused(sources: &Sources) -> String {
    load::<Sample>(sources).unwrap_err().to_string()
}

#[test]
fn later_layers_win_key_by_key() {
    let yaml = file("listen: file:1\ninterval_ms: 5\ninner:\n  enabled: true\n  max_moves: 3\n");
    let sources = Sources {
        file: Some(yaml.path().to_owned()),
        environment: environment(&[
            ("EVENKEEL_INTERVAL_MS", "6"),
            ("EVENKEEL_INNER_MAX_MOVES", "4"),
            ("EVENKEEL_NAMES", "a, b"),
            ("EVENKEEL_ADVERTISE", "7"),
            ("EVENKEEL_LOG", "debug"),
            ("EVENKEEL_MIGRATOR_PORT", "tcp://10.0.0.7:7800"),
        ]),
        flags: json!({ "listen": null, "interval_ms": 7 }),
        set: vec!["inner.max_moves=5".to_owned()],
    };
    let loaded = load::<Sample>(&sources).unwrap();
    assert_eq!(
        loaded.config,
        Sample {
            listen: "file:1".to_owned(),
            advertise: Some("7".to_owned()),
            interval_ms: 7,
            names: vec!["a".to_owned(), "b".to_owned()],
            inner: Inner { enabled: true, max_moves: Some(5) },
        }
    );
    let path = yaml.path().display();
    assert_eq!(
        loaded.print(),
        format!(
            "listen: \"file:1\" # config file {path}\n\
             advertise: \"7\" # environment EVENKEEL_ADVERTISE\n\
             interval_ms: 7 # flags\n\
             names: [\"a\",\"b\"] # environment EVENKEEL_NAMES\n\
             inner:\n  enabled: true # config file {path}\n  max_moves: 5 # flag --set\n"
        )
    );
}

#[test]
fn what_is_wrong_is_named_in_one_line_with_its_source() {
    let with_file = |text: &str| {
        let yaml = file(text);
        let path = yaml.path().display().to_string();
        let sources = Sources { file: Some(yaml.path().to_owned()), ..Sources::default() };
        refused(&sources).replace(&path, "FILE")
    };
    assert_eq!(
        with_file("listn: x"),
        "config file FILE: unknown key 'listn' of sample: did you mean 'listen'?"
    );
    assert_eq!(
        with_file("inner:\n  what: 1"),
        "config file FILE: unknown key 'inner.what' of sample: expected one of enabled, max_moves"
    );
    assert_eq!(
        with_file("inner:\n  enabled: maybe"),
        "config file FILE: inner.enabled: 'maybe' is not valid: invalid type: string \"maybe\", \
         expected a boolean"
    );
    assert_eq!(
        with_file("inner: 3"),
        "config file FILE: inner: '3' is not valid: expected a mapping of keys to values"
    );
    assert_eq!(
        with_file("- a"),
        "config file FILE: '[\"a\"]' is not valid: expected a mapping of keys to values"
    );
    assert!(with_file("a: b: c").starts_with("config file FILE: not YAML: "));
    assert_eq!(
        with_file("interval_ms: 0"),
        "config file FILE: interval_ms: '0' is not valid: expected at least 1 millisecond"
    );
}

#[test]
fn variables_and_flags_are_refused_by_name() {
    let sources = |pairs, set: &[&str]| Sources {
        environment: environment(pairs),
        set: set.iter().map(|s| (*s).to_owned()).collect(),
        ..Sources::default()
    };
    assert_eq!(
        refused(&sources(&[("EVENKEEL_LISTN", "x")], &[])),
        "environment EVENKEEL_LISTN: unknown key, expected EVENKEEL_ and one of the keys of sample"
    );
    assert_eq!(
        refused(&sources(&[("EVENKEEL_INTERVAL_MS", "-1")], &[])),
        "environment EVENKEEL_INTERVAL_MS: interval_ms: '-1' is not valid: invalid value: integer \
         `-1`, expected u64"
    );
    let flags = Sources { flags: json!({ "interval_ms": 0 }), ..Sources::default() };
    assert_eq!(
        refused(&flags),
        "flag --interval-ms: '0' is not valid: expected at least 1 millisecond"
    );
    assert_eq!(
        refused(&sources(&[], &["interval_ms"])),
        "flag --set: 'interval_ms' is not valid: expected KEY=VALUE"
    );
    assert_eq!(
        refused(&sources(&[], &["inner.enabeld=true"])),
        "flag --set: unknown key 'inner.enabeld' of sample: expected one of listen, advertise, \
         interval_ms, names, inner"
    );
    let missing = Sources { file: Some("/no/such.yaml".into()), ..Sources::default() };
    assert!(refused(&missing).starts_with("config file /no/such.yaml: cannot be read: "));
}

#[test]
fn the_table_is_held_to_the_keys() {
    assert_eq!(
        check_table::<Sample>(),
        [
            "advertise is not in the table",
            "names is not in the table",
            "inner.enabled is not in the table",
            "inner.max_moves is not in the table",
        ]
    );
    assert_eq!(
        table::<Sample>().lines().nth(2).unwrap(),
        "| `listen` | `EVENKEEL_LISTEN` | `127.0.0.1:0` | host:port | where it listens | any free \
         port |"
    );
}
