//! Whatever bytes are given as a snapshot: an error with its place, or a cluster that can be planned,
//! measured and explained. Never a panic.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod damage;
mod random;

use damage::{damage, damages, each_oddity};
use evenkeel_model::{BrokerId, Policy, Snapshot, Strategy as Scores};
use evenkeel_planner::{
    Change, LoadAim, Terms, Traits, balance, check, even_load, explain, explain_broker, plan, rank,
    until_stable, what_if,
};
use proptest::prelude::*;
use random::{Rng, cluster, messy};
use serde_json::Value;

/// Everything that can be asked of a snapshot is asked.
fn ask_everything(s: &Snapshot) {
    let plan = plan(s);
    let _ = check(s, &plan);
    let _ = balance(s);
    for strategy in [Scores::Fair, Scores::Balanced, Scores::WeightedLoad] {
        let _ = rank(s, strategy);
    }
    for (stream, record) in s.streams.iter().take(3) {
        for number in (0..record.shards).take(3) {
            assert!(!explain(s, &stream.shard(number)).unwrap().text.is_empty());
        }
    }
    for broker in s.brokers.keys().take(4) {
        assert!(!explain_broker(s, broker).unwrap().text.is_empty());
    }
    let _ = until_stable(s.clone(), 4);
    for aim in [LoadAim::BothSides, LoadAim::FewestMoves] {
        let _ = even_load(s, 5.0, aim);
    }
    let newcomer: BrokerId = "zz-new".parse().unwrap();
    let mut changes = vec![Change::Add(newcomer, Traits::default())];
    changes.extend(s.brokers.keys().next().cloned().map(Change::Remove));
    let terms = Terms { max_passes: 3, rate_bytes_per_second: None };
    if let Ok(answer) = what_if(s, &changes, terms) {
        let time = &answer.time;
        let slack = 1e-9 * time.one_by_one_seconds;
        assert!(time.at_least_seconds <= time.one_by_one_seconds + slack, "{time:?}");
    }
    // What is written can be read, and is the same.
    let written = s.to_json().to_string();
    assert_eq!(Snapshot::parse(written.as_bytes()).as_ref(), Ok(s));
}

fn read(bytes: &[u8]) {
    match Snapshot::parse(bytes) {
        Ok(s) => {
            let shards: u64 = s.streams.values().map(|s| u64::from(s.shards)).sum();
            // A stream of a million shards is legal, and takes too long here.
            if shards < 2000 {
                ask_everything(&s);
            }
        }
        Err(error) => {
            assert!(!error.path.is_empty() && !error.detail.is_empty(), "{error:?}");
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
    }
}

/// A document with everything in it.
fn document(seed: u64) -> Value {
    let mut rng = Rng::new(seed);
    let mut s = if seed.is_multiple_of(3) { cluster(&mut rng) } else { messy(&mut rng) };
    random::loads(&mut rng, &mut s);
    s.to_json()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_bytes_are_refused_with_a_place(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read(&bytes);
    }

    #[test]
    fn a_damaged_document_is_refused_with_a_place_or_can_be_planned(
        seed in 0_u64..200,
        damages in damages(),
    ) {
        let mut document = document(seed);
        damage(&mut document, &damages);
        read(document.to_string().as_bytes());
    }

    #[test]
    fn damaged_bytes_are_refused_with_a_place_or_can_be_planned(
        seed in 0_u64..200,
        flips in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<usize>()),
    ) {
        let mut bytes = document(seed).to_string().into_bytes();
        for (at, byte) in flips {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut % bytes.len());
        }
        read(&bytes);
    }

    #[test]
    fn a_damaged_policy_is_refused_by_name_or_can_be_planned_with(
        seed in 0_u64..50,
        damages in damages(),
    ) {
        let mut patch = serde_json::to_value(Policy::default()).unwrap();
        damage(&mut patch, &damages);
        let mut s = messy(&mut Rng::new(seed));
        match s.policy.merged(&patch) {
            Ok(policy) => {
                s.policy = policy;
                ask_everything(&s);
            }
            Err(error) => prop_assert!(!error.field.is_empty() && !error.detail.is_empty()),
        }
    }
}

#[test]
fn each_value_in_turn_is_refused_with_a_place_or_can_be_planned() {
    let whole: Value = serde_json::from_str(include_str!("damage/whole.json")).unwrap();
    ask_everything(&Snapshot::parse(whole.to_string().as_bytes()).unwrap());
    each_oddity(&whole).for_each(|damaged| read(damaged.to_string().as_bytes()));
}

#[test]
fn numbers_that_leave_no_room_to_count_are_refused() {
    let refused = |text: &str, with: &str, error: &str| {
        let whole = include_str!("damage/whole.json");
        assert!(whole.contains(text), "{text}");
        let damaged = whole.replacen(text, with, 1);
        assert_eq!(Snapshot::parse(damaged.as_bytes()).unwrap_err().to_string(), error);
    };
    refused(
        r#""generation": 2 }"#,
        r#""generation": 9007199254740993 }"#,
        "assignments[1].generation: 9007199254740993 is out of range: expected 0 to 9007199254740992",
    );
    refused(
        r#""replication_factor": 2"#,
        r#""replication_factor": 256"#,
        "streams[0].replication_factor: 256 is out of range: expected 1 to 255",
    );
    let many: Vec<String> =
        (0..17).map(|n| format!(r#"{{"stream": "stream/x/t{n}", "shards": 1000000}},"#)).collect();
    refused(
        r#""streams": ["#,
        &format!(r#""streams": [{}"#, many.concat()),
        "streams[16].shards: 17000000 shards so far: expected 16777216 in all at most",
    );
}

#[test]
fn nesting_without_end_is_refused() {
    for open in ["[", "{\"a\":", "{\"v\":1,\"as_of_ms\":1,\"brokers\":[{\"x\":["] {
        read(open.repeat(100_000).as_bytes());
    }
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let text = format!(r#"{{"v":1,"as_of_ms":1,"brokers":[],"streams":[],"x":{deep}}}"#);
    read(text.as_bytes());
}
