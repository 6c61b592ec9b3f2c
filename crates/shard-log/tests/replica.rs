//! Single rules of the replica, told event by event.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_model::{Assignment, BrokerId, Phase, ShardKey, ShardReport, ShardState};
use evenkeel_shard_log::storage::{MemoryStorage, Storage};
use evenkeel_shard_log::{
    Action, Answer, Append, Draft, Event, Memo, ReadLimit, Refusal, Replica, ReplicaConfig,
    Request, Term,
};

fn id(name: &str) -> BrokerId {
    name.parse().unwrap()
}

fn assignment(generation: u64, leader: &str, followers: &[&str]) -> Assignment {
    let shard: ShardKey = "stream/d/s/0".parse().unwrap();
    let followers = followers.iter().map(|f| id(f)).collect();
    let mut assignment = Assignment::new(shard, id(leader), followers);
    assignment.generation = generation;
    assignment
}

/// Replicas whose messages arrive at once and whose syncs are done at once.
struct Net {
    replicas: BTreeMap<BrokerId, Replica>,
    disks: BTreeMap<BrokerId, MemoryStorage>,
    now: u64,
    committed: Vec<(u64, Vec<u64>)>,
    refused: Vec<(u64, Refusal)>,
    reports: Vec<ShardReport>,
    notes: Vec<String>,
    /// Brokers that nobody reaches.
    cut: Vec<BrokerId>,
}

impl Net {
    fn new(names: &[&str]) -> Self {
        let disks: BTreeMap<BrokerId, MemoryStorage> =
            names.iter().map(|n| (id(n), MemoryStorage::new())).collect();
        let mut net = Self {
            replicas: BTreeMap::new(),
            disks,
            now: 1000,
            committed: Vec::new(),
            refused: Vec::new(),
            reports: Vec::new(),
            notes: Vec::new(),
            cut: Vec::new(),
        };
        for name in names {
            net.restart(name);
        }
        net
    }

    fn restart(&mut self, name: &str) {
        let storage = Arc::new(self.disks[&id(name)].clone());
        let shard = "stream/d/s/0".parse().unwrap();
        let opened = Replica::open(id(name), shard, storage, ReplicaConfig::default());
        self.replicas.insert(id(name), opened.unwrap().0);
    }

    fn handle(&mut self, name: &BrokerId, event: Event) {
        let mut events = std::collections::VecDeque::from([(name.clone(), event)]);
        let (mut replies, mut next) = (BTreeMap::new(), 0);
        while let Some((at, event)) = events.pop_front() {
            let Some(replica) = self.replicas.get_mut(&at) else { continue };
            for action in replica.handle(self.now, event).actions {
                match action {
                    Action::Send { to, id, request } => {
                        let unreachable = self.cut.contains(&to) || self.cut.contains(&at);
                        if unreachable || !self.replicas.contains_key(&to) {
                            let event = Event::Answered { from: to, id, answer: None };
                            events.push_back((at.clone(), event));
                        } else {
                            next += 1;
                            replies.insert(next, (at.clone(), to.clone(), id));
                            events.push_back((to, Event::Asked { reply: next, request }));
                        }
                    }
                    Action::Reply { reply, answer } => {
                        if let Some((asker, from, id)) = replies.remove(&reply) {
                            let answer = Some(answer);
                            events.push_back((asker, Event::Answered { from, id, answer }));
                        }
                    }
                    Action::Sync(job) => {
                        job.run().unwrap();
                        events.push_back((at.clone(), Event::Synced(job.ticket())));
                    }
                    Action::Committed { id, offsets } => self.committed.push((id, offsets)),
                    Action::Refused { id, refusal } => self.refused.push((id, refusal)),
                    Action::Report(report) => self.reports.push(report),
                    Action::Note(note) => self.notes.push(note),
                }
            }
        }
    }

    fn assign(&mut self, names: &[&str], assignment: &Assignment) {
        for name in names {
            self.handle(&id(name), Event::Assigned(assignment.clone()));
        }
    }

