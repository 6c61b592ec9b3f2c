use evenkeel_model::{Assignment, Lifecycle, Move, MoveReason, Phase, ShardReport, ShardState};

use super::*;
use crate::world::Broker;

mod classes;
mod inherited;
mod laws;
mod measures;
mod pauses;
mod sources;
mod stalls;

/// An engine with a clock that the test moves, telling its actions as text.
struct Rig {
    engine: Engine,
    world: World,
    at: Duration,
    sessions: u64,
}

fn id(name: &str) -> BrokerId {
    name.parse().unwrap()
}

fn shard(number: u32) -> ShardKey {
    format!("stream/d/s/{number}").parse().unwrap()
}

impl Rig {
    /// Brokers `b1` to `b4` with links of 8 MB/s, so that a round at the start is 400 kB. Nothing was
    /// being copied when this instance was elected.
    fn new(slots: Slots) -> Self {
        let mut rig = Self::elected(slots);
        rig.see();
        rig
    }

    /// The same before the cluster was first seen.
    fn elected(slots: Slots) -> Self {
        let settings = Settings {
            instance: "m1".to_owned(),
            token: 77,
            slots,
            round: Duration::from_millis(250),
            record_every: Duration::from_secs(5),
            stall: Duration::from_secs(30),
        };
        let mut world = World::default();
        for n in 1..=4 {
            let broker = Broker {
                lifecycle: Lifecycle::Live,
                address: Some(format!("h{n}:1")),
                link_bytes_per_second: 8_000_000,
            };
            world.brokers.insert(id(&format!("b{n}")), broker);
        }
        Self { engine: Engine::new(settings), world, at: Duration::ZERO, sessions: 0 }
    }

    fn tell(&mut self, event: Event) -> Vec<String> {
        let wall_ms = 1_000_000 + self.at.as_millis() as i64;
        let actions = self.engine.on_event(Now { at: self.at, wall_ms }, event);
        actions.into_iter().map(text).collect()
    }

    /// A leader move of `b1`'s shard to `to`, with a follower on `b2`.
    fn stage(&mut self, number: u32, to: &str, reason: MoveReason) {
        let mut assignment = Assignment::new(shard(number), id("b1"), vec![id("b2")]);
        assignment.state = ShardState::Active;
        assignment.generation = 3;
        assignment.successor = Some(id(to));
        assignment.move_ = Some(Move {
            reason,
            started_at_ms: 0,
            fenced_at_ms: None,
            progress_at_ms: None,
            give_ups: 0,
            next_try_ms: None,
        });
        self.world.moving.insert(shard(number), assignment);
        self.world.tokens.insert(shard(number), 66);
        self.following(number, "b2", 3);
    }

    /// The staged shard has another caught-up follower.
    fn second_follower(&mut self, number: u32, broker: &str) {
        let assignment = self.world.moving.get_mut(&shard(number)).unwrap();
        assignment.followers.push(id(broker));
        self.following(number, broker, 3);
    }

    /// The leader of every shard has next to nothing to spare: followers are what is read from.
    fn leader_is_busy(&mut self) {
        self.world.limits.insert(id("b1"), 1_000);
        self.see();
    }

    fn following(&mut self, number: u32, broker: &str, generation: u64) {
        let report = ShardReport {
            broker: id(broker),
            shard: shard(number),
            generation,
            phase: Some(Phase::Following),
            caught_up: true,
            lag_records: Some(0),
            drained: false,
            halted: None,
            log_end: Some(10),
            declined: false,
        };
        self.world.reports.insert((shard(number), id(broker)), report);
    }

    fn see(&mut self) -> Vec<String> {
        let world = self.world.clone();
        self.tell(Event::World(world))
    }

    fn open(&mut self, broker: &str) -> Vec<String> {
        let session = self.sessions;
        self.sessions += 1;
        let hello = Hello {
            broker: broker.to_owned(),
            incarnation: 1,
            network_bytes_per_second: 8_000_000,
            target_p99_ms: 100.0,
        };
        self.tell(Event::Opened { broker: id(broker), session, hello })
    }

