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

/// The text of topics whose partitions lie anywhere; all replicas are in sync.
fn described(brokers: u32, topics: &[(usize, Vec<u64>)]) -> String {
    let mut text = String::new();
    for (t, (factor, partitions)) in topics.iter().enumerate() {
        let count = partitions.len();
        text += &format!(
            "Topic: t{t}\tPartitionCount: {count}\tReplicationFactor: {factor}\tConfigs: \n"
        );
        for (p, seed) in partitions.iter().enumerate() {
            let mut free: Vec<u32> = (1..=brokers).collect();
            let mut seed = *seed;
            let mut replicas = Vec::new();
            while replicas.len() < *factor {
                let at = (seed % free.len() as u64) as usize;
                seed /= free.len() as u64;
                replicas.push(free.swap_remove(at).to_string());
            }
            let set = replicas.join(",");
            let leader = &replicas[(seed % *factor as u64) as usize];
            text += &format!(
                "\tTopic: t{t}\tPartition: {p}\tLeader: {leader}\tReplicas: {set}\tIsr: {set}\n"
            );
        }
    }
    text
}

#[test]
fn names_that_end_lines_are_shown_on_one() {
    let broken = REASSIGNMENT.replacen("replicas\":[3", "repl\\u000acas\":[3", 1);
    let error = reassignment::parse(broken.as_bytes()).unwrap_err();
    assert_eq!(error, "partitions[0]: missing field `replicas` at line 2 column 83");
    let broken = REASSIGNMENT.replacen("partitions", "partiti\\ns", 1).replacen("any", "a\0y", 1);
    let error = reassignment::parse(broken.as_bytes()).unwrap_err();
    assert!(error.starts_with("partiti\\ns: control character"), "{error}");
    let snapshot = b"{\"schema\":\"evenkeel-snapshot\",\"bro\nkers\":[]}";
    let error = Snapshot::parse(&snapshot[..]).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
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
    fn a_plan_that_kafka_carried_out_leaves_nothing_to_do(
        brokers in 3_u32..7,
        topics in prop::collection::vec(
            (1_usize..4, prop::collection::vec(any::<u64>(), 1..7)),
            1..4,
        ),
    ) {
        let text = described(brokers, &topics);
        let before = describe::parse(&text).unwrap();
        let racks = (1..=brokers).map(|b| (b, Some(format!("r{}", b % 3)))).collect();
        let snapshot = |d: &describe::Description| {
            d.snapshot(1_700_000_000_000, &racks, &Default::default()).unwrap().0
        };
        let first = snapshot(&before);
        let rest = evenkeel_planner::until_stable(first.clone(), 10_000);
        prop_assert!(rest.stable);
        let json = serde_json::to_vec(&reassignment::between(&first, &rest.snapshot).unwrap()).unwrap();
        let mut after = before;
        after.reassign(&reassignment::parse(&json).unwrap()).unwrap();
        let second = snapshot(&after);
        for (shard, a) in &rest.snapshot.assignments {
            let carried_out = &second.assignments[shard];
            prop_assert_eq!(&a.leader, &carried_out.leader);
            let members = |f: &[evenkeel_model::BrokerId]| {
                f.iter().cloned().collect::<std::collections::BTreeSet<_>>()
            };
            prop_assert_eq!(members(&a.followers), members(&carried_out.followers));
        }
        let again = evenkeel_planner::until_stable(second, 10_000);
        prop_assert_eq!(again.steps, Vec::new());
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
