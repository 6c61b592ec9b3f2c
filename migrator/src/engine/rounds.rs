//! One round: sources, slots, orders, grants, records.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_model::BrokerId;
use evenkeel_proto::migrations::{CopyOrder, Grant, migrator_message::Message};

use super::{Action, Engine, Now};
use crate::copies::{Copy, Ordered, State};
use crate::grants::{self, LimitedBy, Room, Want};
use crate::metrics;
use crate::nodes::Node;
use crate::queue::{self, Waiting};
use crate::world::World;

/// How long a source is kept before a better one is looked for.
const SOURCE_KEPT: Duration = Duration::from_secs(10);

/// Bytes that a copy is reckoned with beyond those that are known.
const LEAST_EXPECTED: u64 = 1 << 20;

impl Engine {
    pub(super) fn round(&mut self, now: Now, actions: &mut Vec<Action>) {
        for node in self.nodes.values_mut() {
            node.refresh(now.at);
        }
        for copy in self.copies.values_mut() {
            copy.expire(now.at);
            copy.recheck(now.at);
        }
        self.choose_sources(now.at);
        let selected = queue::select(self.waiting(now.at), self.settings.slots);
        self.give_slots(now, &selected, actions);
        self.give_grants(now, &selected, actions);
        for copy in self.copies.values_mut() {
            let record = copy.due_record(now.at, now.wall_ms, self.settings.record_every);
            actions.extend(record.map(Action::Write));
        }
        metrics::round(&self.copies, &self.nodes, now.at);
    }

    /// The candidate expected to finish first; the leader, and followers that are behind
    /// themselves, only when nobody else is left. A source is kept as long as it is a candidate and
    /// no other could send at twice its rate.
    fn choose_sources(&mut self, now: Duration) {
        let mut queued: BTreeMap<BrokerId, u64> = BTreeMap::new();
        for copy in self.copies.values().filter(|copy| copy.state != State::Level) {
            if let Some(source) = &copy.source {
                *queued.entry(source.clone()).or_insert(0) += copy.remaining().unwrap_or(0);
            }
        }
        for copy in self.copies.values_mut() {
            let kept = copy.source.as_ref().is_some_and(|s| copy.job.sources.contains(s));
            if kept && now.saturating_sub(copy.source_since) < SOURCE_KEPT {
                continue;
            }
            let best = choose_source(copy, &self.world, &self.nodes, &queued, now);
            if kept && !is_much_better(best.as_ref(), copy, &self.nodes, now) {
                continue;
            }
            copy.source = best;
            copy.source_since = now;
            if let Some(source) = &copy.source {
                *queued.entry(source.clone()).or_insert(0) += copy.remaining().unwrap_or(0);
            }
        }
    }

    /// Copies that could have a slot; the others learn why not.
    fn waiting(&mut self, now: Duration) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        for copy in self.copies.values_mut() {
            let destination = &copy.job.destination;
            let session = self.nodes.get(destination).and_then(|node| node.session);
            if session.is_none() {
                copy.limited_by = format!("no session with {destination}");
            } else if copy.source.is_none() {
                copy.limited_by = "no live replica to copy from".to_owned();
            }
            let (Some(source), Some(_), true) = (&copy.source, session, copy.wants_slot(now))
            else {
                if matches!(copy.state, State::Running) {
                    copy.state = State::Paused;
                }
                continue;
            };
            waiting.push(Waiting {
                shard: copy.job.shard.clone(),
                class: copy.job.class,
                source: source.clone(),
                destination: destination.clone(),
                running: copy.state == State::Running,
                remaining: copy.remaining(),
                arrival: copy.arrival,
            });
        }
        waiting
    }

    fn give_slots(&mut self, now: Now, selected: &[Waiting], actions: &mut Vec<Action>) {
        let first_class = selected.first().map(|copy| copy.class);
        for (shard, copy) in &mut self.copies {
            if !selected.iter().any(|s| s.shard == *shard) {
                if copy.wants_slot(now.at) && copy.source.is_some() {
                    rest(copy, first_class, &self.nodes);
                }
                continue;
            }
            if copy.state != State::Running {
                if copy.started.is_none() {
                    copy.started = Some(now.at);
                    metrics::started(copy.job.class, now.at.saturating_sub(copy.since));
                }
                copy.state = State::Running;
            }
            actions.extend(order(copy, &self.world, &self.nodes));
        }
    }

    fn give_grants(&mut self, now: Now, selected: &[Waiting], actions: &mut Vec<Action>) {
        let round = self.settings.round;
        let mut room = Room::default();
        for (id, node) in &self.nodes {
            room.egress.insert(id.clone(), node.egress.available(now.at, round));
            room.ingress.insert(id.clone(), node.ingress.available(now.at, round));
        }
        let wants: Vec<Want> = selected
            .iter()
            .filter_map(|s| {
                let copy = self.copies.get(&s.shard)?;
                Some(Want {
                    shard: s.shard.clone(),
                    class: s.class,
                    source: s.source.clone(),
                    destination: s.destination.clone(),
                    bytes: copy.wants(round),
                })
            })
            .collect();
        for (want, allotment) in wants.iter().zip(grants::allot(&wants, &mut room)) {
            let Some(copy) = self.copies.get_mut(&want.shard) else { continue };
            copy.limited_by = match allotment.limited_by {
                LimitedBy::Demand => "the copy itself".to_owned(),
                LimitedBy::Egress => format!("egress {}", want.source),
                LimitedBy::Ingress => format!("ingress {}", want.destination),
            };
            let Some(session) = copy.ordered.as_ref().map(|ordered| ordered.session) else {
                continue;
            };
            if allotment.bytes == 0 {
                continue;
            }
            if let Some(node) = self.nodes.get_mut(&want.source) {
                node.egress.take(now.at, allotment.bytes);
            }
            if let Some(node) = self.nodes.get_mut(&want.destination) {
                node.ingress.take(now.at, allotment.bytes);
            }
            copy.granted(allotment.bytes, now.at + 2 * round);
            metrics::granted(want.class, allotment.bytes);
            let grant = Grant {
                shard: want.shard.to_string(),
                generation: copy.job.generation,
                bytes: allotment.bytes,
                expires_in_ms: u32::try_from((2 * round).as_millis()).unwrap_or(u32::MAX),
            };
            actions.push(Action::Send { session, message: Message::Grant(grant) });
        }
    }
}

