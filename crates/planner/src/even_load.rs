//! Evening out load all at once: the whole set of replica moves that brings every broker within a
//! tolerance of the mean. An offline question; the running planner moves one shard at a time.

mod board;
mod carry_out;
mod exchange;
mod fill;
mod loads;
mod shed;
mod trim;

use std::collections::BTreeSet;

use evenkeel_model::{BrokerId, Role, ShardKey, Snapshot};
use serde::Serialize;

pub use carry_out::apply_load_plan;

use board::{Board, Made};

use crate::world::{Ord32, World};

/// What the moves are to achieve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadAim {
    /// Every broker within the tolerance on both sides.
    BothSides,
    /// As few moves as can be: no broker above the tolerance, and those that were empty up to it.
    FewestMoves,
}

/// One replica's move.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadMove {
    /// The shard.
    pub shard: ShardKey,
    /// Where it was.
    pub from: BrokerId,
    /// Where it goes.
    pub to: BrokerId,
    /// Whether it leads or follows.
    pub role: Role,
    /// What it carries, bytes per second.
    pub load: f64,
}

/// The whole set of moves, to be done at once.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadPlan {
    /// In the order they were found.
    pub moves: Vec<LoadMove>,
    /// Sum of their loads.
    pub load_moved: f64,
    /// The most loaded broker over the mean, afterwards.
    pub max_over_mean: f64,
    /// The least loaded broker over the mean, afterwards.
    pub min_over_mean: f64,
}

/// Evens out the load of the active brokers to within `tolerance_percent` of their mean. A shard's
/// load is its row's `bytes_per_second`, and each of its replicas carries it. No zone, cap or region
/// is given up for it, nothing goes to a broker whose disk is full, and no shard is touched that
/// moves already; where shards are too large for the tolerance it comes as close as it can.
pub fn even_load(snapshot: &Snapshot, tolerance_percent: f64, aim: LoadAim) -> LoadPlan {
    let world = World::new(snapshot, &snapshot.policy);
    let board = Board::new(&world, (tolerance_percent / 100.0).max(0.0));
    let empty: BTreeSet<Ord32> = board.active().filter(|b| board.is_empty(*b)).collect();
    let needy = match aim {
        LoadAim::BothSides => board.active().collect(),
        LoadAim::FewestMoves => empty.clone(),
    };
    let mut evening = Evening { board, aim, needy, empty };
    // An exchange can make room for what did not fit before.
    loop {
        evening.shed();
        evening.fill();
        if evening.is_done() || !evening.exchange() {
            break;
        }
    }
    evening.trim();
    evening.plan()
}

/// The moves found so far, and what is still to be reached.
struct Evening<'w> {
    board: Board<'w>,
    aim: LoadAim,
    /// Brokers that must not end below the tolerance.
    needy: BTreeSet<Ord32>,
    /// Brokers that carried nothing at first.
    empty: BTreeSet<Ord32>,
}

impl Evening<'_> {
    fn is_done(&self) -> bool {
        let board = &self.board;
        let high = board.highest().is_some_and(|b| board.is_over(b));
        !high && !self.needy.iter().any(|b| board.is_under(*b))
    }

    /// What the needy lack in all.
    fn lack(&self) -> f64 {
        self.needy.iter().map(|b| self.board.lack(*b)).sum()
    }

    fn plan(self) -> LoadPlan {
        let board = &self.board;
        let id = |b: Ord32| board.world.brokers[b as usize].id.clone();
        let name = |number| {
            let Made { piece, from, to, .. } = board.made(number);
            let replica = board.replica(piece);
            LoadMove {
                shard: board.world.key(replica.shard),
                from: id(from),
                to: id(to),
                role: if replica.leads { Role::Leader } else { Role::Follower },
                load: replica.size,
            }
        };
        let moves: Vec<LoadMove> = board.moves().map(name).collect();
        let over_mean = |broker: Option<Ord32>| match broker {
            Some(b) if board.mean > 0.0 => board.load(b) / board.mean,
            _ => 1.0,
        };
        LoadPlan {
            // A sum of nothing would be minus 0.
            load_moved: moves.iter().fold(0.0, |sum, m| sum + m.load),
            max_over_mean: over_mean(board.highest()),
            min_over_mean: over_mean(board.lowest()),
            moves,
        }
    }
}
