//! The text of `kafka-topics --describe`, of any version: a line for each topic and one for each
//! partition, fields apart by tabs or by spaces.

use std::collections::{BTreeMap, BTreeSet};

use super::{Broker, Fault, broker};

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Who leads it, if anybody.
    pub leader: Option<Broker>,
    /// Its replicas in Kafka's order, the preferred leader first.
    pub replicas: Vec<Broker>,
    /// The replicas in sync.
    pub isr: BTreeSet<Broker>,
    /// Replicas that a reassignment under way adds.
    pub adding: Vec<Broker>,
    /// Replicas that it removes.
    pub removing: Vec<Broker>,
    /// Where it was described; 0 if it was not.
    pub line: usize,
}

/// One topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topic {
    /// From its own line, if it has one.
    pub replication_factor: Option<u32>,
    /// From its own line, if it has one.
    pub partition_count: Option<u32>,
    /// By number.
    pub partitions: BTreeMap<u32, Partition>,
    /// The first line that names it.
    pub line: usize,
}

/// What was described.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// By name.
    pub topics: BTreeMap<String, Topic>,
    /// What was read and says nothing that a snapshot could hold.
    pub notes: BTreeSet<String>,
}

/// Names of Kafka's fields. Those of other distributions are noted and left out.
const FIELDS: [&str; 14] = [
    "Topic",
    "TopicId",
    "PartitionCount",
    "ReplicationFactor",
    "Configs",
    "MarkedForDeletion",
    "Partition",
    "Leader",
    "Replicas",
    "Isr",
    "Adding Replicas",
    "Removing Replicas",
    "Elr",
    "LastKnownElr",
];

/// Reads the whole text; every line that cannot be read is named.
pub fn parse(text: &str) -> Result<Description, Vec<Fault>> {
    let mut description = Description::default();
    let mut faults = Vec::new();
    for (at, text) in text.lines().enumerate() {
        if text.trim().is_empty() {
            continue;
        }
        if let Err(detail) = description.add(at + 1, text) {
            faults.push(Fault { line: at + 1, detail });
        }
    }
    description.check(&mut faults);
    faults.sort_by_key(|f| f.line);
    if faults.is_empty() { Ok(description) } else { Err(faults) }
}

impl Description {
    fn add(&mut self, line: usize, text: &str) -> Result<(), String> {
        let fields = Fields::of(text)?;
        let name = fields.need("Topic")?;
        super::cluster::stream_of(name)?;
        for unknown in &fields.unknown {
            self.notes.insert(format!("column '{unknown}' is not known and is left out"));
        }
        if fields.get("MarkedForDeletion") == Some("true") {
            self.notes
                .insert(format!("topic {name} is marked for deletion and is read like others"));
        }
        let known = self.topics.entry(name.to_owned());
        let topic = known.or_insert_with(|| Topic { line, ..Topic::default() });
        if fields.get("Partition").is_none() {
            return topic.head(&fields);
        }
        let number = number("Partition", fields.need("Partition")?)?;
        if number >= evenkeel_model::stream::MAX_SHARDS {
            let most = evenkeel_model::stream::MAX_SHARDS - 1;
            return Err(format!("Partition {number} is out of range: expected 0 to {most}"));
        }
        let partition = partition(&fields, line)?;
        match topic.partitions.insert(number, partition) {
            None => Ok(()),
            Some(first) => {
                Err(format!("partition {number} of {name} was described in line {}", first.line))
            }
        }
    }

    /// Whether each topic is whole. A partition that is missing would look like one that nobody
    /// holds yet.
    fn check(&self, faults: &mut Vec<Fault>) {
        // Of a text whose lines cannot be read, those are what is to be mended.
        if !faults.is_empty() {
            return;
        }
        for (name, topic) in &self.topics {
            let highest = topic.partitions.keys().last().map_or(0, |n| n + 1);
            let count = topic.partition_count.unwrap_or(highest);
            let missing = (0..count).find(|n| !topic.partitions.contains_key(n));
            let detail = match missing {
                Some(missing) => format!(
                    "topic {name} has {count} partitions and none is described as {missing}: \
                     expected the whole text of --describe"
                ),
                None if highest > count => {
                    format!(
                        "topic {name} has {count} partitions and one is numbered {}",
                        highest - 1
                    )
                }
                None => continue,
            };
            faults.push(Fault { line: topic.line, detail });
        }
    }
}

impl Topic {
    fn head(&mut self, fields: &Fields<'_>) -> Result<(), String> {
        let count = number("PartitionCount", fields.need("PartitionCount")?)?;
        let factor = number("ReplicationFactor", fields.need("ReplicationFactor")?)?;
        if self.partition_count.replace(count).is_some() {
            return Err("the topic was described before".to_owned());
        }
        if count > evenkeel_model::stream::MAX_SHARDS {
            let most = evenkeel_model::stream::MAX_SHARDS;
            return Err(format!("PartitionCount {count} is out of range: expected 1 to {most}"));
        }
        self.replication_factor = Some(factor);
        Ok(())
    }
}