    fn pass(&mut self, ms: u64) {
        let names: Vec<BrokerId> = self.replicas.keys().cloned().collect();
        for _ in 0..ms / 50 {
            self.now += 50;
            for name in &names {
                self.handle(name, Event::Tick);
            }
        }
    }

    fn propose(&mut self, name: &str, proposal: u64, payload: &'static str) {
        let drafts = vec![Draft {
            producer: 0,
            sequence: 0,
            key: None,
            payload: Bytes::from_static(payload.as_bytes()),
        }];
        self.handle(&id(name), Event::Propose { id: proposal, timestamp_ms: 0, drafts });
    }

    fn phase(&self, name: &str) -> Option<Phase> {
        self.replicas[&id(name)].phase()
    }

    fn report(&self, name: &str) -> ShardReport {
        self.replicas[&id(name)].current_report().unwrap()
    }
}

#[test]
fn a_stage_fails_no_publish_whoever_hears_of_it_first() {
    let mut net = Net::new(&["a", "b", "c"]);
    let mut next = assignment(1, "a", &["b", "c"]);
    net.assign(&["b", "c", "a"], &next);
    assert_eq!(net.phase("a"), Some(Phase::Serving));
    net.propose("a", 1, "one");
    next.generation = 2;
    next.successor = Some(id("b"));
    net.assign(&["b", "c"], &next);
    net.propose("a", 2, "two");
    net.cut = vec![id("b"), id("c")];
    net.propose("a", 3, "three");
    net.assign(&["a"], &next);
    assert_eq!(net.phase("a"), Some(Phase::Serving), "it serves on in between");
    net.propose("a", 4, "four");
    net.cut.clear();
    net.pass(500);
    let done: Vec<u64> = net.committed.iter().map(|(id, _)| *id).collect();
    assert_eq!((done, &net.refused[..]), (vec![1, 2, 3, 4], &[][..]));
    let serving = |r: &&ShardReport| r.generation == 2 && r.phase == Some(Phase::Serving);
    assert_eq!(net.reports.iter().filter(serving).count(), 1);
}

#[test]
fn a_copy_cannot_touch_what_a_later_leader_counts_already() {
    let mut net = Net::new(&["a", "b", "d"]);
    let mut next = assignment(1, "a", &["b"]);
    net.assign(&["b", "a"], &next);
    net.propose("a", 1, "one");
    (next.generation, next.successor) = (2, Some(id("d")));
    net.assign(&["b", "d", "a"], &next);
    net.pass(1000);
    // `d` hears of the fence from its leader first.
    (next.generation, next.state) = (3, ShardState::Draining);
    net.assign(&["b", "a"], &next);
    net.pass(1000);
    assert!(net.report("a").drained, "it drained because `d` has everything");
    let d = net.replicas.get_mut(&id("d")).unwrap();
    assert_eq!((d.assignment().unwrap().generation, d.is_fed()), (2, true));
    let end = d.position().end;
    assert!(d.copy_truncate(5000, 1).is_err());
    assert_eq!(d.position().end, end);
}

#[test]
fn a_fenced_leader_takes_nothing_more_lets_land_and_reports_that_it_drained() {
    let mut net = Net::new(&["a", "b", "c", "d"]);
    let mut next = assignment(1, "a", &["b", "c"]);
    net.assign(&["b", "c", "a"], &next);
    (next.generation, next.successor) = (2, Some(id("d")));
    net.assign(&["b", "c", "d", "a"], &next);
    net.pass(1000);
    assert!(net.report("d").caught_up);
    net.cut = vec![id("b"), id("c"), id("d")];
    net.propose("a", 1, "accepted before the fence");
    (next.generation, next.state) = (3, ShardState::Draining);
    net.assign(&["b", "c", "d", "a"], &next);
    net.propose("a", 2, "refused");
    assert_eq!(net.refused, [(2, Refusal::Fenced)]);
    assert_eq!((net.phase("a"), net.committed.len()), (Some(Phase::Fencing), 0));
    net.cut = vec![id("d")];
    net.pass(3000);
    assert_eq!(net.committed.len(), 1, "what was accepted lands");
    assert_eq!(net.phase("a"), Some(Phase::Fencing), "the destination is not level");
    net.cut.clear();
    net.pass(3000);
    let report = net.report("a");
    assert_eq!((report.drained, report.generation), (true, 3));
    // Restarted, it is still drained and appends nothing in this generation.
    let end = net.replicas[&id("a")].position();
    net.restart("a");
    net.assign(&["a"], &next);
    assert!(net.report("a").drained);
    assert_eq!(net.replicas[&id("a")].position(), end);
}

