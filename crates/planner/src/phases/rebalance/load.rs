//! Third objective, off by default, in place of the totals: when the scores vary too much, one
//! shard goes from an overloaded broker to the least loaded one, gently and not too often.

use std::collections::BTreeMap;

use evenkeel_model::{Millis, MoveReason, ShardLoad};

use crate::decision::WaitingOn;
use crate::moves::{Way, fits_brokers};
use crate::pass::Pass;
use crate::phases::rebalance::begin;
use crate::phases::rebalance::filters::Field;
use crate::phases::rebalance::pick::{Asked, Pick, way_if_allowed};
use crate::phases::rebalance::totals::{Led, keeps_stream_even};
use crate::scores::{fresh, topic_load};
use crate::world::Ord32;

const HOUR_MS: Millis = 3_600_000;

pub(crate) fn run(pass: &mut Pass<'_>, asked: &mut Asked) {
    let Some(field) = Field::new(pass).filter(|f| f.is_uneven(&pass.world)) else { return };
    let Some(pick) = lightest(pass, asked, &field) else { return };
    let detail = format!(
        "scores vary by {:.1} % and the threshold is {} %",
        field.spread.cv_percent(),
        pass.world.policy.rebalancing.cv_threshold()
    );
    if let Some(why) = too_soon(pass) {
        return pass.wait(pick.shard, WaitingOn::Cooldown, why);
    }
    begin(pass, pick, MoveReason::Load, detail);
}

/// Why no load move may start now.
fn too_soon(pass: &Pass<'_>) -> Option<String> {
    let world = &pass.world;
    let policy = &world.policy.rebalancing;
    // What a move does to its two ends is known when it has ended and they have reported.
    let under_way = |shard: &&Ord32| {
        let record = world.assignment(**shard).and_then(|a| a.move_.as_ref());
        record.is_some_and(|m| m.reason == MoveReason::Load)
    };
    if let Some(shard) = pass.lists.moving.iter().find(under_way) {
        return Some(format!("the load move of {} is under way", world.key(*shard)));
    }
    let age = |at: &Millis| world.now.saturating_sub(*at);
    let ended = world.snapshot.history.iter().filter(|h| h.reason == MoveReason::Load);
    let times: Vec<Millis> = ended.map(|h| h.at_ms).collect();
    let interval = policy.check_interval_ms();
    if let Some(last) = times.iter().map(age).min().filter(|age| *age < interval) {
        return Some(format!(
            "the last load move was {last} ms ago and the interval is {interval} ms"
        ));
    }
    let recent = times.iter().filter(|at| age(at) <= HOUR_MS).count();
    let limit = policy.moves_per_hour();
    (recent >= limit as usize)
        .then(|| format!("{recent} load moves in the last hour and the limit is {limit}"))
}

/// The lightest shard that may go from the most loaded broker to the least loaded one.
fn lightest(pass: &Pass<'_>, asked: &mut Asked, field: &Field) -> Option<Pick> {
    let score = |b: Ord32| pass.scores.score(b, &pass.tally);
    let led = Led::new(pass);
    for &from in &field.sources {
        let candidates = candidates(pass, field, &led, from);
        for &to in field.known.iter().filter(|b| score(**b) < score(from)) {
            let best = candidates
                .iter()
                .filter(|c| keeps_stream_even(pass, c.shard, from, to))
                .filter(|c| c.takes > 0.0 && c.takes < score(from) - score(to))
                .filter_map(|c| way_if_allowed(pass, c.shard, to).map(|way| (c, way)))
                .filter(|(_, way)| *way != Way::Copy || asked.no_copy.is_none())
                .filter(|(c, way)| *way != Way::Copy || !asked.given_up.contains(&(c.shard, to)))
                .filter(|(c, way)| fits_brokers(pass, c.shard, to, *way))
                .min_by(|(a, x), (b, y)| {
                    x.cmp(y)
                        .then(a.load.total_cmp(&b.load))
                        .then(asked.moved.rank(pass, a.shard).cmp(&asked.moved.rank(pass, b.shard)))
                        .then(a.shard.cmp(&b.shard))
                });
            if let Some((candidate, _)) = best {
                return Some(Pick { shard: candidate.shard, to });
            }
        }
    }
    None
}

struct Candidate {
    shard: Ord32,
    load: f64,
    takes: f64,
}

/// The source's shards after the filters on age, blacklist and cooldown.
fn candidates(pass: &Pass<'_>, field: &Field, led: &Led, from: Ord32) -> Vec<Candidate> {
    let world = &pass.world;
    let report = world.brokers[from as usize].view.and_then(|v| fresh(world, v));
    let rows: BTreeMap<Ord32, &ShardLoad> = report
        .into_iter()
        .flat_map(|r| &r.shards)
        .filter_map(|row| world.shard_named(&row.shard).map(|s| (s, row)))
        .collect();
    let legal = led.by(from).iter().copied().filter(|s| field.left_alone(world, *s).is_none());
    legal
        .map(|shard| {
            let row = rows.get(&shard).copied();
            Candidate {
                shard,
                load: row.map_or(0.2, topic_load),
                takes: pass.scores.takes(from, row, &pass.tally),
            }
        })
        .collect()
}
