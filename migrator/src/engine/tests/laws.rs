//! What holds in whole rounds whatever the cluster and its agents do.

use proptest::prelude::*;

use super::*;

const COPIES: u32 = 8;

/// Something that happens between two rounds.
#[derive(Debug, Clone)]
enum Happening {
    Wait(u64),
    Status { broker: usize, share: f64, state: usize, p99_ms: Option<f64> },
    Progress { shard: u32, state: usize, verified: u64, remaining: u64, credit_left: u64 },
    Reopen(usize),
    Close(usize),
    Cap { broker: usize, cap: Option<u64> },
    Lose(usize),
    Return(usize),
    End(u32),
    Ask { shard: u32, reason: usize, to: usize, size: Option<u64> },
}

const STATES: [&str; 4] = ["running", "waiting_credit", "level", "failed"];
const REASONS: [MoveReason; 4] =
    [MoveReason::Restore, MoveReason::Drain, MoveReason::Spread, MoveReason::Load];

fn happening() -> impl Strategy<Value = Happening> {
    let broker = || 1usize..=4;
    prop_oneof![
        (0u64..3000).prop_map(Happening::Wait),
        (broker(), -0.1f64..2.0, 0usize..6, prop::option::of(0.0f64..500.0)).prop_map(
            |(broker, share, state, p99_ms)| Happening::Status { broker, share, state, p99_ms }
        ),
        (0..COPIES, 0usize..4, 0u64..1 << 24, 0u64..1 << 26, 0u64..1 << 22).prop_map(
            |(shard, state, verified, remaining, credit_left)| {
                Happening::Progress { shard, state, verified, remaining, credit_left }
            }
        ),
        broker().prop_map(Happening::Reopen),
        broker().prop_map(Happening::Close),
        (broker(), prop::option::of(0u64..3_000_000))
            .prop_map(|(broker, cap)| Happening::Cap { broker, cap }),
        broker().prop_map(Happening::Lose),
        broker().prop_map(Happening::Return),
        (0..COPIES).prop_map(Happening::End),
        (0..COPIES, 0usize..4, 2usize..=4, prop::option::of(0u64..1 << 26))
            .prop_map(|(shard, reason, to, size)| Happening::Ask { shard, reason, to, size }),
    ]
}

fn name(broker: usize) -> String {
    format!("b{broker}")
}

impl Rig {
    fn happen(&mut self, sessions: &mut BTreeMap<usize, u64>, happening: Happening) {
        match happening {
            Happening::Wait(ms) => self.at += Duration::from_millis(ms),
            Happening::Status { broker, share, state, p99_ms } => {
                let state = evenkeel_throttle::State::ALL[state].as_str().to_owned();
                let status = NodeStatus { share, state, p99_ms, ..NodeStatus::default() };
                let session = sessions.get(&broker).copied().unwrap_or(9999);
                self.tell(Event::Status { broker: id(&name(broker)), session, status });
            }
            Happening::Progress { shard: number, state, verified, remaining, credit_left } => {
                let Some(to) = self
                    .copies()
                    .iter()
                    .find(|c| c.shard == shard(number).to_string())
                    .map(|c| c.destination.clone())
                else {
                    return;
                };
                let at = to.trim_start_matches('b').parse::<usize>().unwrap();
                let progress = CopyProgress {
                    shard: shard(number).to_string(),
                    generation: 3,
                    state: STATES[state].to_owned(),
                    bytes_verified: verified,
                    bytes_remaining: remaining,
                    credit_left,
                    ..CopyProgress::default()
                };
                let session = sessions.get(&at).copied().unwrap_or(9999);
                self.tell(Event::Progress { broker: id(&to), session, progress });
            }
            Happening::Reopen(broker) => {
                sessions.insert(broker, self.sessions);
                self.open(&name(broker));
            }
            Happening::Close(broker) => {
                if let Some(session) = sessions.remove(&broker) {
                    self.tell(Event::Closed { broker: id(&name(broker)), session });
                }
            }
            Happening::Cap { broker, cap } => {
                let broker = id(&name(broker));
                self.world.limits.remove(&broker);
                self.world.limits.extend(cap.map(|cap| (broker, cap)));
                self.see();
            }
            Happening::Lose(broker) => self.set_address(broker, None),
            Happening::Return(broker) => self.set_address(broker, Some(format!("h{broker}:1"))),
            Happening::End(number) => {
                self.world.moving.remove(&shard(number));
                self.see();
            }
            Happening::Ask { shard: number, reason, to, size } => {
                match REASONS[reason] {
                    MoveReason::Restore => self.restore(number, &["b2", "b3"], &name(to)),
                    reason => self.stage(number, &name(to), reason),
                }
                self.world.sizes.remove(&shard(number));
                self.world.sizes.extend(size.map(|size| (shard(number), size)));
                self.see();
            }
        }
    }

