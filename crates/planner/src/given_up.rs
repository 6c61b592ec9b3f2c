//! Where copies of a shard were given up, by the history of moves.

use evenkeel_model::{Millis, MoveOutcome};

use crate::world::{Ord32, World};

/// For so long after a copy was given up its destination comes after the others.
const AVOIDED_MS: Millis = 600_000;

/// Brokers to which a copy of the shard was given up lately.
pub(crate) fn given_up_lately(world: &World<'_>, shard: Ord32) -> Vec<Ord32> {
    let history = world.snapshot.history.iter().rev();
    let recent = history.take_while(|h| world.now.saturating_sub(h.at_ms) <= AVOIDED_MS);
    let mut given_up = recent.filter(|h| h.outcome == MoveOutcome::GivenUp).peekable();
    if given_up.peek().is_none() {
        return Vec::new();
    }
    let key = world.key(shard);
    let of_shard = given_up.filter(|h| h.shard == key);
    of_shard.filter_map(|h| world.broker_named(h.to.as_ref()?)).collect()
}