    fn progress(
        &mut self,
        broker: &str,
        session: u64,
        number: u32,
        word: (&str, u64, u64),
    ) -> Vec<String> {
        let (state, bytes_verified, bytes_remaining) = word;
        let progress = CopyProgress {
            shard: shard(number).to_string(),
            generation: 3,
            state: state.to_owned(),
            bytes_verified,
            bytes_remaining,
            ..CopyProgress::default()
        };
        self.tell(Event::Progress { broker: id(broker), session, progress })
    }

    /// The next round, a quarter of a second later.
    fn round(&mut self) -> Vec<String> {
        self.at += Duration::from_millis(250);
        self.tell(Event::Round)
    }

    fn copies(&self) -> Vec<evenkeel_proto::migrations::Migration> {
        self.engine.migrations(self.at)
    }

    /// A restore of `number` onto `to`: the set is `b1` and its followers.
    fn restore(&mut self, number: u32, followers: &[&str], to: &str) {
        self.stage(number, to, MoveReason::Restore);
        let assignment = self.world.moving.get_mut(&shard(number)).unwrap();
        assignment.followers = followers.iter().map(|f| id(f)).collect();
        assignment.successor = None;
        assignment.joining = Some(id(to));
    }

    /// Bytes granted to a shard among these lines.
    fn granted(lines: &[String], number: u32) -> u64 {
        let grant = format!("<- grant {} ", shard(number));
        let of_shard = lines.iter().filter(|line| line.contains(&grant));
        of_shard.filter_map(|line| line.split(' ').nth(5)?.parse::<u64>().ok()).sum()
    }

    fn copy(&self, number: u32) -> evenkeel_proto::migrations::Migration {
        let key = shard(number).to_string();
        self.copies().into_iter().find(|copy| copy.shard == key).unwrap()
    }

    fn states(&self) -> Vec<String> {
        self.copies()
            .into_iter()
            .map(|m| format!("{} {} {}", m.shard, m.state, m.limited_by))
            .collect()
    }
}

fn text(action: Action) -> String {
    match action {
        Action::Send { session, message } => match message {
            Message::Welcome(m) => format!("{session} <- welcome {} {}", m.instance, m.token),
            Message::Order(m) => format!(
                "{session} <- order {} g{} {} from {} at {} token {}",
                m.shard, m.generation, m.class, m.source, m.source_address, m.token
            ),
            Message::Cancel(m) => format!("{session} <- cancel {} g{}", m.shard, m.generation),
            Message::MaintenanceHold(m) => format!("{session} <- hold for {} ms", m.for_ms),
            Message::Grant(m) => format!(
                "{session} <- grant {} g{} {} for {} ms",
                m.shard, m.generation, m.bytes, m.expires_in_ms
            ),
        },
        Action::Write(r) => format!(
            "write {} {} {} -> {} {}/{}",
            r.shard,
            r.class.as_str(),
            r.source.map_or("-".to_owned(), |s| s.to_string()),
            r.destination,
            r.bytes_done,
            r.bytes_total
        ),
        Action::Remove(shard) => format!("remove {shard}"),
    }
}

const SLOTS: Slots = Slots { cluster: 8, per_node: 2 };