/// It has no slot this round; one that had loses it and resumes later where it was.
fn rest(
    copy: &mut Copy,
    first_class: Option<evenkeel_model::CopyClass>,
    nodes: &BTreeMap<BrokerId, Node>,
) {
    if copy.state == State::Running {
        copy.state = State::Paused;
        metrics::preempted(copy.job.class);
    }
    if nodes.get(&copy.job.destination).is_some_and(|node| node.session.is_some()) {
        copy.limited_by = match first_class {
            Some(class) if class < copy.job.class => format!("{} copies go first", class.as_str()),
            _ => "no free slot".to_owned(),
        };
    }
}

/// The order for a copy with a slot, unless its agent has it already.
fn order(copy: &mut Copy, world: &World, nodes: &BTreeMap<BrokerId, Node>) -> Option<Action> {
    let session = nodes.get(&copy.job.destination)?.session?;
    let source = copy.source.clone()?;
    let generation = copy.job.generation;
    let wanted = Ordered { generation, source: source.clone(), session };
    if copy.ordered.as_ref() == Some(&wanted) {
        return None;
    }
    let source_address = world.brokers.get(&source)?.address.clone()?;
    copy.ordered = Some(wanted);
    let order = CopyOrder {
        shard: copy.job.shard.to_string(),
        generation,
        class: copy.job.class.as_str().to_owned(),
        source: source.to_string(),
        source_address,
        token: copy.job.token,
    };
    Some(Action::Send { session, message: Message::Order(order) })
}

/// Whether a follower could send at more than twice the rate of the present source.
fn is_much_better(
    best: Option<&BrokerId>,
    copy: &Copy,
    nodes: &BTreeMap<BrokerId, Node>,
    now: Duration,
) -> bool {
    let rate = |broker: &BrokerId| nodes.get(broker).map_or(0, |node| node.bytes_per_second(now));
    match (best, &copy.source) {
        (Some(best), Some(present)) if best != present => rate(best) / 2 > rate(present),
        _ => false,
    }
}

fn choose_source(
    copy: &Copy,
    world: &World,
    nodes: &BTreeMap<BrokerId, Node>,
    queued: &BTreeMap<BrokerId, u64>,
    now: Duration,
) -> Option<BrokerId> {
    let assignment = world.moving.get(&copy.job.shard)?;
    let failed = copy.failed.as_ref().and_then(|(source, _)| source.as_ref());
    let leader_at = copy.job.sources.iter().position(|b| assignment.leader.as_ref() == Some(b));
    let expected_nanos = |source: &BrokerId| {
        let bytes = queued.get(source).copied().unwrap_or(0) + copy.remaining().unwrap_or(0);
        // While sizes are not known the faster one is still the better one.
        let bytes = bytes.saturating_add(LEAST_EXPECTED);
        let rate = nodes.get(source).map_or(0, |node| node.bytes_per_second(now)).max(1);
        u128::from(bytes) * 1_000_000_000 / u128::from(rate)
    };
    copy.job
        .sources
        .iter()
        .enumerate()
        .min_by_key(|(position, source)| {
            // Sources come in groups: caught-up followers, the leader, followers that are behind.
            let group = leader_at.map_or(0, |leader| position.cmp(&leader) as i8);
            (Some(*source) == failed, group, expected_nanos(source), *source)
        })
        .map(|(_, source)| source.clone())
}