#[test]
fn of_two_voters_the_one_that_is_left_opens_and_commits_nothing_alone() {
    let mut net = Net::new(&["a", "b", "c"]);
    net.assign(&["b", "a"], &assignment(1, "a", &["b"]));
    net.propose("a", 1, "one");
    net.cut = vec![id("a")];
    let mut next = assignment(2, "b", &["a"]);
    net.assign(&["b"], &next);
    net.propose("b", 2, "two");
    assert_eq!(net.refused, [(2, Refusal::Opening)]);
    assert_eq!(net.phase("b"), Some(Phase::Opening));
    // A joiner takes the lost one's place: only then can it commit again.
    (next.generation, next.joining, next.leaving) = (3, Some(id("c")), Some(id("a")));
    net.assign(&["b", "c"], &next);
    net.pass(2000);
    assert!(net.report("c").caught_up);
    let seated = assignment(4, "b", &["c"]);
    net.assign(&["b", "c"], &seated);
    net.pass(500);
    assert_eq!(net.phase("b"), Some(Phase::Serving));
    net.propose("b", 3, "three");
    assert_eq!(net.committed.last(), Some(&(3, vec![5])));
}

#[test]
fn a_set_that_shrinks_asks_the_larger_one_unless_its_leader_had_everything() {
    // The leader hears of the generation in which it was named, or only of a later one.
    for generation in [2, 3] {
        let mut net = Net::new(&["a", "b", "c"]);
        let first = assignment(1, "a", &["b", "c"]);
        net.assign(&["b", "c", "a"], &first);
        net.cut = vec![id("c")];
        net.propose("a", 1, "on a and b only");
        assert_eq!(net.committed.len(), 1);
        net.cut = vec![id("a"), id("b")];
        net.assign(&["c"], &assignment(generation, "c", &["b"]));
        net.pass(3000);
        assert_eq!(net.phase("c"), Some(Phase::Opening), "alone it may lack what was committed");
        net.cut = vec![id("a")];
        net.pass(3000);
        assert_eq!(net.phase("c"), Some(Phase::Serving));
        assert_eq!(net.replicas[&id("c")].position().end, 3);
    }
}

#[test]
fn a_replaced_disk_counts_for_nothing_until_it_is_level() {
    let mut net = Net::new(&["a", "b", "c"]);
    let first = assignment(1, "a", &["b", "c"]);
    net.assign(&["b", "c", "a"], &first);
    net.cut = vec![id("c")];
    net.propose("a", 1, "on a and b only");
    net.disks[&id("b")].destroy();
    net.restart("b");
    net.cut = vec![id("a")];
    let next = assignment(2, "c", &["a", "b"]);
    net.assign(&["b", "c"], &next);
    net.pass(3000);
    assert_eq!(net.phase("c"), Some(Phase::Opening), "an empty log proves nothing");
    net.cut.clear();
    net.assign(&["a"], &next);
    net.pass(3000);
    assert_eq!(net.phase("c"), Some(Phase::Serving));
    assert_eq!(net.replicas[&id("c")].position().end, 3);
    net.pass(3000);
    assert!(net.report("b").caught_up, "it was filled from the leader");
}

