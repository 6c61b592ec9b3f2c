//! The kept planner holds what a snapshot built anew would, whatever was written or deleted.

use evenkeel_model::keys::Keys;
use evenkeel_model::{Lifecycle, Policy};
use serde_json::{Value, json};

use super::stock::{Stock, node, registration};
use crate::kept::Kept;
use crate::records::Records;
use crate::snapshot::{Circumstances, build};

/// SplitMix64: the same numbers everywhere.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n
    }

    /// One is a prefix of another, so that the order of keys is not that of brokers.
    fn broker(&mut self) -> &'static str {
        ["b1", "b1-x", "b2", "b3"][self.below(4) as usize]
    }

    fn shard(&mut self) -> String {
        format!("stream/d/s/{}", self.below(4))
    }
}

fn assignment(rng: &mut Rng, shard: &str) -> Value {
    let follower = Some(rng.broker()).filter(|_| rng.below(2) == 0);
    let joining = Some(rng.broker()).filter(|_| rng.below(2) == 0);
    let reason = ["restore", "drain", "load"][rng.below(3) as usize];
    json!({
        "v": 1, "shard": shard, "leader": rng.broker(), "followers": Vec::from_iter(follower),
        "generation": 1 + rng.below(3), "state": "assigning", "token": 3, "operation": "x",
        "written_at_ms": 4, "joining": joining,
        "move": joining.map(|_| json!({ "reason": reason, "started_at_ms": 41_000 })),
    })
}

fn report(rng: &mut Rng, broker: &str, shard: &str) -> Value {
    let phase = ["serving", "following", "halted"][rng.below(3) as usize];
    json!({
        "broker": broker, "shard": shard, "generation": 1 + rng.below(3), "phase": phase,
        "incarnation": rng.below(3), "halted": Some("damaged").filter(|_| phase == "halted"),
    })
}

/// What is stored under some key next.
fn change(rng: &mut Rng, stock: &mut Stock) {
    let (broker, shard) = (rng.broker(), rng.shard());
    let (key, value) = match rng.below(18) {
        0 => {
            let key = format!("/cluster/register/{broker}");
            (key, registration(broker, 1 + rng.below(2), rng.below(3) == 0))
        }
        1 | 2 => {
            let lifecycles =
                [Lifecycle::Live, Lifecycle::Draining, Lifecycle::Down, Lifecycle::Left];
            let node = node(broker, lifecycles[rng.below(4) as usize], 1 + rng.below(2));
            (format!("/cluster/nodes/{broker}"), serde_json::to_value(node).unwrap())
        }
        3 | 4 => {
            let rows = json!([{ "shard": shard, "bytes_per_second": rng.below(100) }]);
            let load =
                json!({ "reported_at_ms": 49_000, "incarnation": rng.below(3), "shards": rows });
            (format!("/cluster/load/{broker}"), load)
        }
        5 => {
            let shards = 1 + rng.below(4);
            let stream =
                json!({ "stream": "stream/d/s", "shards": shards, "replication_factor": 2 });
            ("/cluster/streams/stream/d/s".to_owned(), stream)
        }
        6 => (format!("/cluster/unassigned/{shard}"), json!({ "reason": "new" })),
        7 => {
            let key = format!("/cluster/rebalancing_history/00000004500{}-{shard}", rng.below(9));
            let entry = json!({
                "at_ms": 45_000, "shard": shard, "from": "b2", "to": "b1", "reason": "load",
                "outcome": "cut_over",
            });
            (key, entry)
        }
        8 => ("/cluster/policy".to_owned(), json!({ "moves_max_concurrent": rng.below(5) })),
        9 => (
            "/cluster/pause".to_owned(),
            json!({ "by": "x", "until_ms": 45_000 + rng.below(9000) }),
        ),
        10 | 11 => (format!("/cluster/reports/{broker}/{shard}"), report(rng, broker, &shard)),
        12 => {
            let copy = json!({
                "shard": shard, "generation": 1 + rng.below(3), "class": "under_replicated",
                "source": "b1", "destination": broker, "bytes_done": 5, "bytes_total": 9,
                "bytes_per_second": 1, "waits": rng.below(2) == 0, "at_ms": 49_000 + rng.below(2_000),
            });
            (format!("/cluster/copies/{shard}"), copy)
        }
        13 => {
            let scope = format!("class/{}", ["drain", "under_replicated"][rng.below(2) as usize]);
            let until = Some(50_000 + rng.below(1_000)).filter(|_| rng.below(2) == 0);
            let pause = json!({ "scope": scope, "by": "x", "at_ms": 42_000, "until_ms": until });
            (format!("/cluster/copy_pauses/{scope}"), pause)
        }
        14 => {
            let leader = json!({ "instance": "m", "address": "m:1", "elected_at_ms": 48_000 });
            ("/cluster/leader/migrator".to_owned(), leader)
        }
        _ => (format!("/cluster/shards/{shard}"), assignment(rng, &shard)),
    };
    match rng.below(10) {
        0 | 1 => stock.delete(&key),
        2 => stock.put_bytes(&key, b"what".to_vec()),
        _ => stock.put(&key, &value),
    }
}

#[test]
fn it_holds_what_a_snapshot_built_anew_would() {
    for seed in 0..200 {
        let mut rng = Rng(seed);
        let mut stock = Stock::default();
        let mut records = Records::new(Keys::default());
        let mut kept = Kept::default();
        for round in 0..80_i64 {
            for _ in 0..=rng.below(3) {
                change(&mut rng, &mut stock);
            }
            records.refresh(&stock);
            let at = Circumstances {
                now_ms: 50_000 + 10 * round,
                elected_at_ms: 40_000,
                configured: Policy::default(),
            };
            let expected = build(&stock.records(), &at);
            let planner = kept.look(&mut records, &at);
            assert_eq!(*planner.snapshot(), expected, "seed {seed}, round {round}");
            let plan = evenkeel_planner::plan(&expected);
            assert_eq!(planner.plan(), plan, "seed {seed}, round {round}");
        }
    }
}

#[test]
fn a_replaced_store_is_planned_from_alone() {
    let at = Circumstances { now_ms: 50_000, elected_at_ms: 40_000, configured: Policy::default() };
    let mut before = Stock::default();
    before.node(&node("b1", Lifecycle::Live, 1));
    before.put("/cluster/streams/stream/d/s", &json!({ "stream": "stream/d/s", "shards": 1 }));
    before.put("/cluster/shards/stream/d/s/0", &assignment(&mut Rng(1), "stream/d/s/0"));
    let mut after = Stock::default();
    after.node(&node("b1", Lifecycle::Live, 1));
    let mut records = Records::new(Keys::default());
    let mut kept = Kept::default();
    for stock in [&before, &after] {
        records.refresh(stock);
        assert_eq!(*kept.look(&mut records, &at).snapshot(), build(&stock.records(), &at));
    }
}