#[test]
fn a_copy_is_ordered_granted_followed_and_ended() {
    let mut rig = Rig::new(SLOTS);
    rig.stage(0, "b3", MoveReason::Drain);
    rig.world.sizes.insert(shard(0), 1_000_000);
    assert!(rig.see().is_empty());
    // Nobody listens yet; the record says that it waits.
    assert_eq!(rig.round(), ["write stream/d/s/0 drain b2 -> b3 0/1000000"]);
    assert_eq!(rig.states(), ["stream/d/s/0 queued no session with b3"]);

    assert_eq!(rig.open("b3"), ["0 <- welcome m1 77"]);
    assert_eq!(
        rig.round(),
        [
            "0 <- order stream/d/s/0 g3 drain from b2 at h2:1 token 66",
            // A round and what an idle bucket has saved.
            "0 <- grant stream/d/s/0 g3 480000 for 500 ms",
            "write stream/d/s/0 drain b2 -> b3 0/1000000",
        ]
    );
    assert_eq!(rig.states(), ["stream/d/s/0 running egress b2"]);
    rig.progress("b3", 0, 0, ("running", 400_000, 600_000));
    // 600 kB are left, 480 kB of them granted already.
    assert_eq!(rig.round(), ["0 <- grant stream/d/s/0 g3 120000 for 500 ms"]);
    assert_eq!(rig.states(), ["stream/d/s/0 running the copy itself"]);

    assert!(rig.progress("b3", 0, 0, ("level", 1_000_000, 0)).is_empty());
    assert_eq!(rig.round(), ["write stream/d/s/0 drain b2 -> b3 1000000/1000000"]);
    assert!(rig.round().is_empty());

    rig.world.moving.clear();
    assert_eq!(rig.see(), ["0 <- cancel stream/d/s/0 g3", "remove stream/d/s/0"]);
    assert!(rig.round().is_empty());
}

#[test]
fn a_new_generation_or_a_new_session_orders_again_and_loses_nothing() {
    let mut rig = Rig::new(SLOTS);
    rig.stage(0, "b3", MoveReason::Drain);
    rig.see();
    rig.open("b3");
    rig.round();
    rig.progress("b3", 0, 0, ("running", 100, 10_000_000));
    let orders = |lines: Vec<String>| -> Vec<String> {
        lines.into_iter().filter(|line| line.contains("order")).collect()
    };

    rig.world.moving.get_mut(&shard(0)).unwrap().generation = 4;
    rig.following(0, "b2", 4);
    rig.see();
    assert_eq!(orders(rig.round()), ["0 <- order stream/d/s/0 g4 drain from b2 at h2:1 token 66"]);
    rig.open("b3");
    assert_eq!(orders(rig.round()), ["1 <- order stream/d/s/0 g4 drain from b2 at h2:1 token 66"]);
    // The end of the session before it is no news.
    rig.tell(Event::Closed { broker: id("b3"), session: 0 });
    assert!(orders(rig.round()).is_empty());
    assert_eq!(rig.copies()[0].bytes_done, Some(100));
    rig.tell(Event::Closed { broker: id("b3"), session: 1 });
    assert!(rig.round().iter().all(|line| line.starts_with("write")));
    assert_eq!(rig.states(), ["stream/d/s/0 paused no session with b3"]);
}

#[test]
fn a_repair_takes_the_slot_and_the_credits_of_a_balance_copy_which_later_resumes() {
    let mut rig = Rig::new(Slots { cluster: 8, per_node: 1 });
    rig.leader_is_busy();
    rig.stage(0, "b3", MoveReason::StreamBalance);
    rig.see();
    rig.open("b3");
    rig.round();
    assert_eq!(rig.states(), ["stream/d/s/0 running egress b2"]);

    // b2 is the source of both, and b4 is to restore what a third replica lost.
    rig.stage(1, "b3", MoveReason::Restore);
    let assignment = rig.world.moving.get_mut(&shard(1)).unwrap();
    assignment.successor = None;
    assignment.joining = Some(id("b4"));
    rig.open("b4");
    rig.see();
    let lines = rig.round();
    assert_eq!(
        lines[..2],
        [
            "1 <- order stream/d/s/1 g3 under_replicated from b2 at h2:1 token 66",
            "1 <- grant stream/d/s/1 g3 400000 for 500 ms",
        ]
    );
    assert_eq!(
        rig.states(),
        [
            "stream/d/s/1 running egress b2",
            "stream/d/s/0 paused the repair of stream/d/s/1 at b2 goes first",
        ]
    );
    rig.world.moving.remove(&shard(1));
    rig.see();
    // Its agent still has the order: only grants are needed.
    let lines = rig.round();
    assert!(lines.iter().any(|l| l.starts_with("0 <- grant stream/d/s/0")), "{lines:?}");
    assert!(!lines.iter().any(|l| l.contains("order")), "{lines:?}");
}

