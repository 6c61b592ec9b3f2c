//! Replicas on disks that lose what was not synced, over a network that loses, repeats, delays
//! and reorders, told what to do by a planner, watched by a checker.

pub(crate) mod choices;
mod compaction;
pub(crate) mod planner;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_model::{Assignment, BrokerId, ShardKey, ShardReport};
use evenkeel_shard_log::storage::MemoryStorage;
use evenkeel_shard_log::{
    Action, Answer, Draft, Event, LogConfig, ReadLimit, Record, RecordKind, Replica, ReplicaConfig,
    Request, SyncJob,
};

use choices::Choices;
use planner::{LAG_BOUND, Planner};

enum Mail {
    Request { from: BrokerId, id: u64, request: Request },
    Answer { from: BrokerId, id: u64, answer: Option<Answer> },
}

#[derive(Default)]
struct Broker {
    storage: MemoryStorage,
    replica: Option<Replica>,
    syncs: Vec<SyncJob>,
    wake_at: Option<u64>,
    /// Generation of the last assignment delivered.
    seen: u64,
    /// Reports on their way to the store.
    reports: Vec<ShardReport>,
    is_up: bool,
}

pub(crate) struct Cluster {
    pub(crate) choices: Choices,
    config: ReplicaConfig,
    shard: ShardKey,
    names: Vec<BrokerId>,
    brokers: BTreeMap<BrokerId, Broker>,
    mail: Vec<(BrokerId, Mail)>,
    /// Brokers that no other one can reach.
    cut: BTreeSet<BrokerId>,
    /// Who waits for which reply.
    replies: BTreeMap<u64, (BrokerId, BrokerId, u64)>,
    next: u64,
    now: u64,
    pub(crate) planner: Planner,
    /// Every record known to be committed.
    canon: Vec<Record>,
    /// Proposals under way, with their producer and sequence.
    asked: BTreeMap<u64, (u64, u64)>,
    wanted: BTreeMap<u64, u64>,
    /// Starts that a leader was asked for.
    given_up: BTreeSet<u64>,
    acked: BTreeMap<(u64, u64), u64>,
    /// Records have keys, and leaders compact their logs instead of giving records up by age.
    pub(crate) compacts: bool,
    pub(crate) trace: Vec<String>,
}

pub(crate) type Verdict = Result<(), String>;

