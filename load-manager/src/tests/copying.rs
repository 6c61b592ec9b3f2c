//! What a pause of a copy, its turn and the migrator's absence mean for the clocks of its move.

use evenkeel_model::{Lifecycle, Millis, Policy};
use evenkeel_planner::{Decision, Step};
use serde_json::{Value, json};

use super::stock::{Stock, node, registration};
use crate::snapshot::{Circumstances, build};

const SHARD: &str = "stream/d/s/0";

/// `b2` is lost, and `b3` is copied in its place since 100 000.
fn restoring() -> Stock {
    let mut stock = Stock::default();
    for (broker, lifecycle) in
        [("b1", Lifecycle::Live), ("b2", Lifecycle::Down), ("b3", Lifecycle::Live)]
    {
        stock.node(&node(broker, lifecycle, 1));
        if lifecycle == Lifecycle::Live {
            stock.put(&format!("/cluster/register/{broker}"), &registration(broker, 1, false));
        }
    }
    let stream = json!({ "stream": "stream/d/s", "shards": 1, "replication_factor": 2 });
    stock.put("/cluster/streams/stream/d/s", &stream);
    let assignment = json!({
        "v": 1, "shard": SHARD, "leader": "b1", "followers": ["b2"], "joining": "b3",
        "leaving": "b2", "generation": 4, "state": "active", "token": 3, "operation": "x",
        "written_at_ms": 4, "move": { "reason": "restore", "started_at_ms": 100_000 },
    });
    stock.put(&format!("/cluster/shards/{SHARD}"), &assignment);
    migrator(&mut stock, 50_000);
    stock
}

fn migrator(stock: &mut Stock, elected_at_ms: Millis) {
    let leader = json!({ "instance": "m1", "address": "m:1", "elected_at_ms": elected_at_ms });
    stock.put("/cluster/leader/migrator", &leader);
}

fn copy(stock: &mut Stock, at_ms: Millis, waits: bool) {
    let copy = json!({
        "shard": SHARD, "generation": 4, "class": "unavailable", "source": "b1",
        "destination": "b3", "bytes_done": 5, "bytes_total": 9, "bytes_per_second": 1,
        "waits": waits, "at_ms": at_ms,
    });
    stock.put(&format!("/cluster/copies/{SHARD}"), &copy);
}

fn pause(stock: &mut Stock, until_ms: Option<Millis>) {
    let pause: Value = json!({
        "scope": "class/unavailable", "by": "ann", "reason": "rack work",
        "at_ms": 110_000, "until_ms": until_ms,
    });
    stock.put("/cluster/copy_pauses/class/unavailable", &pause);
}

/// The step that the plan of this moment makes of the shard, if any.
fn step(stock: &Stock, now_ms: Millis) -> Option<Step> {
    let at = Circumstances { now_ms, elected_at_ms: 40_000, configured: Policy::default() };
    let plan = evenkeel_planner::plan(&build(&stock.records(), &at));
    plan.decisions.into_iter().find_map(|d| match d.decision {
        Decision::Write(write) => Some(write.step),
        _ => None,
    })
}

const STALL: Millis = 120_000;
const TIMEOUT: Millis = 1_800_000;

#[test]
fn a_restore_is_stalled_when_its_copy_stood_still_not_when_it_is_long() {
    let mut stock = restoring();
    assert_eq!(step(&stock, 100_000 + STALL), None);
    assert_eq!(step(&stock, 100_001 + STALL), Some(Step::Stalled));
    copy(&mut stock, 900_000, false);
    assert_eq!(step(&stock, 900_000 + STALL), None, "it got on at 900 s");
    assert_eq!(step(&stock, 900_001 + STALL), Some(Step::Stalled));
}

#[test]
fn a_copy_that_waits_its_turn_or_for_a_migrator_does_not_stand_still() {
    let mut stock = restoring();
    copy(&mut stock, 110_000, true);
    assert_eq!(step(&stock, 1_000_000), None);
    // The migrator's records go with it; the next one has its time to begin.
    stock.delete(&format!("/cluster/copies/{SHARD}"));
    stock.delete("/cluster/leader/migrator");
    assert_eq!(step(&stock, 1_000_000), None);
    migrator(&mut stock, 1_000_000);
    assert_eq!(step(&stock, 1_000_000 + STALL), None);
    assert_eq!(step(&stock, 1_000_001 + STALL), Some(Step::Stalled));
}

#[test]
fn no_move_is_given_up_while_its_copy_is_paused_and_its_time_counts_from_the_end_of_the_pause() {
    let mut stock = restoring();
    copy(&mut stock, 105_000, false);
    pause(&mut stock, None);
    assert_eq!(step(&stock, 100_000 + 10 * TIMEOUT), None);
    let end = 100_000 + 2 * TIMEOUT;
    pause(&mut stock, Some(end));
    assert_eq!(step(&stock, end + STALL), None);
    assert_eq!(step(&stock, end + STALL + 1), Some(Step::Stalled));
    copy(&mut stock, end + TIMEOUT, false);
    assert_eq!(step(&stock, end + TIMEOUT), None);
    assert_eq!(step(&stock, end + TIMEOUT + 1), Some(Step::TimedOut));
    // A pause of another class is none of its business.
    stock.delete("/cluster/copy_pauses/class/unavailable");
    assert_eq!(step(&stock, end + STALL), Some(Step::TimedOut));
}
