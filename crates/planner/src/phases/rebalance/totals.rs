//! Second objective: the same rule on totals, with a shard of a stream that the destination leads
//! fewer of, so that no stream gets more uneven.

use evenkeel_model::MoveReason;

use crate::pass::Pass;
use crate::phases::rebalance::pick::{Asked, Hold, Pick, Picker, ROUNDS};
use crate::phases::rebalance::streams::{Levels, WORTH};
use crate::phases::rebalance::{Wish, begin, held};
use crate::world::{NONE, Ord32};

/// Shards by the broker that leads them.
pub(crate) struct Led {
    first: Vec<u32>,
    shards: Vec<Ord32>,
}

impl Led {
    pub(crate) fn new(pass: &Pass<'_>) -> Self {
        let world = &pass.world;
        let mut first = vec![0; world.brokers.len() + 1];
        let leaders = || world.facts.shards.iter().map(|s| s.leader).enumerate();
        for (_, leader) in leaders().filter(|(_, b)| *b != NONE) {
            first[leader as usize + 1] += 1;
        }
        for at in 1..first.len() {
            first[at] += first[at - 1];
        }
        let mut next = first.clone();
        let mut shards = vec![0; *first.last().unwrap_or(&0) as usize];
        for (shard, leader) in leaders().filter(|(_, b)| *b != NONE) {
            shards[next[leader as usize] as usize] = shard as Ord32;
            next[leader as usize] += 1;
        }
        Self { first, shards }
    }

    /// In key order.
    pub(crate) fn by(&self, broker: Ord32) -> &[Ord32] {
        let b = broker as usize;
        &self.shards[self.first[b] as usize..self.first[b + 1] as usize]
    }
}

pub(crate) fn run(pass: &mut Pass<'_>, asked: &mut Asked) -> Wish {
    let mut led = None;
    let mut wish = Wish::Nothing;
    while is_uneven(pass) {
        let led = led.get_or_insert_with(|| Led::new(pass));
        let (pick, first_held) = next_move(pass, asked, led);
        let Some(pick) = pick else {
            return match held(pass, asked, first_held) {
                Wish::Nothing => wish,
                held => held,
            };
        };
        let detail = describe(pass, pick);
        wish = begin(pass, pick, MoveReason::TotalBalance, detail);
        if wish == Wish::Held {
            return wish;
        }
    }
    wish
}

fn describe(pass: &Pass<'_>, pick: Pick) -> String {
    let from = pass.world.shard(pick.shard).leader;
    let led = |b: Ord32| pass.tally.leaders[b as usize];
    let name = |b| pass.world.name(b);
    format!(
        "{} leads {} in all and {} leads {}",
        name(from),
        led(from),
        name(pick.to),
        led(pick.to)
    )
}

fn excesses(pass: &Pass<'_>) -> Vec<(Ord32, f64)> {
    let rules = pass.rules();
    let group = &pass.world.groups[0];
    group.targets.iter().map(|b| (*b, rules.total_excess(group, *b))).collect()
}

fn is_uneven(pass: &Pass<'_>) -> bool {
    let all = excesses(pass);
    let highest = all.iter().map(|(_, e)| *e).fold(f64::MIN, f64::max);
    let lowest = all.iter().map(|(_, e)| *e).fold(f64::MAX, f64::min);
    highest - lowest > WORTH
}

fn next_move(
    pass: &Pass<'_>,
    asked: &mut Asked,
    led: &Led,
) -> (Option<Pick>, Option<(Ord32, Hold)>) {
    let levels = Levels::new(excesses(pass).into_iter());
    let mut first_held = None;
    asked.catching_up.clear();
    for most in ROUNDS {
        for (sources, destinations) in levels.pairs() {
            let mut picker = Picker::new(asked, most);
            for (from, to) in pairs(sources, destinations) {
                for &shard in led.by(from) {
                    if keeps_stream_even(pass, shard, from, to) {
                        picker.consider(pass, shard, to);
                    }
                }
            }
            first_held = first_held.or(picker.held);
            if let Some(pick) = picker.pick(pass) {
                return (Some(pick), first_held);
            }
        }
    }
    (None, first_held)
}

fn pairs<'p>(
    sources: &'p [Ord32],
    destinations: &'p [Ord32],
) -> impl Iterator<Item = (Ord32, Ord32)> + 'p {
    sources.iter().flat_map(|from| destinations.iter().map(|to| (*from, *to)))
}

/// Whether the move leaves the sum of the stream's squares as it is, or lowers it.
pub(crate) fn keeps_stream_even(pass: &Pass<'_>, shard: Ord32, from: Ord32, to: Ord32) -> bool {
    let world = &pass.world;
    let stream = world.shard(shard).stream;
    let facts = world.stream(stream);
    let allowed = facts.group == 0 || world.groups[facts.group].targets.binary_search(&to).is_ok();
    if !allowed {
        return false;
    }
    if !world.policy.capacity_weighted {
        return pass.tally.of_stream(stream, to) < pass.tally.of_stream(stream, from);
    }
    let rules = pass.rules();
    rules.excess(stream, to) + 1.0 <= rules.excess(stream, from) + 1e-9
}