    fn set_address(&mut self, broker: usize, address: Option<String>) {
        self.world.brokers.get_mut(&id(&name(broker))).unwrap().address = address;
        self.see();
    }
}

/// What a round granted: source, destination, class and bytes of each copy.
fn grants(rig: &mut Rig) -> Vec<(String, String, String, u64, bool)> {
    let wall_ms = 1_000_000 + rig.at.as_millis() as i64;
    let actions = rig.engine.on_event(Now { at: rig.at, wall_ms }, Event::Round);
    let copies = rig.copies();
    let granted = actions.into_iter().filter_map(|action| match action {
        Action::Send { message: Message::Grant(grant), .. } => Some(grant),
        _ => None,
    });
    granted
        .map(|grant| {
            assert_eq!(grant.expires_in_ms, 500, "two rounds, and no longer");
            let copy = copies.iter().find(|copy| copy.shard == grant.shard).unwrap();
            let source = copy.source.clone().unwrap();
            let (to, class) = (copy.destination.clone(), copy.class.clone());
            (source, to, class, grant.bytes, copy.reserved)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn nothing_exceeds_its_rate_its_slots_or_its_rank(
        happenings in prop::collection::vec(prop::collection::vec(happening(), 0..6), 1..60),
        cluster in 0usize..6,
        per_node in 0usize..3,
    ) {
        let slots = Slots { cluster, per_node };
        let mut rig = Rig::new(slots);
        rig.see();
        let mut sessions = BTreeMap::new();
        // Seconds that what was granted takes at the rates of its rounds, by node and direction.
        let mut busy: BTreeMap<(String, bool), f64> = BTreeMap::new();
        for between in happenings {
            for happening in between {
                rig.happen(&mut sessions, happening);
            }
            rig.at += Duration::from_millis(250);
            let granted = grants(&mut rig);
            let limits: BTreeMap<String, u64> = rig
                .engine
                .limits(rig.at)
                .into_iter()
                .map(|limit| (limit.broker, limit.effective_bytes_per_second))
                .collect();
            for (source, to, _, bytes, _) in &granted {
                for end in [(source.clone(), true), (to.clone(), false)] {
                    let rate = limits[&end.0];
                    prop_assert!(rate > 0, "{end:?} may take nothing");
                    *busy.entry(end).or_insert(0.0) += *bytes as f64 / rate as f64;
                }
            }
            let most = rig.at.as_secs_f64() + 0.25 + 0.05 + 1e-6;
            prop_assert!(busy.values().all(|s| *s <= most), "{busy:?} of {most} s");

            let copies = rig.copies();
            let running = copies.iter().filter(|copy| copy.state == "running");
            let (reserved, plain): (Vec<_>, Vec<_>) = running.partition(|copy| copy.reserved);
            prop_assert!(plain.len() <= cluster);
            prop_assert!(plain.len() + reserved.len() <= cluster + slots.reserved());

            // No balance copy has a byte at an end where a repair runs.
            let repairs: Vec<_> = copies
                .iter()
                .filter(|c| c.state == "running" && c.class.parse_class().is_repair())
                .collect();
            for (source, to, class, _, _) in granted.iter().filter(|g| g.2 == "balance") {
                let shared = repairs.iter().any(|repair| {
                    let ends = [repair.source.clone().unwrap(), repair.destination.clone()];
                    ends.contains(source) || ends.contains(to)
                });
                prop_assert!(!shared, "{class} from {source} to {to} beside {repairs:?}");
            }
            // An end that a repair found empty has nothing for lower classes but what is set aside.
            for repair in &repairs {
                for (out, end) in [(true, repair.source.clone().unwrap()), (false, repair.destination.clone())] {
                    let word = if out { "egress" } else { "ingress" };
                    if repair.limited_by != format!("{word} {end}") {
                        continue;
                    }
                    let lower = granted.iter().filter(|g| {
                        !g.2.parse_class().is_repair() && end == if out { g.0.clone() } else { g.1.clone() }
                    });
                    let (aside, others): (Vec<_>, Vec<_>) = lower.partition(|g| g.4);
                    prop_assert!(others.is_empty(), "{others:?} beside {repair:?}");
                    let aside: u64 = aside.iter().map(|g| g.3).sum();
                    prop_assert!(aside <= limits[&end] / 40 + 1, "{aside} of {}", limits[&end]);
                }
            }
        }
    }
}

/// A class by its word.
trait ParseClass {
    fn parse_class(&self) -> evenkeel_model::CopyClass;
}

impl ParseClass for String {
    fn parse_class(&self) -> evenkeel_model::CopyClass {
        self.parse().unwrap()
    }
}