fn partition(fields: &Fields<'_>, line: usize) -> Result<Partition, String> {
    let leader = match fields.need("Leader")? {
        "none" | "-1" => None,
        text => Some(broker(text).ok_or_else(|| {
            format!("Leader '{text}' is not valid: expected a broker's number, none or -1")
        })?),
    };
    let replicas = brokers("Replicas", fields.need("Replicas")?)?;
    let isr: BTreeSet<Broker> = brokers("Isr", fields.need("Isr")?)?.into_iter().collect();
    let list = |name| fields.get(name).map_or(Ok(Vec::new()), |text| brokers(name, text));
    let (adding, removing) = (list("Adding Replicas")?, list("Removing Replicas")?);
    if replicas.is_empty() {
        return Err("Replicas is empty: expected brokers' numbers such as 1,2,3".to_owned());
    }
    if adding.len() == replicas.len() {
        let all = listed(&replicas);
        return Err(format!(
            "Adding Replicas are all of the Replicas {all}: expected one that is there"
        ));
    }
    let outside = |b: &&Broker| !replicas.contains(b);
    if let Some(other) = isr.iter().chain(&leader).chain(&adding).chain(&removing).find(outside) {
        return Err(format!("broker {other} is none of the Replicas {}", listed(&replicas)));
    }
    Ok(Partition { leader, replicas, isr, adding, removing, line })
}

fn listed(brokers: &[Broker]) -> String {
    brokers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn number(field: &str, text: &str) -> Result<u32, String> {
    broker(text).ok_or_else(|| format!("{field} '{text}' is not valid: expected a whole number"))
}

fn brokers(field: &str, text: &str) -> Result<Vec<Broker>, String> {
    let mut brokers = Vec::new();
    if matches!(text, "" | "N/A") {
        return Ok(brokers);
    }
    for part in text.split(',') {
        let id = broker(part).ok_or_else(|| {
            format!("{field} '{text}' is not valid: expected brokers' numbers such as 1,2,3")
        })?;
        if brokers.contains(&id) {
            return Err(format!("{field} '{text}' names broker {id} twice"));
        }
        brokers.push(id);
    }
    Ok(brokers)
}

/// The fields of one line.
struct Fields<'a> {
    known: BTreeMap<&'static str, std::borrow::Cow<'a, str>>,
    unknown: Vec<&'a str>,
}

impl<'a> Fields<'a> {
    fn of(text: &'a str) -> Result<Self, String> {
        let mut fields = Self { known: BTreeMap::new(), unknown: Vec::new() };
        let mut at: Option<&'static str> = None;
        let mut first_of_two: Option<&str> = None;
        let mut rest = text;
        while let Some((word, after)) = next_word(rest) {
            if matches!(word, "Adding" | "Removing") && after.trim_start().starts_with("Replicas:")
            {
                first_of_two = Some(word);
                rest = after;
                continue;
            }
            let Some((name, value)) = word.split_once(':') else {
                if fields.known.is_empty() && fields.unknown.is_empty() {
                    break;
                }
                // What is not known may hold anything.
                if let Some(name) = at {
                    let value = fields.known.entry(name).or_default();
                    if !value.is_empty() && !value.ends_with(',') && !word.starts_with(',') {
                        return Err(format!("'{}' after {name} '{value}'", word.escape_debug()));
                    }
                    value.to_mut().push_str(word);
                }
                rest = after;
                continue;
            };
            at = field(name, first_of_two.take());
            match at {
                // Settings may hold anything, and come last.
                Some("Configs") => {
                    fields.known.insert("Configs", after.trim().into());
                    break;
                }
                Some(name) => {
                    if fields.known.insert(name, value.into()).is_some() {
                        return Err(format!("field {name} is there twice"));
                    }
                }
                None => fields.unknown.push(name),
            }
            rest = after;
        }
        if fields.known.is_empty() {
            let shown: String = text.trim().chars().take(60).collect();
            return Err(format!(
                "'{}' is not valid: expected a line of kafka-topics --describe, \
                 such as 'Topic: orders Partition: 0 Leader: 1 Replicas: 1,2,3 Isr: 1,2,3'",
                shown.escape_debug()
            ));
        }
        Ok(fields)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.known.get(name).map(AsRef::as_ref)
    }

    fn need(&self, name: &str) -> Result<&str, String> {
        self.get(name).ok_or_else(|| format!("field {name} is missing"))
    }
}

fn field(name: &str, first: Option<&str>) -> Option<&'static str> {
    let is = |known: &&&str| match (first, known.split_once(' ')) {
        (Some(first), Some((one, two))) => one == first && two == name,
        (None, None) => **known == name,
        _ => false,
    };
    FIELDS.iter().find(is).copied()
}

