//! A described Kafka cluster as a snapshot.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::snapshot::{BrokerView, DEFAULT_AGE_MS};
use evenkeel_model::stream::{MAX_REPLICATION_FACTOR, MAX_SHARDS};
use evenkeel_model::{
    Assignment, BrokerId, Kind, Lifecycle, LoadReport, Millis, Move, MoveReason, Phase,
    RECORD_VERSION, Role, ShardKey, ShardLoad, ShardReport, ShardState, Snapshot, Stream,
    StreamKey,
};

use super::describe::{Description, Partition, Topic};
use super::reassignment::Reassignment;
use super::traffic::Traffic;
use super::{Broker, NAMESPACE};

/// The stream that a topic becomes.
pub fn stream_of(topic: &str) -> Result<StreamKey, String> {
    StreamKey::new(Kind::Stream, NAMESPACE, topic).map_err(|e| {
        format!("topic '{}' is not valid: expected {}", topic.escape_debug(), e.expected)
    })
}

impl Description {
    /// Lays a reassignment over the description, as it will be when it is done and the preferred
    /// replicas lead. Without a description it is the description.
    pub fn reassign(&mut self, target: &Reassignment) -> Result<(), String> {
        let alone = self.topics.is_empty();
        for (i, place) in target.partitions.iter().enumerate() {
            let partition = Partition {
                leader: place.replicas.first().copied(),
                replicas: place.replicas.clone(),
                isr: place.replicas.iter().copied().collect(),
                adding: Vec::new(),
                removing: Vec::new(),
                line: 0,
            };
            if alone {
                let topic = self.topics.entry(place.topic.clone()).or_default();
                topic.partitions.insert(place.partition, partition);
                continue;
            }
            let topic = self.topics.get_mut(&place.topic).ok_or_else(|| {
                format!("partitions[{i}].topic: topic {} is not described", place.topic)
            })?;
            let old = topic.partitions.get_mut(&place.partition).ok_or_else(|| {
                let (number, name) = (place.partition, &place.topic);
                format!("partitions[{i}].partition: {number} of {name} is not described")
            })?;
            *old = partition;
        }
        if alone { self.check_numbers() } else { Ok(()) }
    }

    /// Of a file that alone describes topics: a gap would look like a partition that nobody holds.
    fn check_numbers(&self) -> Result<(), String> {
        for (name, topic) in &self.topics {
            let highest = topic.partitions.keys().last().copied().unwrap_or_default();
            if let Some(gap) = (0..=highest).find(|n| !topic.partitions.contains_key(n)) {
                return Err(format!(
                    "partitions: {name} has no partition {gap} and one numbered {highest}: \
                     expected all of a topic, or the text of --describe beside the file"
                ));
            }
        }
        Ok(())
    }

    /// The snapshot at `as_of_ms`, with brokers that `racks` or `traffic` alone name, and notes on
    /// what a snapshot cannot hold.
    pub fn snapshot(
        &self,
        as_of_ms: Millis,
        racks: &BTreeMap<Broker, Option<String>>,
        traffic: &Traffic,
    ) -> Result<(Snapshot, Vec<String>), String> {
        let mut snapshot = Snapshot::empty(as_of_ms);
        let mut notes: Vec<String> = self.notes.iter().cloned().collect();
        let id = |b: Broker| BrokerId::new(&b.to_string()).map_err(|e| e.to_string());
        let (named, mut alive) = self.brokers();
        alive.extend(&traffic.brokers);
        for broker in named.iter().chain(racks.keys()).chain(&traffic.brokers) {
            let live = alive.contains(broker) || !named.contains(broker);
            let zone = racks.get(broker).cloned().flatten();
            snapshot.brokers.insert(id(*broker)?, view(as_of_ms, live, zone));
        }
        let silent: Vec<String> = named.difference(&alive).map(ToString::to_string).collect();
        if !silent.is_empty() {
            notes.push(format!(
                "brokers {} lead nothing and are in sync nowhere: they are taken as down",
                silent.join(", ")
            ));
        }
        for (name, topic) in &self.topics {
            let key = stream_of(name)?;
            let factor = topic.factor(name, &mut notes)?;
            let shards = topic.partitions.keys().last().map_or(0, |n| n + 1);
            if shards > MAX_SHARDS {
                return Err(format!("topic {name} has more than {MAX_SHARDS} partitions"));
            }
            for (number, partition) in &topic.partitions {
                let shard = key.shard(*number);
                let assignment = partition.assignment(&shard, as_of_ms, &mut notes)?;
                snapshot.reports.insert(shard.clone(), partition.reports(&assignment)?);
                snapshot.assignments.insert(shard, assignment);
            }
            let stream = Stream {
                v: 1,
                stream: key.clone(),
                shards,
                replication_factor: factor,
                durable: true,
                created_at_ms: Some(snapshot.first_registered_ms),
                region: None,
            };
            snapshot.streams.insert(key, stream);
        }
        if *traffic != Traffic::default() {
            self.load(&mut snapshot, traffic, &mut notes)?;
        }
        Ok((snapshot, notes))
    }

