//! Moves for balance may not undo each other: each lowers the sum of the squares of its stream's
//! leaders, or leaves it and lowers that of the totals. Squares are of what a broker leads beyond its
//! part, which with equal parts comes to the same.

use std::collections::BTreeMap;

use evenkeel_model::{Assignment, BrokerId, MoveReason, ShardKey, StreamKey};

use super::cluster::Cluster;
use super::{Change, Findings};

pub(super) fn check(cluster: &Cluster<'_>, writes: &[Change<'_>], found: &mut Findings) {
    let moves: Vec<&Change<'_>> = writes.iter().filter(|c| c.balances()).collect();
    let Some(first) = moves.first() else { return };
    let written: BTreeMap<&ShardKey, &Change<'_>> =
        writes.iter().map(|change| (change.shard(), change)).collect();
    let mut rest = moves.as_slice();
    while let Some(one) = rest.first() {
        let stream = &one.shard().stream;
        let (of_stream, others) =
            rest.split_at(rest.partition_point(|c| c.shard().stream == *stream));
        rest = others;
        check_stream(cluster, &written, stream, of_stream, found);
    }
    let by_load = moves.iter().filter(|c| c.is_for(MoveReason::Load)).count();
    if by_load > 1 {
        found.say(first.shard(), format!("{by_load} load moves would start at once"));
    }
    if moves.iter().any(|c| c.is_for(MoveReason::TotalBalance)) {
        check_totals(cluster, &written, &moves, found);
    }
}

/// Which moves must have lowered a sum.
#[derive(Clone, Copy)]
enum Judged {
    All,
    /// Moves for a stream come first, and may make the totals less even.
    OfTotals,
}

/// Leaders of some brokers beyond their part, before and after the moves for balance.
#[derive(Default)]
struct Counts<'a> {
    led: BTreeMap<&'a BrokerId, (i64, i64)>,
}

impl<'a> Counts<'a> {
    /// Of the brokers between which `moves` go.
    fn of(moves: &[&Change<'a>]) -> Self {
        let ends = moves.iter().flat_map(|c| c.write.from.iter().chain(&c.write.to));
        Self { led: ends.map(|b| (b, (0, 0))).collect() }
    }

    /// Counts a shard, before and after the moves that are judged.
    fn add(&mut self, a: &Assignment, written: Option<&&Change<'_>>, judged: Judged) {
        let after = written.map_or(a, |change| change.next());
        let moves = |change: &&&Change<'_>| match judged {
            Judged::All => change.balances(),
            Judged::OfTotals => change.balances() && change.is_for(MoveReason::TotalBalance),
        };
        let before = if written.filter(moves).is_some() { a } else { after };
        let mut count = |a: &Assignment, by: (i64, i64)| {
            if let Some(led) = a.eventual_leader().and_then(|b| self.led.get_mut(b)) {
                *led = (led.0 + by.0, led.1 + by.1);
            }
        };
        count(before, (1, 0));
        count(after, (0, 1));
    }

    /// Sums of squares before and after, with each broker's part of `shards`.
    fn potential(&self, cluster: &Cluster<'_>, of: Option<&StreamKey>, shards: u32) -> (f64, f64) {
        let eligible = cluster.eligible(of);
        let all: f64 = eligible.values().sum();
        let weighted = cluster.snapshot.policy.capacity_weighted && all > 0.0;
        let part = |b: &BrokerId| {
            let weight = eligible.get(b).copied().unwrap_or(0.0);
            let share = if weighted { weight / all } else { 1.0 / eligible.len().max(1) as f64 };
            f64::from(shards) * share
        };
        self.led.iter().fold((0.0, 0.0), |sum, (b, (before, after))| {
            let square = |led: i64| (led as f64 - part(b)).powi(2);
            (sum.0 + square(*before), sum.1 + square(*after))
        })
    }
}

fn check_stream(
    cluster: &Cluster<'_>,
    written: &BTreeMap<&ShardKey, &Change<'_>>,
    stream: &StreamKey,
    moves: &[&Change<'_>],
    found: &mut Findings,
) {
    let mut counts = Counts::of(moves);
    let all = stream.shard(0)..=stream.shard(u32::MAX);
    for (shard, a) in cluster.snapshot.assignments.range(all.clone()) {
        counts.add(a, written.get(shard), Judged::All);
    }
    // What is placed in this very pass was there before balance looked.
    for (_, change) in written.range::<ShardKey, _>(all).filter(|(_, c)| c.old.is_none()) {
        counts.add(change.next(), None, Judged::All);
    }
    let shards = cluster.snapshot.streams.get(stream).map_or(0, |s| s.shards);
    let (before, after) = counts.potential(cluster, Some(stream), shards);
    let must_fall = moves.iter().any(|c| c.is_for(MoveReason::StreamBalance));
    for change in moves {
        if after > before + 1e-6 || (must_fall && after > before - 1e-6) {
            let what = format!("the stream's squares would go from {before:.3} to {after:.3}");
            found.say(change.shard(), what);
        }
    }
}

fn check_totals(
    cluster: &Cluster<'_>,
    written: &BTreeMap<&ShardKey, &Change<'_>>,
    moves: &[&Change<'_>],
    found: &mut Findings,
) {
    let mut counts = Counts::of(moves);
    for (shard, a) in &cluster.snapshot.assignments {
        counts.add(a, written.get(shard), Judged::OfTotals);
    }
    for change in written.values().filter(|c| c.old.is_none()) {
        counts.add(change.next(), None, Judged::All);
    }
    let shards = cluster.snapshot.streams.values().map(|s| s.shards).sum();
    let (before, after) = counts.potential(cluster, None, shards);
    for change in moves.iter().filter(|c| c.is_for(MoveReason::TotalBalance)) {
        if after > before - 1e-6 {
            let what = format!("the totals' squares would go from {before:.3} to {after:.3}");
            found.say(change.shard(), what);
        }
    }
}
