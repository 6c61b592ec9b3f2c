//! The JSON that `kafka-reassign-partitions` takes and prints.

use std::collections::BTreeSet;

use evenkeel_model::{BrokerId, Kind, ShardKey, Snapshot};
use serde::{Deserialize, Serialize};

use super::{Broker, NAMESPACE, broker};

/// The only layout that Kafka knows.
const VERSION: u32 = 1;

/// A reassignment file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reassignment {
    /// Layout version.
    #[serde(default = "version")]
    pub version: u32,
    /// The partitions that it places.
    pub partitions: Vec<Target>,
}

/// Where one partition is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The topic.
    pub topic: String,
    /// The partition's number.
    pub partition: u32,
    /// Its replicas, the preferred leader first.
    pub replicas: Vec<Broker>,
    /// Directories on those brokers, or `any`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_dirs: Vec<String>,
}

fn version() -> u32 {
    VERSION
}

/// Reads and checks a reassignment file; an error names the field by its path.
pub fn parse(json: &[u8]) -> Result<Reassignment, String> {
    let document: Reassignment = crate::json::parse(json)?;
    if document.version != VERSION {
        let found = document.version;
        return Err(format!("version: {found} is not known: expected {VERSION}"));
    }
    let mut seen = BTreeSet::new();
    for (i, target) in document.partitions.iter().enumerate() {
        let at = |field: &str, detail: String| format!("partitions[{i}].{field}: {detail}");
        super::cluster::stream_of(&target.topic).map_err(|e| at("topic", e))?;
        if target.partition >= evenkeel_model::stream::MAX_SHARDS {
            let most = evenkeel_model::stream::MAX_SHARDS - 1;
            let detail = format!("{} is out of range: expected 0 to {most}", target.partition);
            return Err(at("partition", detail));
        }
        if !seen.insert((&target.topic, target.partition)) {
            let detail = format!("{} of {} is there twice", target.partition, target.topic);
            return Err(at("partition", detail));
        }
        let distinct: BTreeSet<&Broker> = target.replicas.iter().collect();
        if target.replicas.is_empty() || distinct.len() != target.replicas.len() {
            return Err(at("replicas", "expected at least one broker, and none twice".to_owned()));
        }
        if let Some(other) = target.replicas.iter().find(|b| **b > i32::MAX as u32) {
            return Err(at("replicas", format!("{other} is no broker's number")));
        }
        if !target.log_dirs.is_empty() && target.log_dirs.len() != target.replicas.len() {
            let (dirs, replicas) = (target.log_dirs.len(), target.replicas.len());
            return Err(at("log_dirs", format!("{dirs} of them for {replicas} replicas")));
        }
    }
    Ok(document)
}

/// What cannot be said to Kafka.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotKafka {
    /// A shard that is no partition of a topic.
    #[error(
        "{0} is no partition of a topic: expected stream/{NAMESPACE}/<topic>/<partition>, as \
         'keelctl import kafka' names them"
    )]
    Shard(ShardKey),
    /// A broker without a number.
    #[error("broker '{broker}' of {shard} has no number: Kafka's brokers are numbers such as 3")]
    Broker {
        /// Where it is named.
        shard: ShardKey,
        /// The broker.
        broker: BrokerId,
    },
}

/// The partitions whose replicas or whose leader are others in `after`.
pub fn between(before: &Snapshot, after: &Snapshot) -> Result<Reassignment, NotKafka> {
    let mut partitions = Vec::new();
    for (shard, next) in &after.assignments {
        let old = before.assignments.get(shard).map(|a| a.voters().collect::<Vec<_>>());
        let new: Vec<&BrokerId> = next.voters().collect();
        let same = old.is_some_and(|old| {
            let members = |set: &[&BrokerId]| set.iter().copied().cloned().collect::<BTreeSet<_>>();
            old.first() == new.first() && members(&old) == members(&new)
        });
        if same || new.is_empty() {
            continue;
        }
        if shard.stream.kind != Kind::Stream || &*shard.stream.namespace != NAMESPACE {
            return Err(NotKafka::Shard(shard.clone()));
        }
        let number = |id: &&BrokerId| {
            broker(id.as_str())
                .ok_or_else(|| NotKafka::Broker { shard: shard.clone(), broker: (*id).clone() })
        };
        let replicas = new.iter().map(number).collect::<Result<Vec<Broker>, NotKafka>>()?;
        partitions.push(Target {
            topic: shard.stream.name.to_string(),
            partition: shard.number,
            log_dirs: vec!["any".to_owned(); replicas.len()],
            replicas,
        });
    }
    Ok(Reassignment { version: VERSION, partitions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named_by_their_path() {
        let one = |target: &str| parse(format!(r#"{{"partitions":[{target}]}}"#).as_bytes());
        let good = r#"{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}"#;
        assert_eq!(one(good).unwrap().partitions[0].replicas, [1, 2]);
        for (target, fault) in [
            (r#"{"topic":"t","replicas":[1]}"#, "partitions[0]: missing field `partition`"),
            (r#"{"topic":"t","partition":0,"replicas":["x"]}"#, "partitions[0].replicas[0]: "),
            (r#"{"topic":"t","partition":0,"replicas":[-1]}"#, "partitions[0].replicas[0]: "),
            (r#"{"topic":"t","partition":0,"replicas":[1,1]}"#, "partitions[0].replicas: expected"),
            (r#"{"topic":"t","partition":0,"replicas":[]}"#, "partitions[0].replicas: expected"),
            (r#"{"topic":"a b","partition":0,"replicas":[1]}"#, "partitions[0].topic: topic 'a b'"),
            (
                r#"{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any","any"]}"#,
                "partitions[0].log_dirs: 2 of them for 1 replicas",
            ),
        ] {
            let error = one(target).unwrap_err();
            assert!(error.starts_with(fault), "{error}");
        }
        let twice = one(&format!("{good},{good}")).unwrap_err();
        assert_eq!(twice, "partitions[1].partition: 0 of t is there twice");
        let error = parse(br#"{"version":2,"partitions":[]}"#).unwrap_err();
        assert_eq!(error, "version: 2 is not known: expected 1");
    }
}