#[test]
fn a_source_that_fails_or_dies_is_replaced_by_the_next_best() {
    let mut rig = Rig::new(SLOTS);
    rig.stage(0, "b3", MoveReason::Drain);
    rig.see();
    rig.open("b3");
    rig.round();
    rig.progress("b3", 0, 0, ("failed", 0, 0));
    assert_eq!(rig.states(), ["stream/d/s/0 failed the last try failed"]);
    let quiet: Vec<String> = (0..3).flat_map(|_| rig.round()).collect();
    assert!(!quiet.iter().any(|line| line.contains("order")), "it pauses first: {quiet:?}");
    let lines = rig.round();
    assert!(lines[0] == "0 <- order stream/d/s/0 g3 drain from b1 at h1:1 token 66", "{lines:?}");
    rig.world.brokers.get_mut(&id("b1")).unwrap().address = None;
    rig.see();
    let lines = rig.round();
    assert!(lines[0].contains("from b2"), "{lines:?}");
}

#[test]
fn the_source_with_the_least_to_send_is_chosen() {
    let mut rig = Rig::new(SLOTS);
    for number in 0..2 {
        rig.stage(number, "b3", MoveReason::Drain);
        rig.second_follower(number, "b4");
        rig.world.sizes.insert(shard(number), 1000);
    }
    rig.see();
    rig.open("b3");
    rig.round();
    let sources: Vec<_> = rig.copies().into_iter().map(|m| m.source).collect();
    assert_eq!(sources, [Some("b2".to_owned()), Some("b4".to_owned())]);
}

#[test]
fn a_cap_and_a_share_bound_the_grants_and_a_silent_agent_leaves_no_limit() {
    let mut rig = Rig::new(SLOTS);
    rig.leader_is_busy();
    rig.stage(0, "b3", MoveReason::Drain);
    rig.world.limits.insert(id("b2"), 400_000);
    rig.see();
    rig.open("b3");
    let granted = |lines: Vec<String>| -> u64 {
        let grants = lines.iter().filter(|line| line.contains("grant"));
        grants.filter_map(|line| line.split(' ').nth(5)?.parse::<u64>().ok()).sum()
    };
    let first_second: u64 = (0..4).map(|_| granted(rig.round())).sum();
    assert_eq!(first_second, 400_000 + 20_000, "a second and the burst");
    let limit = rig.engine.limits(rig.at).into_iter().find(|l| l.broker == "b2").unwrap();
    assert_eq!((limit.owner.as_str(), limit.effective_bytes_per_second), ("operator", 400_000));

    rig.world.limits.remove(&id("b2"));
    rig.see();
    let status = NodeStatus { share: 0.05, state: "floor".to_owned(), ..NodeStatus::default() };
    rig.tell(Event::Status { broker: id("b3"), session: 0, status });
    let second: u64 = (0..4).map(|_| granted(rig.round())).sum();
    assert_eq!(second, 400_000 + 20_000, "5 % of 8 MB/s and the burst");
    for _ in 0..20 {
        rig.round();
    }
    let limit = rig.engine.limits(rig.at).into_iter().find(|l| l.broker == "b3").unwrap();
    assert_eq!((limit.owner.as_str(), limit.effective_bytes_per_second), ("start", 1_600_000));
}

#[test]
fn numbers_are_written_rarely_and_changes_of_state_at_once() {
    let mut rig = Rig::new(SLOTS);
    rig.stage(0, "b3", MoveReason::Drain);
    rig.see();
    rig.open("b3");
    let mut writes = Vec::new();
    for step in 0..80_u64 {
        rig.progress("b3", 0, 0, ("running", step * 1000, 1_000_000));
        let lines = rig.round();
        writes.extend(lines.into_iter().filter(|line| line.starts_with("write")));
    }
    assert_eq!(writes.len(), 4, "at the start and each 5 s of 20 s: {writes:?}");
    rig.tell(Event::Rewrite);
    assert!(rig.round().iter().any(|line| line.starts_with("write")));
}

