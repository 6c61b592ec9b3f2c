//! First objective: of each stream, the broker leading most, if two or more ahead of another, hands
//! one to the broker leading fewest of it.

use evenkeel_model::MoveReason;

use crate::pass::Pass;
use crate::phases::rebalance::pick::{Asked, Hold, Pick, Picker, ROUNDS};
use crate::phases::rebalance::{Wish, begin, held};
use crate::world::{Ord32, Standing};

/// A difference in parts above which a move pays.
pub(crate) const WORTH: f64 = 1.0 + 1e-9;

pub(crate) fn run(pass: &mut Pass<'_>, asked: &mut Asked) -> Wish {
    let mut wish = Wish::Nothing;
    let mut first_held = None;
    for stream in 0..pass.world.facts.streams.len() as Ord32 {
        while is_uneven(pass, stream) {
            let (pick, now_held) = next_move(pass, asked, stream);
            let Some(pick) = pick else {
                first_held = first_held.or(now_held);
                break;
            };
            let detail = describe(pass, stream, pick);
            wish = begin(pass, pick, MoveReason::StreamBalance, detail);
            if wish == Wish::Held {
                return wish;
            }
        }
    }
    match held(pass, asked, first_held) {
        Wish::Nothing => wish,
        held => held,
    }
}

fn describe(pass: &Pass<'_>, stream: Ord32, pick: Pick) -> String {
    let from = pass.world.shard(pick.shard).leader;
    let led = |b| pass.tally.of_stream(stream, b);
    let name = |b| pass.world.name(b);
    let key = &pass.world.stream(stream).key;
    format!(
        "{} leads {} of {key} and {} leads {}",
        name(from),
        led(from),
        name(pick.to),
        led(pick.to)
    )
}

/// Whether somebody is far enough ahead, whatever can be done about it. Cheap for level streams.
fn is_uneven(pass: &Pass<'_>, stream: Ord32) -> bool {
    let world = &pass.world;
    let facts = world.stream(stream);
    let group = &world.groups[facts.group];
    let counts = |b: Ord32| {
        world.standing(b) == Standing::Target
            && (facts.group == 0 || group.targets.binary_search(&b).is_ok())
    };
    let row = pass.tally.stream_row(stream);
    let led = || row.iter().filter(|(b, _)| counts(*b));
    if world.policy.capacity_weighted {
        let rules = pass.rules();
        let highest = led().map(|(b, _)| rules.excess(stream, *b)).fold(f64::MIN, f64::max);
        // Nobody can lack more than the heaviest broker that leads nothing.
        let heaviest =
            group.targets.iter().map(|b| world.brokers[*b as usize].weight).fold(0.0, f64::max);
        let part = f64::from(facts.stream.shards) * heaviest / group.weight.max(f64::MIN_POSITIVE);
        return highest + part > WORTH;
    }
    let most = led().map(|(_, n)| *n).max().unwrap_or(0);
    let leading = led().count();
    let fewest =
        if leading < group.targets.len() { 0 } else { led().map(|(_, n)| *n).min().unwrap_or(0) };
    most >= fewest + 2
}

/// The next move of this stream: from the most to the fewest; where that pair can do nothing, the
/// next pair that is two apart. Any pair that can do it without a copy comes before one that needs
/// one.
fn next_move(
    pass: &Pass<'_>,
    asked: &mut Asked,
    stream: Ord32,
) -> (Option<Pick>, Option<(Ord32, Hold)>) {
    let world = &pass.world;
    let rules = pass.rules();
    let facts = world.stream(stream);
    let targets = &world.groups[facts.group].targets;
    let levels = Levels::new(targets.iter().map(|b| (*b, rules.excess(stream, *b))));
    let mut first_held = None;
    asked.catching_up.clear();
    for most in ROUNDS {
        for (sources, destinations) in levels.pairs() {
            let mut picker = Picker::new(asked, most);
            for shard in facts.shards() {
                if sources.contains(&world.shard(shard).leader) {
                    destinations.iter().for_each(|to| picker.consider(pass, shard, *to));
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

/// Brokers grouped by how far they are ahead.
pub(crate) struct Levels {
    /// Ascending; each with its brokers in order.
    levels: Vec<(f64, Vec<Ord32>)>,
}

impl Levels {
    pub(crate) fn new(brokers: impl Iterator<Item = (Ord32, f64)>) -> Self {
        let mut all: Vec<(Ord32, f64)> = brokers.collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        let mut levels: Vec<(f64, Vec<Ord32>)> = Vec::new();
        for (broker, excess) in all {
            match levels.last_mut() {
                Some((level, brokers)) if excess - *level < 1e-9 => brokers.push(broker),
                _ => levels.push((excess, vec![broker])),
            }
        }
        for (_, brokers) in &mut levels {
            brokers.sort_unstable();
        }
        Self { levels }
    }

    /// Pairs of levels between which a move pays: from the highest, to the lowest first.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&[Ord32], &[Ord32])> {
        self.levels.iter().rev().flat_map(move |(high, sources)| {
            let pays = move |(low, _): &&(f64, Vec<Ord32>)| high - low > WORTH;
            let lower = self.levels.iter().take_while(pays);
            lower.map(|(_, destinations)| (sources.as_slice(), destinations.as_slice()))
        })
    }
}