impl Cluster {
    pub(crate) fn new(mut choices: Choices, joint_counting: bool) -> Self {
        let names: Vec<BrokerId> =
            ["a", "b", "c", "d", "e"].iter().map(|n| n.parse().unwrap()).collect();
        let shard: ShardKey = "stream/d/s/0".parse().unwrap();
        let factor = 1 + choices.below(3);
        let first = Assignment::new(shard.clone(), names[0].clone(), names[1..factor].to_vec());
        let up = || Broker { is_up: true, ..Broker::default() };
        Self {
            choices,
            config: ReplicaConfig {
                log: LogConfig { segment_bytes: 600, tail_bytes: 200 },
                lag_bound_records: LAG_BOUND,
                append_bytes: 300,
                joint_counting,
                idle_probe_ms: 1000,
                ..ReplicaConfig::default()
            },
            shard,
            brokers: names.iter().map(|n| (n.clone(), up())).collect(),
            names,
            mail: Vec::new(),
            cut: BTreeSet::new(),
            replies: BTreeMap::new(),
            next: 0,
            now: 0,
            planner: Planner {
                current: first,
                reports: BTreeMap::new(),
                factor,
                writes: Vec::new(),
            },
            canon: Vec::new(),
            asked: BTreeMap::new(),
            wanted: BTreeMap::from([(1, 1), (2, 1)]),
            given_up: BTreeSet::new(),
            acked: BTreeMap::new(),
            compacts: false,
            trace: Vec::new(),
        }
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn up(&self) -> Vec<BrokerId> {
        self.brokers.iter().filter(|(_, b)| b.is_up).map(|(n, _)| n.clone()).collect()
    }

    /// Runs `steps` of a schedule, then heals everything and looks for what was lost.
    pub(crate) fn run(&mut self, steps: usize) -> Verdict {
        for step in 0..steps {
            self.step()?;
            if self.compacts && self.choices.percent(4) {
                self.compact()?;
            }
            self.check_serving()?;
            if step % 16 == 0 {
                self.check_logs()?;
            }
            if self.choices.is_spent() {
                break;
            }
        }
        self.heal()
    }

    fn step(&mut self) -> Verdict {
        self.now += self.choices.below(8) as u64;
        match self.choices.below(200) {
            0..=89 => self.deliver_mail(),
            90..=124 => self.finish_sync(),
            125..=139 => self.publish(),
            140..=154 => self.tick(),
            155..=167 => self.deliver_assignment(),
            168..=181 => self.deliver_report(),
            182..=187 => {
                let up = self.up();
                self.planner.step(&mut self.choices, &self.names, &up);
                Ok(())
            }
            188 => self.crash(),
            189..=190 => self.restart(),
            191..=192 => self.cut(),
            193 => self.upkeep(),
            _ => self.copy(),
        }
    }

    fn handle(&mut self, broker: &BrokerId, event: Event) -> Verdict {
        let now = self.now;
        let Some(replica) = self.brokers.get_mut(broker).and_then(|b| b.replica.as_mut()) else {
            return Ok(());
        };
        let output = replica.handle(now, event);
        let halted = replica.halted().map(str::to_owned);
        if let Some(b) = self.brokers.get_mut(broker) {
            b.wake_at = output.wake_at;
        }
        for action in output.actions {
            self.act(broker, action)?;
        }
        self.extend_canon(broker)?;
        halted.map_or(Ok(()), |why| Err(format!("{broker} halted: {why}")))
    }

    fn act(&mut self, broker: &BrokerId, action: Action) -> Verdict {
        match action {
            Action::Send { to, id, request } => {
                let mail = Mail::Request { from: broker.clone(), id, request };
                self.mail.push((to, mail));
            }
            Action::Reply { reply, answer } => {
                if let Some((from, to, id)) = self.replies.remove(&reply) {
                    self.mail.push((to, Mail::Answer { from, id, answer: Some(answer) }));
                }
            }
            Action::Sync(job) => {
                if let Some(b) = self.brokers.get_mut(broker) {
                    b.syncs.push(job);
                }
            }
            Action::Committed { id, offsets } => return self.acknowledged(id, &offsets),
            Action::Refused { id, .. } => {
                self.asked.remove(&id);
            }
            Action::Report(report) => {
                if let Some(b) = self.brokers.get_mut(broker) {
                    b.reports.push(report);
                }
            }
            Action::Note(note) => self.trace.push(format!("{} {broker}: {note}", self.now)),
        }
        Ok(())
    }

    fn acknowledged(&mut self, id: u64, offsets: &[u64]) -> Verdict {
        let Some((producer, sequence)) = self.asked.remove(&id) else { return Ok(()) };
        let offset = offsets[0];
        if let Some(earlier) = self.acked.insert((producer, sequence), offset)
            && earlier != offset
            && !self.was_given_up(earlier, offset)
        {
            return Err(format!("{producer}/{sequence} acknowledged at {earlier} and {offset}"));
        }
        let wanted = self.wanted.entry(producer).or_default();
        *wanted = (*wanted).max(sequence + 1);
        Ok(())
    }

    fn deliver_mail(&mut self) -> Verdict {
        if self.mail.is_empty() {
            return Ok(());
        }
        // Mostly the oldest, else any.
        let i = if self.choices.percent(60) { 0 } else { self.choices.below(self.mail.len()) };
        let fate = self.choices.below(100);
        let (to, mail) = if fate < 5 {
            let copy = match &self.mail[i].1 {
                Mail::Request { from, id, request } => {
                    Mail::Request { from: from.clone(), id: *id, request: request.clone() }
                }
                Mail::Answer { from, id, answer } => {
                    Mail::Answer { from: from.clone(), id: *id, answer: answer.clone() }
                }
            };
            (self.mail[i].0.clone(), copy)
        } else {
            self.mail.remove(i)
        };
        let (Mail::Request { from, .. } | Mail::Answer { from, .. }) = &mail;
        let is_cut = self.cut.contains(from) || self.cut.contains(&to);
        if is_cut || (5..7).contains(&fate) {
            return Ok(());
        }
        self.receive(to, mail)
    }

    fn receive(&mut self, to: BrokerId, mail: Mail) -> Verdict {
        let there = self.brokers.get(&to).is_some_and(|b| b.replica.is_some());
        match mail {
            Mail::Request { from, id, request } if there => {
                let reply = self.id();
                self.replies.insert(reply, (to.clone(), from, id));
                self.handle(&to, Event::Asked { reply, request })
            }
            Mail::Request { from, id, .. } => {
                self.mail.push((from, Mail::Answer { from: to, id, answer: None }));
                Ok(())
            }
            Mail::Answer { from, id, answer } => {
                self.handle(&to, Event::Answered { from, id, answer })
            }
        }
    }

    /// Cuts a broker off from the others, or lets one come back.
    fn cut(&mut self) -> Verdict {
        let broker = self.choices.pick(&self.names);
        if let Some(broker) = broker
            && (self.cut.len() == 1 || !self.cut.insert(broker))
        {
            self.cut.clear();
        }
        Ok(())
    }

    fn finish_sync(&mut self) -> Verdict {
        let waiting: Vec<BrokerId> = self
            .brokers
            .iter()
            .filter(|(_, b)| !b.syncs.is_empty())
            .map(|(n, _)| n.clone())
            .collect();
        let Some(broker) = self.choices.pick(&waiting) else { return Ok(()) };
        let Some(b) = self.brokers.get_mut(&broker) else { return Ok(()) };
        let job = b.syncs.remove(0);
        job.run().map_err(|e| e.to_string())?;
        self.handle(&broker, Event::Synced(job.ticket()))
    }

    fn publish(&mut self) -> Verdict {
        let Some(broker) = self.choices.pick(&self.serving()) else { return Ok(()) };
        let producer = 1 + self.choices.below(2) as u64;
        // Sometimes an old one again, as a client does that missed the answer.
        let wanted = self.wanted[&producer];
        let sequence = if self.choices.percent(10) { wanted.saturating_sub(1) } else { wanted };
        let id = self.id();
        self.asked.insert(id, (producer, sequence));
        let (key, payload) = self.content(Bytes::from(format!("{producer}/{sequence}")));
        let drafts = vec![Draft { producer, sequence, key, payload }];
        self.handle(&broker, Event::Propose { id, timestamp_ms: self.now as i64, drafts })
    }

    fn tick(&mut self) -> Verdict {
        let now = self.now;
        let due: Vec<BrokerId> = self
            .brokers
            .iter()
            .filter(|(_, b)| b.wake_at.is_some_and(|at| at <= now))
            .map(|(n, _)| n.clone())
            .collect();
        match self.choices.pick(&due) {
            Some(broker) => self.handle(&broker, Event::Tick),
            None => {
                self.now += 50;
                Ok(())
            }
        }
    }

    fn deliver_assignment(&mut self) -> Verdict {
        let current = self.planner.current.clone();
        let behind: Vec<BrokerId> = self
            .brokers
            .iter()
            .filter(|(_, b)| b.is_up && b.seen < current.generation)
            .map(|(n, _)| n.clone())
            .collect();
        match self.choices.pick(&behind) {
            Some(broker) => self.assign(&broker, current),
            None => Ok(()),
        }
    }

    fn assign(&mut self, broker: &BrokerId, current: Assignment) -> Verdict {
        let erase = self.choices.percent(30);
        let Some(b) = self.brokers.get_mut(broker) else { return Ok(()) };
        b.seen = current.generation;
        if current.role_of(broker).is_none() {
            // Released: no longer there, and its bytes go sooner or later.
            (b.replica, b.wake_at) = (None, None);
            b.syncs.clear();
            if erase {
                b.storage.destroy();
            }
            return Ok(());
        }
        if b.replica.is_none() {
            let opened = Replica::open(
                broker.clone(),
                self.shard.clone(),
                Arc::new(b.storage.clone()),
                self.config.clone(),
            );
            b.replica = Some(opened.map_err(|e| e.to_string())?.0);
        }
        self.handle(broker, Event::Assigned(current))
    }

    fn deliver_report(&mut self) -> Verdict {
        let waiting: Vec<BrokerId> = self
            .brokers
            .iter()
            .filter(|(_, b)| !b.reports.is_empty())
            .map(|(n, _)| n.clone())
            .collect();
        if let Some(broker) = self.choices.pick(&waiting)
            && let Some(b) = self.brokers.get_mut(&broker)
        {
            let report = b.reports.remove(0);
            self.planner.reports.insert(broker, report);
        }
        Ok(())
    }

    fn crash(&mut self) -> Verdict {
        let up = self.up();
        let Some(broker) = self.choices.pick(&up) else { return Ok(()) };
        // Most of the time a quorum is left, else little is ever committed.
        if up.len() <= 3 && !self.choices.percent(20) {
            return Ok(());
        }
        self.trace.push(format!("{} {broker} crashes", self.now));
        let choices = &mut self.choices;
        if let Some(b) = self.brokers.get_mut(&broker) {
            (b.replica, b.wake_at, b.is_up, b.seen) = (None, None, false, 0);
            b.syncs.clear();
            b.reports.clear();
            b.storage.crash(|appended| choices.below(appended + 1));
        }
        self.planner.reports.remove(&broker);
        self.replies.retain(|_, (by, _, _)| *by != broker);
        Ok(())
    }

    fn restart(&mut self) -> Verdict {
        let down: Vec<BrokerId> =
            self.brokers.iter().filter(|(_, b)| !b.is_up).map(|(n, _)| n.clone()).collect();
        if let Some(broker) = self.choices.pick(&down)
            && let Some(b) = self.brokers.get_mut(&broker)
        {
            b.is_up = true;
        }
        Ok(())
    }

    /// What the migrator does for a learner: committed records from any member, in order.
    fn copy(&mut self) -> Verdict {
        let members: Vec<BrokerId> =
            self.planner.current.members().into_iter().map(|(b, _)| b.clone()).collect();
        let current = &self.planner.current;
        let learner = current.joining.clone().or_else(|| current.successor.clone());
        let (Some(learner), Some(source)) = (learner, self.choices.pick(&members)) else {
            return Ok(());
        };
        if learner == source {
            return Ok(());
        }
        let replica = |b: &BrokerId| self.brokers.get(b).and_then(|b| b.replica.as_ref());
        let (Some(to), Some(from)) = (replica(&learner), replica(&source)) else { return Ok(()) };
        let at = to.position().end;
        if from.log().term_before(at) != Some(to.position().term) || at > from.copyable_end() {
            return self.copy_truncate(&learner, at.saturating_sub(4));
        }
        if at < from.log().start() {
            // The source has it no more; the leader lets the learner begin anew.
            return Ok(());
        }
        let limit = ReadLimit { until: from.copyable_end(), records: 5, bytes: 1000 };
        let records = from.log().read(at, limit).map_err(|e| e.to_string())?;
        let now = self.now;
        if let Some(b) = self.brokers.get_mut(&learner)
            && let Some(replica) = b.replica.as_mut()
        {
            let _ = replica.copy_append(now, &records);
            if records.is_empty() {
                let _ = replica.copy_verified(now);
            }
        }
        self.handle(&learner, Event::Tick)
    }

    fn copy_truncate(&mut self, learner: &BrokerId, to: u64) -> Verdict {
        let now = self.now;
        if let Some(b) = self.brokers.get_mut(learner)
            && let Some(replica) = b.replica.as_mut()
        {
            let _ = replica.copy_truncate(now, to);
        }
        self.handle(learner, Event::Tick)
    }

    /// Lets everything work again, and waits until the leader serves and all is level.
    fn heal(&mut self) -> Verdict {
        for b in self.brokers.values_mut() {
            b.is_up = true;
        }
        self.planner.reports.clear();
        self.cut.clear();
        for round in 0..4000 {
            self.now += 25;
            let current = self.planner.current.clone();
            for name in self.names.clone() {
                if self.brokers[&name].seen < current.generation {
                    self.assign(&name, current.clone())?;
                }
                self.handle(&name, Event::Tick)?;
            }
            while !self.mail.is_empty() {
                let (to, mail) = self.mail.remove(0);
                self.receive(to, mail)?;
            }
            while self.brokers.values().any(|b| !b.syncs.is_empty()) {
                self.finish_sync()?;
            }
            if round > 20 && self.is_level() {
                self.check_logs()?;
                return self.check_canon();
            }
        }
        Err("the cluster did not come to rest".to_owned())
    }

    fn is_level(&self) -> bool {
        let current = &self.planner.current;
        let replica = |b: &BrokerId| self.brokers.get(b).and_then(|b| b.replica.as_ref());
        let Some(leader) = current.leader.as_ref().and_then(replica) else { return false };
        let end = leader.position();
        let start = leader.log().start();
        let is_same = |r: &Replica| r.position() == end && r.log().start() == start;
        leader.committed() == end.end && current.voters().all(|v| replica(v).is_some_and(is_same))
    }

    fn check_serving(&self) -> Verdict {
        let mut leaders = BTreeSet::new();
        for (name, b) in &self.brokers {
            if let Some(term) = b.replica.as_ref().and_then(Replica::serving_term)
                && !leaders.insert(term.generation)
            {
                return Err(format!("{name} is a second leader of {}", term.generation));
            }
        }
        Ok(())
    }

    fn extend_canon(&mut self, broker: &BrokerId) -> Verdict {
        let known = self.canon.len() as u64;
        let Some(replica) = self.brokers.get(broker).and_then(|b| b.replica.as_ref()) else {
            return Ok(());
        };
        let limit = ReadLimit::bytes(replica.committed(), usize::MAX);
        let new = replica.log().read(known, limit).map_err(|e| e.to_string())?;
        self.canon.extend(new);
        Ok(())
    }

    /// Every replica's committed records are those that are known to be committed.
    fn check_logs(&self) -> Verdict {
        for (name, b) in &self.brokers {
            let Some(replica) = &b.replica else { continue };
            let until = replica.committed();
            let start = replica.log().start();
            let read = replica.log().read(start, ReadLimit::bytes(until, usize::MAX));
            if start > 0 && !self.given_up.contains(&start) {
                return Err(format!("{name} begins at {start}, which nobody asked for"));
            }
            for record in read.map_err(|e| e.to_string())? {
                let known = &self.canon[record.offset as usize];
                if *known != record {
                    return Err(format!("{name} committed {record:?}, known is {known:?}"));
                }
            }
        }
        self.check_folds()
    }

    /// Everything acknowledged is there once, in the last leader's log too.
    fn check_canon(&self) -> Verdict {
        let mut written: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
        let published = |r: &&Record| matches!(r.kind, RecordKind::Data | RecordKind::Keyed);
        for record in self.canon.iter().filter(published) {
            let name = (record.producer, record.sequence);
            let offsets = written.entry(name).or_default();
            let earlier = offsets.iter().find(|e| !self.was_given_up(**e, record.offset));
            if let Some(earlier) = earlier {
                return Err(format!("{name:?} is written at {earlier} and {}", record.offset));
            }
            offsets.push(record.offset);
        }
        for (name, offset) in &self.acked {
            if written.get(name).is_none_or(|offsets| !offsets.contains(offset)) {
                return Err(format!("{name:?} was acknowledged at {offset} and is not there"));
            }
        }
        self.check_rewrites()
    }

    /// Where the leader's log begins.
    pub(crate) fn begins_at(&self) -> u64 {
        let leader = self.planner.current.leader.as_ref();
        let replica = leader.and_then(|l| self.brokers[l].replica.as_ref());
        replica.map_or(0, |r| r.log().start())
    }

    pub(crate) fn acknowledged_records(&self) -> usize {
        self.acked.len()
    }
}
