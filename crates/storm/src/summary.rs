//! A run in figures.

use evenkeel_throttle::{HIGH, State};
use serde::Serialize;

use crate::measures::Second;
use crate::scenario::{Event, LawChoice, Settings, What};

/// A law that stays at its floor so long with latency over its target is out of capacity.
const OUT_OF_CAPACITY_S: usize = 60;

/// Seconds after a repair in which a second peak would be expected, and of what came before.
const AROUND_S: usize = 60;

/// Latency rises again when it rises by this from its least.
const RISE: f64 = 1.5;

/// What the series does not hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes {
    /// Each node's share, second by second; none while it is gone.
    pub(crate) shares: Vec<Vec<Option<f64>>>,
    /// Seconds in each state, of all nodes together.
    states: [u64; State::ALL.len()],
    /// How long each node has been at its floor, and the longest of all.
    floors: Vec<usize>,
    longest_floor: usize,
    pub(crate) copied: f64,
    /// The least that the repair could take, from the first event.
    pub(crate) bound_s: Option<f64>,
    pub(crate) balance_moves: (u64, u64),
    pub(crate) busiest: f64,
}

impl Notes {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { shares: vec![Vec::new(); nodes], floors: vec![0; nodes], ..Self::default() }
    }

    /// A node's law stands so; `spent` if its copies cannot take less and its requests are too slow.
    pub(crate) fn seen(&mut self, node: usize, share: f64, state: State, spent: bool) {
        self.shares[node].push(Some(share));
        if let Some(at) = State::ALL.iter().position(|s| *s == state) {
            self.states[at] += 1;
        }
        self.floors[node] = if spent { self.floors[node] + 1 } else { 0 };
        self.longest_floor = self.longest_floor.max(self.floors[node]);
    }
}

/// A run in figures. Seconds count from the first event, latencies are in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Until no shard is short of replicas; none if that did not happen, or nothing was lost.
    pub repair_s: Option<f64>,
    /// The least that a repair could take with every link at its largest share.
    pub bound_s: Option<f64>,
    /// Until no shard has a single replica left; none if none had, or if some still have.
    pub one_left_s: Option<f64>,
    /// Shards short of replicas, times seconds.
    pub short_shard_s: f64,
    /// Shards with one replica left, times seconds.
    pub one_left_shard_s: f64,
    /// Shards without any, times seconds.
    pub none_left_shard_s: f64,
    /// Mean of the cluster's p99 before the first event.
    pub p99_before_ms: f64,
    /// The worst second from the first event to the end of the repair, or of the run.
    pub p99_during_ms: f64,
    /// The worst second of the minute after the repair.
    pub p99_after_ms: Option<f64>,
    /// Part of the seconds up to the end of the repair with the p99 at most 1.2 times its target.
    pub within_target: f64,
    /// How often latency went over 1.2 times its target and came back.
    pub peaks: usize,
    /// Whether latency rose again, over its target, when the copies were done.
    pub second_peak: bool,
    /// Requests for each operation, over the run and in the worst second.
    pub retry_factor: f64,
    /// The worst second.
    pub retry_factor_worst: f64,
    /// Operations answered in time, of those begun; from the first event on.
    pub goodput: f64,
    /// The same in the worst ten seconds.
    pub goodput_worst: f64,
    /// Part of the requests that were refused at once.
    pub shed: f64,
    /// Bytes copied.
    pub copied_bytes: f64,
    /// Moves for evenness that the planner started, by counts.
    pub moves_by_counts: u64,
    /// Moves that latency started.
    pub moves_by_latency: u64,
    /// Until the last byte of maintenance; none if some is left.
    pub maintained_s: Option<f64>,
    /// Least share of a link.
    pub share_min: f64,
    /// Mean share while copies were needed, its first sixth left out.
    pub share_mean: f64,
    /// Its standard deviation over its mean, for each node, on average.
    pub share_variation: f64,
    /// Changes of its direction, for each node and hour, on average.
    pub reversals_per_hour: f64,
    /// Part of the time that laws stood in each state.
    pub states: Vec<(&'static str, f64)>,
    /// A node's law was at its floor for a minute with latency over its target.
    pub out_of_capacity: bool,
    /// Seconds from the last change of load until the p99 was at most 1.2 times its target.
    pub settled_s: Option<f64>,
    /// Least share after that change over the share it came to in the end.
    pub undershoot: Option<f64>,
    /// The most bytes that passed a node's end in a second, over what it allowed.
    pub busiest: f64,
}