#[test]
fn assignments_of_the_past_and_second_versions_of_one_are_refused() {
    let mut net = Net::new(&["a"]);
    net.assign(&["a"], &assignment(5, "a", &[]));
    net.assign(&["a"], &assignment(4, "a", &[]));
    net.assign(&["a"], &assignment(5, "a", &["b"]));
    net.assign(&["a"], &assignment(5, "a", &[]));
    assert_eq!(
        net.notes,
        [
            "refused assignment 4: older than 5, which is held",
            "refused assignment 5: another one of it is held"
        ]
    );
    assert_eq!(net.phase("a"), Some(Phase::Serving));
}

#[test]
fn an_older_leader_is_told_of_the_promise_and_a_second_leader_of_a_generation_is_refused() {
    let mut net = Net::new(&["a"]);
    let mut ask = |request| {
        let now = 1000;
        let replica = net.replicas.get_mut(&id("a")).unwrap();
        let output = replica.handle(now, Event::Asked { reply: 1, request });
        output.actions.into_iter().find_map(|action| match action {
            Action::Reply { answer, .. } => Some(answer),
            _ => None,
        })
    };
    let promise = |generation, leader| Request::Promise {
        term: Term::new(generation, 1),
        leader: id(leader),
    };
    let granted = |answer: Option<Answer>| {
        let Some(Answer::Promise { granted, promised, .. }) = answer else { panic!() };
        (granted, promised.generation)
    };
    assert_eq!(granted(ask(promise(7, "b"))), (true, 7));
    assert_eq!(granted(ask(promise(7, "b"))), (true, 7), "a repetition");
    assert_eq!(granted(ask(promise(7, "c"))), (false, 7));
    assert_eq!(granted(ask(promise(6, "c"))), (false, 7));
    let append = Append {
        term: Term::new(6, 1),
        leader: id("c"),
        prev_end: 0,
        prev_term: Term::default(),
        records: Vec::new(),
        committed: 0,
        leader_end: 0,
        level: 0,
        counted: true,
        from_start: false,
    };
    let Some(Answer::Append { accepted, promised, .. }) = ask(Request::Append(append)) else {
        panic!()
    };
    assert_eq!((accepted, promised.generation), (false, 7));
}

#[test]
fn a_full_disk_refuses_and_passes() {
    let mut net = Net::new(&["a"]);
    net.assign(&["a"], &assignment(1, "a", &[]));
    net.disks[&id("a")].set_room(Some(10));
    net.propose("a", 1, "no room");
    let (_, refusal) = net.refused.pop().unwrap();
    let told = "disk is full: cannot write 64 bytes to memory:00000000000000000000.log";
    assert_eq!(refusal, Refusal::DiskFull(told.to_owned()));
    net.disks[&id("a")].set_room(None);
    net.propose("a", 2, "room");
    assert_eq!(net.committed, [(2, vec![1])]);
}

#[test]
fn a_leader_that_starts_without_room_serves_once_there_is_some() {
    let mut net = Net::new(&["a"]);
    let told = assignment(1, "a", &[]);
    net.assign(&["a"], &told);
    net.propose("a", 1, "kept");
    net.disks[&id("a")].set_room(Some(0));
    net.restart("a");
    net.assign(&["a"], &told);
    net.pass(2000);
    assert_ne!(net.phase("a"), Some(Phase::Serving));
    let told = net.notes.iter().filter(|note| note.starts_with("disk is full"));
    assert!(told.count() <= 2, "{:?}", net.notes);
    net.disks[&id("a")].set_room(None);
    net.pass(2000);
    assert_eq!(net.phase("a"), Some(Phase::Serving));
    net.propose("a", 2, "room");
    assert_eq!(net.committed.last(), Some(&(2, vec![3])));
}