fn next_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    if text.is_empty() {
        return None;
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    Some(text.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "\
Topic: orders\tTopicId: 3aTeLmv4RPKw5_TZf7LrDQ\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: segment.bytes=1073741824,cleanup.policy=compact
\tTopic: orders\tPartition: 0\tLeader: 2\tReplicas: 2,0\tIsr: 2,0\tElr: \tLastKnownElr: 
\tTopic: orders\tPartition: 1\tLeader: none\tReplicas: 0,1\tIsr: 1\tElr: N/A\tLastKnownElr: N/A
";

    #[test]
    fn every_version_of_the_text_is_read() {
        let new = parse(NEW).unwrap();
        let orders = &new.topics["orders"];
        assert_eq!((orders.partition_count, orders.replication_factor), (Some(2), Some(2)));
        let first = &orders.partitions[&0];
        assert_eq!((first.leader, &first.replicas[..]), (Some(2), &[2, 0][..]));
        let second = &orders.partitions[&1];
        assert_eq!((second.leader, second.isr.len()), (None, 1));
        // Older tools: no space after the colon of the topic's line, no topic id.
        let old = "Topic:orders\tPartitionCount:2\tReplicationFactor:2\tConfigs:segment.bytes=1\n\
                   \tTopic: orders\tPartition: 0\tLeader: 2\tReplicas: 2,0\tIsr: 2,0\n\
                   \tTopic: orders\tPartition: 1\tLeader: -1\tReplicas: 0,1\tIsr: 1\n";
        assert_eq!(parse(old).unwrap().topics["orders"].partitions[&1].leader, None);
        // Pasted, with the tabs turned into spaces.
        let spaces = NEW.replace('\t', "    ");
        assert_eq!(parse(&spaces).unwrap(), new);
        let moving = "Topic: t Partition: 0 Leader: 1 Replicas: 4,1,2 Isr: 1,2 \
                      Adding Replicas: 4 Removing Replicas: 2";
        let t = &parse(moving).unwrap().topics["t"].partitions[&0];
        assert_eq!((&t.adding[..], &t.removing[..]), (&[4][..], &[2][..]));
    }

    #[test]
    fn columns_of_other_distributions_are_noted() {
        let text =
            "Topic: t Partition: 0 Leader: 1 Replicas: 1,2 Isr: 1 Offline: 2 Observers: 3, 4";
        let read = parse(text).unwrap();
        assert_eq!(read.topics["t"].partitions[&0].replicas, [1, 2]);
        let notes: Vec<&str> = read.notes.iter().map(String::as_str).collect();
        let note = |column: &str| format!("column '{column}' is not known and is left out");
        assert_eq!(notes, [note("Observers"), note("Offline")]);
    }

    fn faults(text: &str) -> Vec<String> {
        parse(text).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_line_that_cannot_be_read_is_named() {
        let text = NEW.replace("Leader: 2", "Leader: two") + "[2026-01-01] WARN lost\nTopic: x\n";
        let expected = [
            "2: Leader 'two' is not valid: expected a broker's number, none or -1",
            "4: '[2026-01-01] WARN lost' is not valid: expected a line of kafka-topics --describe, \
             such as 'Topic: orders Partition: 0 Leader: 1 Replicas: 1,2,3 Isr: 1,2,3'",
            "5: field PartitionCount is missing",
        ];
        assert_eq!(faults(&text), expected);
        let line = |rest: &str| faults(&format!("Topic: t Partition: {rest}"))[0].clone();
        for (rest, fault) in [
            ("x Leader: 1 Replicas: 1 Isr: 1", "1: Partition 'x' is not valid: expected a whole"),
            ("0 Leader: 1 Replicas: 1,1 Isr: 1", "1: Replicas '1,1' names broker 1 twice"),
            ("0 Leader: 1 Replicas: 1;2 Isr: 1", "1: Replicas '1;2' is not valid: expected"),
            ("0 Leader: 3 Replicas: 1,2 Isr: 1", "1: broker 3 is none of the Replicas 1,2"),
            ("0 Leader: 1 Replicas: 1,2 Isr: 4", "1: broker 4 is none of the Replicas 1,2"),
            ("0 Leader: 1 Replicas: 1,2", "1: field Isr is missing"),
            ("0 Leader: 1 Leader: 1 Replicas: 1 Isr: 1", "1: field Leader is there twice"),
            ("0 Leader: -1 Replicas: Isr:", "1: Replicas is empty"),
            ("1 Leader: 1 Replicas: 1 Isr: 1", "1: topic t has 2 partitions and none is described"),
        ] {
            assert!(line(rest).starts_with(fault), "{}", line(rest));
        }
        let short = NEW.lines().take(2).collect::<Vec<_>>().join("\n");
        assert!(faults(&short)[0].starts_with("1: topic orders has 2 partitions and none"));
        let bad = faults("Topic: a/b Partition: 0 Leader: 1 Replicas: 1 Isr: 1");
        assert!(bad[0].starts_with("1: topic 'a/b' is not valid: expected"), "{bad:?}");
    }
}