impl Summary {
    pub(crate) fn of(
        series: &[Second],
        events: &[Event],
        settings: &Settings,
        notes: &Notes,
    ) -> Self {
        let high = settings.controls.target_ms * HIGH;
        let start = events.first().map_or(0, |e| (e.at_ms / 1000.0) as usize).min(series.len());
        let lost = events.iter().any(|e| matches!(e.what, What::Lose(_)));
        let whole = series.iter().rposition(|s| s.short > 0).map(|last| last + 1);
        let repaired = whole.filter(|end| *end < series.len() && lost);
        let end = repaired.unwrap_or(series.len());
        let (before, during) = (&series[..start], &series[start..end.max(start)]);
        let since = |second: usize| second.saturating_sub(start) as f64;
        let exposed = |of: fn(&Second) -> usize| series.iter().map(|s| of(s) as f64).sum::<f64>();
        let one_left = series.iter().rposition(|s| s.one_left > 0).map(|last| last + 1);
        let after = repaired.map(|end| &series[end..(end + AROUND_S).min(series.len())]);
        let busy = series.iter().rposition(|s| s.maintenance_backlog > 0.0).map(|last| last + 1);
        let measured = start + (end.saturating_sub(start)) / 6..end;
        let shares = Shares::of(notes, measured.start, measured.end);
        let (settled_s, undershoot) = step_of_load(series, events, high);
        let states: u64 = notes.states.iter().sum();
        Self {
            repair_s: repaired.map(since),
            bound_s: notes.bound_s,
            one_left_s: one_left.filter(|end| *end < series.len()).map(since),
            short_shard_s: exposed(|s| s.short),
            one_left_shard_s: exposed(|s| s.one_left),
            none_left_shard_s: exposed(|s| s.none_left),
            p99_before_ms: mean(before.iter().skip(before.len() / 2).map(|s| s.p99_ms)),
            p99_during_ms: during.iter().map(|s| s.p99_ms).fold(0.0, f64::max),
            p99_after_ms: after.map(|s| s.iter().map(|s| s.p99_ms).fold(0.0, f64::max)),
            within_target: part(during, |s| s.p99_ms <= high),
            peaks: peaks(&series[start..], high),
            second_peak: repaired.is_some_and(|end| rises_again(&series[end..], high)),
            retry_factor: ratio(&series[start..], |s| s.attempts, |s| s.operations),
            retry_factor_worst: series[start..]
                .iter()
                .map(|s| s.attempts / s.operations.max(1e-9))
                .fold(0.0, f64::max),
            goodput: ratio(&series[start..], |s| s.answered, |s| s.operations),
            goodput_worst: series[start..]
                .windows(10)
                .map(|w| ratio(w, |s| s.answered, |s| s.operations))
                .fold(1.0, f64::min),
            shed: ratio(&series[start..], |s| s.shed, |s| s.attempts),
            copied_bytes: notes.copied,
            moves_by_counts: notes.balance_moves.0,
            moves_by_latency: notes.balance_moves.1,
            maintained_s: busy.filter(|end| *end < series.len()).map(since),
            share_min: series.iter().map(|s| s.share_min).fold(1.0, f64::min),
            share_mean: shares.mean,
            share_variation: shares.variation,
            reversals_per_hour: shares.reversals_per_hour,
            states: State::ALL
                .iter()
                .filter(|_| settings.controls.law != LawChoice::Off)
                .zip(notes.states)
                .map(|(state, n)| (state.as_str(), n as f64 / states.max(1) as f64))
                .collect(),
            out_of_capacity: notes.longest_floor >= OUT_OF_CAPACITY_S,
            settled_s,
            undershoot,
            busiest: notes.busiest,
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0.0), |(sum, n), v| (sum + v, n + 1.0));
    if n > 0.0 { sum / n } else { 0.0 }
}