#[test]
fn without_room_for_a_new_start_everything_else_goes_on() {
    let mut net = Net::new(&["a"]);
    net.assign(&["a"], &assignment(1, "a", &[]));
    net.propose("a", 1, "first");
    // Enough for the record that asks for it and for one more.
    net.disks[&id("a")].set_room(Some(65 + 59));
    net.handle(&id("a"), Event::GiveUpBefore { offset: 1, timestamp_ms: 0 });
    net.propose("a", 2, "x");
    net.pass(2000);
    assert_eq!(net.committed, [(1, vec![1]), (2, vec![3])]);
    assert_eq!(net.replicas[&id("a")].log().start(), 0);
    let told = net.notes.iter().filter(|note| note.contains("start cannot move yet"));
    assert_eq!(told.count(), 1, "{:?}", net.notes);
    net.disks[&id("a")].set_room(None);
    net.pass(2000);
    assert_eq!(net.replicas[&id("a")].log().start(), 1);
}

#[test]
fn a_follower_far_behind_is_not_caught_up_until_it_is_level_again() {
    let mut net = Net::new(&["a", "b", "c"]);
    net.assign(&["b", "c", "a"], &assignment(1, "a", &["b", "c"]));
    assert!(net.report("c").caught_up);
    net.cut = vec![id("c")];
    for proposal in 0..6000 {
        net.propose("a", proposal, "a record of some length, so that one append is not enough");
    }
    net.cut.clear();
    net.pass(5000);
    let edges: Vec<bool> =
        net.reports.iter().filter(|r| r.broker == id("c")).map(|report| report.caught_up).collect();
    assert_eq!(edges, [false, true, false, true]);
}

#[test]
fn a_learner_counts_neither_as_caught_up_nor_as_near_until_its_copy_was_compared() {
    let mut net = Net::new(&["a", "b", "d"]);
    let mut set = assignment(1, "a", &["b"]);
    net.assign(&["b", "a"], &set);
    for proposal in 0..3 {
        net.propose("a", proposal, "a record");
    }
    let records =
        net.replicas[&id("b")].log().read(0, ReadLimit::bytes(u64::MAX, 1 << 20)).unwrap();
    net.cut = vec![id("d")];
    set.generation = 2;
    set.successor = Some(id("d"));
    net.assign(&["b", "d", "a"], &set);
    let now = net.now;
    net.replicas.get_mut(&id("d")).unwrap().copy_append(now, &records).unwrap();
    net.cut.clear();
    net.pass(5000);
    let learner = &net.replicas[&id("d")];
    assert!(learner.is_level(), "its leader shipped the rest");
    assert_eq!(learner.copied_from(), Some(0));
    assert_eq!((net.report("d").caught_up, net.report("d").lag_records), (false, None));
    net.restart("d");
    net.pass(5000);
    assert!(!net.report("d").caught_up, "a restart forgets nothing of it");
    let now = net.now;
    net.replicas.get_mut(&id("d")).unwrap().copy_verified(now).unwrap();
    net.pass(5000);
    assert_eq!((net.report("d").caught_up, net.report("d").lag_records), (true, Some(0)));
}

#[test]
fn what_halted_or_declined_accepts_no_generation_to_lead() {
    let mut net = Net::new(&["a", "b"]);
    net.assign(&["b", "a"], &assignment(1, "a", &["b"]));
    net.handle(&id("b"), Event::SyncFailed("input/output error".to_owned()));
    net.assign(&["b"], &assignment(2, "b", &["a"]));
    let generation = |net: &Net, at: &str| net.replicas[&id(at)].assignment().unwrap().generation;
    assert_eq!((generation(&net, "b"), net.replicas[&id("b")].promised().generation), (1, 1));

    let storage: Arc<dyn Storage> = Arc::new(net.disks[&id("b")].clone());
    let memo = Memo { declined: 2, ..Memo::load(&storage).unwrap() };
    memo.save(&storage).unwrap();
    net.restart("b");
    net.assign(&["a", "b"], &assignment(2, "b", &["a"]));
    net.pass(1000);
    assert_eq!((generation(&net, "b"), net.replicas[&id("b")].declined()), (1, 2));
    net.assign(&["a", "b"], &assignment(3, "b", &["a"]));
    net.pass(1000);
    assert_eq!(net.phase("b"), Some(Phase::Serving));
}