    /// What is known of partitions as rows of their leaders' load reports.
    fn load(
        &self,
        snapshot: &mut Snapshot,
        traffic: &Traffic,
        notes: &mut Vec<String>,
    ) -> Result<(), String> {
        for broker in snapshot.brokers.values_mut().filter(|b| b.registered) {
            broker.load = Some(LoadReport {
                v: RECORD_VERSION,
                reported_at_ms: snapshot.as_of_ms,
                incarnation: 1,
                cpu_percent: None,
                disk_used_percent: None,
                memory_percent: None,
                disk_io_bytes_per_second: None,
                network_io_bytes_per_second: None,
                shards: Vec::new(),
            });
        }
        let mut strangers = 0;
        for of in traffic.partitions() {
            let shard = stream_of(&of.0)?.shard(of.1);
            let Some(assignment) = snapshot.assignments.get(&shard) else {
                strangers += 1;
                continue;
            };
            let leader = assignment.leader.as_ref().and_then(|id| snapshot.brokers.get_mut(id));
            let Some(report) = leader.and_then(|b| b.load.as_mut()) else { continue };
            report.shards.push(ShardLoad {
                shard,
                messages_per_second: 0.0,
                bytes_per_second: traffic.rates.get(of).copied().unwrap_or(0.0),
                producers: 0,
                consumers: 0,
                subscriptions: 0,
                backlog: 0,
                size_bytes: traffic.sizes.get(of).copied().unwrap_or(0),
                log_end: 0,
            });
        }
        if strangers > 0 {
            notes.push(format!(
                "{strangers} partitions have a size or a rate and are not described: left out"
            ));
        }
        Ok(())
    }

    /// Every broker that is named, and those that must be running: they lead, or are in sync with
    /// somebody who does.
    fn brokers(&self) -> (BTreeSet<Broker>, BTreeSet<Broker>) {
        let (mut named, mut alive) = (BTreeSet::new(), BTreeSet::new());
        for partition in self.topics.values().flat_map(|t| t.partitions.values()) {
            named.extend(&partition.replicas);
            if partition.leader.is_some() {
                alive.extend(partition.leader.iter().chain(&partition.isr));
            }
        }
        (named, alive)
    }
}

impl Topic {
    /// The largest set that a partition is meant to have: where they differ, a plan fills the
    /// smaller ones up rather than counting a replica as one too many.
    fn factor(&self, name: &str, notes: &mut Vec<String>) -> Result<u32, String> {
        let sizes: BTreeSet<usize> = self.partitions.values().map(|p| p.settled().len()).collect();
        let largest = sizes.last().copied().unwrap_or(1);
        if sizes.len() > 1 {
            notes.push(format!(
                "partitions of {name} have {} to {largest} replicas: its replication factor is \
                 taken as {largest}",
                sizes.first().copied().unwrap_or(1)
            ));
        }
        let factor = u32::try_from(largest).unwrap_or(u32::MAX);
        if factor > MAX_REPLICATION_FACTOR {
            return Err(format!(
                "topic {name} has {largest} replicas: expected at most {MAX_REPLICATION_FACTOR}"
            ));
        }
        Ok(factor)
    }
}

impl Partition {
    /// The replicas without those that a reassignment is still adding.
    fn settled(&self) -> Vec<Broker> {
        self.replicas.iter().copied().filter(|b| !self.adding.contains(b)).collect()
    }

    fn assignment(
        &self,
        shard: &ShardKey,
        as_of_ms: Millis,
        notes: &mut Vec<String>,
    ) -> Result<Assignment, String> {
        let id = |b: &Broker| BrokerId::new(&b.to_string()).map_err(|e| e.to_string());
        let others = |b: &&Broker| Some(**b) != self.leader;
        let settled = self.settled();
        let mut assignment = Assignment {
            shard: shard.clone(),
            leader: self.leader.as_ref().map(id).transpose()?,
            followers: settled.iter().filter(others).map(id).collect::<Result<_, _>>()?,
            generation: 1,
            state: ShardState::Active,
            successor: None,
            joining: None,
            leaving: None,
            move_: None,
        };
        match (&self.adding[..], &self.removing[..]) {
            ([], []) => {}
            ([joining], [] | [_]) if self.leader.is_some() && self.leader != Some(*joining) => {
                let leaving = self.removing.first();
                if leaving.is_some() && leaving == self.leader.as_ref() {
                    assignment.successor = Some(id(joining)?);
                } else {
                    assignment.joining = Some(id(joining)?);
                    assignment.leaving = leaving.map(id).transpose()?;
                }
                assignment.move_ = Some(Move {
                    reason: MoveReason::Operator,
                    started_at_ms: as_of_ms,
                    fenced_at_ms: None,
                    progress_at_ms: None,
                    give_ups: 0,
                    next_try_ms: None,
                });
            }
            _ => notes.push(format!(
                "{} of {} is being reassigned by more than one replica: it is taken as it was before",
                shard.number, shard.stream.name
            )),
        }
        Ok(assignment)
    }

    /// What its replicas would say: those in sync hold everything, the others are behind.
    fn reports(&self, assignment: &Assignment) -> Result<Vec<ShardReport>, String> {
        let in_sync: BTreeSet<String> = self.isr.iter().map(ToString::to_string).collect();
        let report = |(broker, role): (&BrokerId, Role)| {
            let caught_up = in_sync.contains(broker.as_str());
            let phase = match role {
                Role::Leader => Phase::Serving,
                Role::Follower => Phase::Following,
                _ => Phase::Copying,
            };
            ShardReport {
                broker: broker.clone(),
                shard: assignment.shard.clone(),
                generation: assignment.generation,
                phase: Some(phase),
                caught_up,
                lag_records: caught_up.then_some(0),
                drained: false,
                halted: None,
                log_end: None,
                declined: false,
            }
        };
        Ok(assignment.members().into_iter().map(report).collect())
    }
}

fn view(as_of_ms: Millis, live: bool, zone: Option<String>) -> BrokerView {
    let earlier = as_of_ms.saturating_sub(DEFAULT_AGE_MS);
    BrokerView {
        lifecycle: if live { Lifecycle::Live } else { Lifecycle::Down },
        last_seen_ms: if live { as_of_ms } else { earlier },
        registered: live,
        zone,
        ..BrokerView::live(earlier)
    }
}
