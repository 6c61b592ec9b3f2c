//! Whatever bytes are given as Kafka's text: faults with their places, or a snapshot that is one.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use evenkeel_keelctl::kafka::traffic::Traffic;
use evenkeel_keelctl::kafka::{describe, racks, reassignment};
use evenkeel_model::Snapshot;
use proptest::prelude::*;

const DESCRIBE: &str = include_str!("files/kafka/describe.txt");
const REASSIGNMENT: &str = r#"{"version":1,"partitions":[
    {"topic":"orders","partition":0,"replicas":[3,2],"log_dirs":["any","any"]},
    {"topic":"clicks","partition":1,"replicas":[2,3]}]}"#;

/// Words that a describer might print, and some that it would not.
const WORDS: [&str; 24] = [
    "Topic:",
    "Topic: t",
    "TopicId: x",
    "PartitionCount: 2",
    "PartitionCount: 99999999999",
    "ReplicationFactor: 2",
    "Configs:",
    "Configs: a=b,c=d",
    "Partition: 0",
    "Partition: 4294967295",
    "Leader: 1",
    "Leader: none",
    "Leader: -1",
    "Leader: 2147483648",
    "Replicas: 1,2",
    "Replicas:",
    "Isr: 1",
    "Isr: N/A",
    "Elr:",
    "Adding Replicas: 2",
    "Removing Replicas: 1",
    "Adding",
    ":",
    "\u{0}é\t",
];

fn read(text: &str) {
    match describe::parse(text) {
        Err(faults) => {
            assert!(!faults.is_empty());
            let lines = text.lines().count();
            for fault in faults {
                assert!((1..=lines).contains(&fault.line), "{fault}");
                assert_eq!(fault.to_string().lines().count(), 1, "{fault}");
            }
        }
        Ok(mut description) => {
            if let Ok(target) = reassignment::parse(REASSIGNMENT.as_bytes()) {
                // Refused unless it names what is described; either will do.
                let _ = description.clone().reassign(&target);
            }
            description.notes.clear();
            if let Ok((snapshot, _)) =
                description.snapshot(1_700_000_000_000, &Default::default(), &Default::default())
            {
                let text = snapshot.to_json().to_string();
                assert_eq!(Snapshot::parse(text.as_bytes()).as_ref(), Ok(&snapshot));
                let rest = evenkeel_planner::until_stable(snapshot.clone(), 20).snapshot;
                reassignment::between(&snapshot, &rest).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_text_is_read_or_named_line_by_line(text in "(?s).{0,200}") {
        read(&text);
        let _ = racks::parse(&text);
        let _ = Traffic::default().add_rates(&text);
        prop_assert!(Traffic::default().add_log_dirs(&text).is_err());
        prop_assert!(reassignment::parse(text.as_bytes()).is_err());
    }

    #[test]
    fn lines_of_likely_words_are_read_or_named(
        words in prop::collection::vec((prop::sample::select(&WORDS[..]), "[ \t\n]"), 0..40),
    ) {
        let text: String = words.into_iter().flat_map(|(word, gap)| [word.to_owned(), gap]).collect();
        read(&text);
    }

    #[test]
    fn damaged_text_is_read_or_named(
        flips in prop::collection::vec((any::<usize>(), any::<char>()), 1..4),
        cut in prop::option::of(any::<usize>()),
    ) {
        let mut text: Vec<char> = DESCRIBE.chars().collect();
        for (at, c) in flips {
            let at = at % text.len();
            text[at] = c;
        }
        if let Some(cut) = cut {
            text.truncate(cut % text.len());
        }
        read(&text.into_iter().collect::<String>());
    }

    #[test]
    fn damaged_reassignments_are_read_or_refused_with_a_place(
        flips in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = REASSIGNMENT.as_bytes().to_vec();
        for (at, byte) in flips {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        match reassignment::parse(&bytes) {
            Err(error) => prop_assert!(error.lines().count() == 1, "{error}"),
            Ok(target) => {
                let mut description = describe::parse(DESCRIBE).unwrap();
                let laid = description.reassign(&target);
                prop_assert!(laid.is_err() || description.snapshot(0, &Default::default(), &Default::default()).is_ok());
            }
        }
    }
}
