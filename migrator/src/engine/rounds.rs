//! One round: pauses, sources, slots, orders, grants, records.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_model::{BrokerId, CopyClass};
use evenkeel_proto::migrations::{CopyOrder, Grant, migrator_message::Message};

use super::{Action, Engine, Now};
use crate::copies::{Copy, Ordered, State};
use crate::grants::{self, LimitedBy, Room, Want};
use crate::metrics;
use crate::nodes::Node;
use crate::queue::{self, Full, Hold, Selection, Waiting};
use crate::world::World;

/// Part of what an end may take in a round that is kept for drains that have waited too long.
const SET_ASIDE: u64 = 10;

impl Engine {
    pub(super) fn round(&mut self, now: Now, actions: &mut Vec<Action>) {
        for node in self.nodes.values_mut() {
            node.refresh(now.at);
        }
        for copy in self.copies.values_mut() {
            copy.expire(now.at);
            copy.recheck(now.at);
            copy.note_wait(now.at);
        }
        self.hold(now.wall_ms);
        self.hold_maintenance(now, actions);
        self.stop_stalled(now.at, actions);
        self.choose_sources(now.at);
        let holds = self.balance_holds(now.at);
        let selection = queue::select(self.waiting(now.at), self.settings.slots, &holds);
        self.give_slots(now, &selection, actions);
        self.give_grants(now, &selection.served, actions);
        for copy in self.copies.values_mut() {
            let record = copy.due_record(now.at, now.wall_ms, self.settings.record_every);
            actions.extend(record.map(Action::Write));
        }
        metrics::round(&self.copies, &self.nodes, now.at);
        metrics::pauses(&self.world, now.wall_ms);
    }

    /// Where balance has to wait: at the ends of repairs that run or could run, and where requests
    /// are too slow as it is. A repair that nobody could serve now holds nothing up.
    fn balance_holds(&self, now: Duration) -> BTreeMap<BrokerId, Hold> {
        let spent = self.nodes.iter().filter(|(_, node)| node.is_out_of_capacity(now));
        let mut holds: BTreeMap<BrokerId, Hold> =
            spent.map(|(broker, _)| (broker.clone(), Hold::OutOfCapacity)).collect();
        for (shard, copy) in &self.copies {
            let idle = matches!(copy.state, State::Level | State::Held);
            let destination = &copy.job.destination;
            let heard = self.nodes.get(destination).is_some_and(|node| node.session.is_some());
            let Some(source) = &copy.source else { continue };
            if copy.job.class.is_repair() && !idle && heard {
                for end in [source, destination] {
                    holds.insert(end.clone(), Hold::Repair(shard.clone()));
                }
            }
        }
        holds
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
                copy.excuse();
                copy.place = 0;
                copy.waits = copy.state == State::Held;
                continue;
            };
            waiting.push(Waiting {
                shard: copy.job.shard.clone(),
                class: copy.job.class,
                source: source.clone(),
                other_sources: copy.other_sources.clone(),
                destination: destination.clone(),
                running: copy.state == State::Running,
                begun: copy.started.is_some(),
                almost_done: copy.is_almost_done(now),
                reserved: copy.is_reserved(),
                remaining: copy.remaining(),
                arrival: copy.arrival,
            });
        }
        waiting
    }

    fn give_slots(&mut self, now: Now, selection: &Selection, actions: &mut Vec<Action>) {
        let first_class = selection.served.first().map(|copy| copy.class);
        for (place, (waiting, full)) in (1..).zip(&selection.left) {
            if let Some(copy) = self.copies.get_mut(&waiting.shard) {
                rest(copy, full, first_class.filter(|first| *first < waiting.class));
                copy.place = place;
            }
        }
        for waiting in &selection.served {
            let Some(copy) = self.copies.get_mut(&waiting.shard) else { continue };
            copy.place = 0;
            let why = "whose slots are all taken";
            copy.read_instead(now.at, waiting.source.clone(), why);
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
        let (mut room, mut aside) = (Room::default(), Room::default());
        for (id, node) in &self.nodes {
            room.egress.insert(id.clone(), node.egress.available(now.at, round));
            room.ingress.insert(id.clone(), node.ingress.available(now.at, round));
            let part = node.egress.in_time(round) / SET_ASIDE;
            aside.egress.insert(id.clone(), part);
            aside.ingress.insert(id.clone(), part);
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
                    reserved: s.reserved,
                })
            })
            .collect();
        for (want, allotment) in wants.iter().zip(grants::allot(&wants, &mut room, aside)) {
            let Some(copy) = self.copies.get_mut(&want.shard) else { continue };
            copy.limited_by = match allotment.limited_by {
                LimitedBy::Demand => "the copy itself".to_owned(),
                LimitedBy::Egress => format!("egress {}", want.source),
                LimitedBy::Ingress => format!("ingress {}", want.destination),
            };
            let Some(session) = copy.ordered.as_ref().map(|ordered| ordered.session) else {
                continue;
            };
            copy.waits = allotment.bytes == 0 && !copy.has_credit();
            if copy.waits {
                copy.excuse();
            }
            if allotment.bytes == 0 {
                continue;
            }
            if self.first_grant.is_none() {
                self.first_grant = Some(now.at);
                metrics::first_grant(now.at);
            }
            if let Some(node) = self.nodes.get_mut(&want.source) {
                node.egress.take(now.at, allotment.bytes);
            }
            if let Some(node) = self.nodes.get_mut(&want.destination) {
                node.ingress.take(now.at, allotment.bytes);
            }
            copy.granted(now.at, allotment.bytes, now.at + 2 * round);
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
fn rest(copy: &mut Copy, full: &Full, first: Option<CopyClass>) {
    if copy.state == State::Running {
        copy.state = State::Paused;
        metrics::preempted(copy.job.class);
    }
    copy.waits = true;
    copy.excuse();
    copy.limited_by = match (full, first) {
        (Full::Held(broker, Hold::Repair(shard)), _) => {
            format!("the repair of {shard} at {broker} goes first")
        }
        (Full::Held(broker, Hold::OutOfCapacity), _) => format!("{broker} is out of capacity"),
        (_, Some(class)) => format!("{} copies go first", class.as_str()),
        (Full::Cluster, None) => "no free slot in the cluster".to_owned(),
        (Full::Source, None) => {
            let source = copy.source.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("no free slot out of {source}")
        }
        (Full::Destination, None) => format!("no free slot into {}", copy.job.destination),
    };
}

/// The order for a copy with a slot, unless its agent has it already.
fn order(copy: &mut Copy, world: &World, nodes: &BTreeMap<BrokerId, Node>) -> Option<Action> {
    let session = nodes.get(&copy.job.destination)?.session?;
    let source = copy.source.clone()?;
    let generation = copy.job.generation;
    // An agent that runs the copy takes the class and goes on.
    let class = copy.job.class;
    let wanted = Ordered { generation, source: source.clone(), session, class };
    if copy.ordered.as_ref() == Some(&wanted) {
        return None;
    }
    let source_address = world.brokers.get(&source)?.address.clone()?;
    copy.ordered = Some(wanted);
    let order = CopyOrder {
        shard: copy.job.shard.to_string(),
        generation,
        class: class.as_str().to_owned(),
        source: source.to_string(),
        source_address,
        token: copy.job.token,
    };
    Some(Action::Send { session, message: Message::Order(order) })
}