fn part(series: &[Second], is: impl Fn(&Second) -> bool) -> f64 {
    mean(series.iter().map(|s| f64::from(u8::from(is(s)))))
}

fn ratio(series: &[Second], a: fn(&Second) -> f64, b: fn(&Second) -> f64) -> f64 {
    let (a, b): (f64, f64) = (series.iter().map(a).sum(), series.iter().map(b).sum());
    if b > 0.0 { a / b } else { 0.0 }
}

/// Each counts from where latency is over the limit until it has been under it for ten seconds.
fn peaks(series: &[Second], high: f64) -> usize {
    let (mut peaks, mut calm) = (0, 10);
    for second in series {
        if second.p99_ms > high {
            peaks += usize::from(calm >= 10);
            calm = 0;
        } else {
            calm += 1;
        }
    }
    peaks
}

fn rises_again(series: &[Second], high: f64) -> bool {
    let mut least = f64::MAX;
    series.iter().any(|second| {
        least = least.min(second.p99_ms);
        second.p99_ms > high && second.p99_ms > RISE * least
    })
}

/// How long latency took to come back after the last change of load, and how far shares dived.
fn step_of_load(series: &[Second], events: &[Event], high: f64) -> (Option<f64>, Option<f64>) {
    let steps: Vec<&Event> = events.iter().filter(|e| matches!(e.what, What::Load(_))).collect();
    // Load that goes up and down all the time has no last step.
    let last = steps.last().filter(|_| steps.len() <= 2);
    let Some(at) = last.map(|e| (e.at_ms / 1000.0) as usize) else { return (None, None) };
    let after = series.get(at..).unwrap_or_default();
    if after.is_empty() {
        return (None, None);
    }
    // The first seconds still show the load before.
    let over = after.iter().position(|s| s.p99_ms > high);
    let back = match over {
        None => Some(0),
        Some(first) => after[first..].iter().position(|s| s.p99_ms <= high).map(|n| first + n),
    };
    let rest = mean(after.iter().skip(after.len() / 2).map(|s| s.share));
    let least = after.iter().map(|s| s.share).fold(1.0, f64::min);
    (back.map(|n| n as f64), Some(least / rest))
}

struct Shares {
    mean: f64,
    variation: f64,
    reversals_per_hour: f64,
}

impl Shares {
    fn of(notes: &Notes, start: usize, end: usize) -> Self {
        let mut all = Self { mean: 0.0, variation: 0.0, reversals_per_hour: 0.0 };
        let mut nodes = 0.0;
        for shares in &notes.shares {
            let span = shares.get(start..end.min(shares.len())).unwrap_or_default();
            let known: Vec<f64> = span.iter().flatten().copied().collect();
            if known.len() < 2 {
                continue;
            }
            let m = mean(known.iter().copied());
            let deviation = mean(known.iter().map(|s| (s - m) * (s - m))).sqrt();
            let turns = known.windows(2).map(|w| w[1] - w[0]).filter(|d| *d != 0.0);
            let signs: Vec<bool> = turns.map(|d| d > 0.0).collect();
            let reversals = signs.windows(2).filter(|w| w[0] != w[1]).count();
            all.mean += m;
            all.variation += deviation / m;
            all.reversals_per_hour += reversals as f64 * 3600.0 / known.len() as f64;
            nodes += 1.0;
        }
        let nodes = f64::max(nodes, 1.0);
        Self {
            mean: all.mean / nodes,
            variation: all.variation / nodes,
            reversals_per_hour: all.reversals_per_hour / nodes,
        }
    }
}