#[test]
fn a_copy_that_nobody_wants_is_cancelled_and_words_of_an_old_session_are_ignored() {
    let mut rig = Rig::new(SLOTS);
    rig.see();
    rig.open("b3");
    assert_eq!(rig.progress("b3", 0, 9, ("running", 5, 5)), ["0 <- cancel stream/d/s/9 g3"]);
    assert!(rig.progress("b3", 0, 9, ("level", 5, 0)).is_empty());
    rig.open("b3");
    assert!(rig.progress("b3", 0, 9, ("running", 5, 5)).is_empty());
}

#[test]
fn a_level_copy_that_stays_behind_is_asked_again() {
    let mut rig = Rig::new(SLOTS);
    rig.stage(0, "b3", MoveReason::Drain);
    rig.see();
    rig.open("b3");
    rig.round();
    rig.progress("b3", 0, 0, ("level", 500, 0));
    let lines: Vec<String> = (0..39).flat_map(|_| rig.round()).collect();
    assert_eq!(lines, ["write stream/d/s/0 drain b2 -> b3 500/500"]);
    let lines: Vec<String> = (0..2).flat_map(|_| rig.round()).collect();
    assert_eq!(lines[0], "0 <- order stream/d/s/0 g3 drain from b2 at h2:1 token 66");
}

#[test]
fn a_destination_that_counts_anew_loses_nothing_of_what_is_done() {
    let mut rig = Rig::new(SLOTS);
    rig.stage(0, "b3", MoveReason::Drain);
    rig.see();
    rig.open("b3");
    rig.round();
    for (verified, remaining) in [(500, 900), (0, 900), (300, 600)] {
        rig.progress("b3", 0, 0, ("running", verified, remaining));
    }
    let copy = &rig.copies()[0];
    assert_eq!((copy.bytes_done, copy.bytes_total), (Some(800), Some(1400)));
}

#[test]
fn a_copy_that_does_not_use_its_grants_leaves_them_to_others() {
    let mut rig = Rig::new(SLOTS);
    rig.leader_is_busy();
    rig.stage(0, "b3", MoveReason::StreamBalance);
    rig.stage(1, "b4", MoveReason::StreamBalance);
    for broker in ["b1", "b2", "b3", "b4"] {
        rig.world.brokers.get_mut(&id(broker)).unwrap().link_bytes_per_second = 80_000_000;
    }
    rig.see();
    rig.open("b3");
    rig.open("b4");
    rig.round();
    rig.at += Duration::from_millis(250);
    let stuck = CopyProgress {
        shard: shard(0).to_string(),
        generation: 3,
        state: "running".to_owned(),
        bytes_remaining: 1_000_000_000,
        credit_left: 50_000_000,
        ..CopyProgress::default()
    };
    rig.tell(Event::Progress { broker: id("b3"), session: 0, progress: stuck });
    let lines = rig.round();
    assert!(
        lines.contains(&"0 <- grant stream/d/s/0 g3 262144 for 500 ms".to_owned()),
        "{lines:?}"
    );
    assert_eq!(rig.states()[0], "stream/d/s/0 running the copy itself");
    assert_eq!(rig.states()[1], "stream/d/s/1 running egress b2");
}

#[test]
fn a_source_that_is_cut_far_below_another_is_left() {
    let mut rig = Rig::new(SLOTS);
    rig.stage(0, "b3", MoveReason::Drain);
    rig.second_follower(0, "b4");
    rig.see();
    rig.open("b3");
    rig.open("b2");
    rig.round();
    assert_eq!(rig.copies()[0].source.as_deref(), Some("b2"));
    let mut orders = Vec::new();
    for _ in 0..44 {
        let status = NodeStatus { share: 0.05, state: "floor".to_owned(), ..NodeStatus::default() };
        rig.tell(Event::Status { broker: id("b2"), session: 1, status });
        orders.extend(rig.round().into_iter().filter(|line| line.contains("order")));
    }
    assert_eq!(orders, ["0 <- order stream/d/s/0 g3 drain from b4 at h4:1 token 66"]);
}
