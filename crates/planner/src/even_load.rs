//! Evening out load all at once: the whole set of replica moves that brings every broker within a
//! tolerance of the mean. An offline question; the running planner moves one shard at a time.

mod board;

use evenkeel_model::{BrokerId, Role, ShardKey, Snapshot};
use serde::Serialize;

use board::{Board, Replica};

use crate::world::{Ord32, World};

/// What the moves are to achieve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadAim {
    /// Every broker within the tolerance on both sides, moving as little load as can be.
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

/// The whole set of moves.
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
    /// The snapshot with the moves done.
    pub snapshot: Snapshot,
}

/// Evens out the load of the active brokers to within `tolerance_percent` of their mean. A shard's
/// load is its row's `bytes_per_second`, and each of its replicas carries it. No zone, cap or region
/// is given up for it; where shards are too large for the tolerance it comes as close as it can.
pub fn even_load(snapshot: &Snapshot, tolerance_percent: f64, aim: LoadAim) -> LoadPlan {
    let world = World::new(snapshot, &snapshot.policy);
    let mut board = Board::new(&world);
    let tolerance = (tolerance_percent / 100.0).max(0.0);
    let mut evening = Evening {
        high: board.mean * (1.0 + tolerance),
        low: board.mean * (1.0 - tolerance),
        slack: board.mean * 1e-9,
        moves: Vec::new(),
    };
    match aim {
        LoadAim::BothSides => evening.both_sides(&mut board),
        LoadAim::FewestMoves => evening.fewest(&mut board),
    }
    let moves: Vec<LoadMove> = evening.moves.iter().map(|m| m.name(&world, &board)).collect();
    let over_mean = |load: f64| if board.mean > 0.0 { load / board.mean } else { 1.0 };
    LoadPlan {
        load_moved: moves.iter().map(|m| m.load).sum(),
        max_over_mean: over_mean(board.highest_load()),
        min_over_mean: over_mean(board.lowest_load()),
        snapshot: after(snapshot, &moves),
        moves,
    }
}

#[derive(Clone, Copy)]
struct Made {
    replica: Replica,
    from: Ord32,
    to: Ord32,
}

impl Made {
    fn name(&self, world: &World<'_>, board: &Board<'_>) -> LoadMove {
        let id = |b: Ord32| world.brokers[b as usize].id.clone();
        LoadMove {
            shard: world.key(self.replica.shard),
            from: id(self.from),
            to: id(self.to),
            role: if self.replica.leads { Role::Leader } else { Role::Follower },
            load: board.load_of(self.replica.shard),
        }
    }
}

/// Sources compared for one move; more would cost time and save little.
const SOURCES: usize = 32;

struct Evening {
    high: f64,
    low: f64,
    slack: f64,
    moves: Vec<Made>,
}

impl Evening {
    fn both_sides(&mut self, board: &mut Board<'_>) {
        for _ in 0..board.most_moves() {
            let Some((highest, lowest)) = board.ends() else { return };
            let over = board.load[highest as usize] > self.high + self.slack;
            let under = board.load[lowest as usize] < self.low - self.slack;
            let moved = (over && self.shed(board, LoadAim::BothSides))
                || (under && self.fill(board, lowest))
                || ((over || under) && self.exchange(board));
            if !moved {
                return;
            }
        }
    }

    /// Takes from a broker that is too high, to the lowest broker that may have it: the smallest
    /// replica that is enough, or the largest; for fewest moves the largest that leaves the broker
    /// within the tolerance.
    fn shed(&mut self, board: &mut Board<'_>, aim: LoadAim) -> bool {
        for from in board.highest_first() {
            let has = board.load[from as usize];
            if has - self.high <= self.slack {
                return false;
            }
            let goes = |r: Replica| self.lowest_for(board, r, from).map(|to| (r, to));
            let leaves = |r: &Replica| has - board.load_of(r.shard) >= self.low - self.slack;
            let large = || board.movable(from).filter(leaves).find_map(goes);
            let close = || board.closest_to(from, has - self.high).find_map(goes);
            let found = match aim {
                LoadAim::BothSides => close(),
                LoadAim::FewestMoves => large().or_else(close),
            };
            if let Some((replica, to)) = found {
                self.make(board, replica, from, to);
                return true;
            }
        }
        false
    }

    /// The lowest broker that may take a replica and stays within the tolerance.
    fn lowest_for(&self, board: &Board<'_>, replica: Replica, from: Ord32) -> Option<Ord32> {
        let load = board.load_of(replica.shard);
        let room = |b: &Ord32| {
            let after = board.load[*b as usize] + load;
            after <= self.high + self.slack && after < board.load[from as usize]
        };
        board.lowest_first().take_while(room).find(|to| board.may_move(replica, from, *to))
    }

    /// Gives to a broker that is too low: the smallest replica that is enough, or the largest, from
    /// brokers that can spare it.
    fn fill(&mut self, board: &mut Board<'_>, to: Ord32) -> bool {
        let has = board.load[to as usize];
        let (need, space) = (self.low - has, self.high - has + self.slack);
        let mut best: Option<(bool, f64, Replica, Ord32)> = None;
        for (seen, from) in board.highest_first().enumerate() {
            if seen >= SOURCES && best.is_some() {
                break;
            }
            let spare = (board.load[from as usize] - self.low + self.slack).min(space);
            if spare <= 0.0 || board.load[from as usize] <= board.mean {
                break;
            }
            let fits = |r: &Replica| {
                let load = board.load_of(r.shard);
                load <= spare && load < board.load[from as usize] - has
            };
            let found =
                board.closest_to(from, need).filter(fits).find(|r| board.may_move(*r, from, to));
            let Some(replica) = found else { continue };
            let load = board.load_of(replica.shard);
            let enough = load >= need - self.slack;
            let better = best.is_none_or(|(was_enough, was, _, _)| match (enough, was_enough) {
                (true, true) => load < was,
                (false, false) => load > was,
                (now, _) => now,
            });
            if better {
                best = Some((enough, load, replica, from));
            }
            if enough && load <= need + self.slack {
                break;
            }
        }
        let Some((_, _, replica, from)) = best else { return false };
        self.make(board, replica, from, to);
        true
    }

    /// Where single replicas are too large: one goes over and a smaller one comes back.
    fn exchange(&mut self, board: &mut Board<'_>) -> bool {
        const ENDS: usize = 8;
        let high: Vec<Ord32> = board.highest_first().take(ENDS).collect();
        let low: Vec<Ord32> = board.lowest_first().take(ENDS).collect();
        for &from in &high {
            for &to in &low {
                let gap = board.load[from as usize] - board.load[to as usize];
                if gap <= self.slack {
                    continue;
                }
                if let Some((there, back)) = board.best_exchange(from, to, gap / 2.0) {
                    self.make(board, there, from, to);
                    self.make(board, back, to, from);
                    return true;
                }
            }
        }
        false
    }

    fn fewest(&mut self, board: &mut Board<'_>) {
        let empty: Vec<Ord32> = board.empty();
        for _ in 0..board.most_moves() {
            if !self.shed(board, LoadAim::FewestMoves) {
                break;
            }
        }
        for to in empty {
            while board.load[to as usize] < self.low - self.slack {
                if !self.pour(board, to) {
                    break;
                }
            }
        }
    }

    /// Gives an empty broker the largest replica that fits, from a broker that can spare it if one
    /// has such a replica.
    fn pour(&mut self, board: &mut Board<'_>, to: Ord32) -> bool {
        let space = self.high - board.load[to as usize] + self.slack;
        let spares = |board: &Board<'_>, from: Ord32, load: f64, floor: f64| {
            load > 0.0 && load <= space && board.load[from as usize] - load >= floor
        };
        for floor in [self.low, f64::MIN_POSITIVE] {
            let mut best: Option<(f64, Replica, Ord32)> = None;
            for from in board.highest_first().filter(|b| *b != to) {
                let fits = |r: &Replica| {
                    spares(board, from, board.load_of(r.shard), floor)
                        && board.may_move(*r, from, to)
                };
                let Some(replica) = board.movable(from).find(fits) else { continue };
                let load = board.load_of(replica.shard);
                if best.is_none_or(|(was, _, _)| load > was + self.slack) {
                    best = Some((load, replica, from));
                }
            }
            if let Some((_, replica, from)) = best {
                self.make(board, replica, from, to);
                return true;
            }
        }
        false
    }

    fn make(&mut self, board: &mut Board<'_>, replica: Replica, from: Ord32, to: Ord32) {
        board.go(replica, from, to);
        self.moves.push(Made { replica, from, to });
    }
}

/// The snapshot with the moves done at once.
fn after(snapshot: &Snapshot, moves: &[LoadMove]) -> Snapshot {
    let mut next = snapshot.clone();
    for m in moves {
        let Some(assignment) = next.assignments.get_mut(&m.shard) else { continue };
        assignment.generation += 1;
        if assignment.leader.as_ref() == Some(&m.from) {
            assignment.leader = Some(m.to.clone());
            move_row(&mut next, m);
        } else {
            for follower in assignment.followers.iter_mut().filter(|f| **f == m.from) {
                *follower = m.to.clone();
            }
        }
    }
    next
}

/// A shard's row goes with its leader.
fn move_row(next: &mut Snapshot, m: &LoadMove) {
    let report = next.brokers.get_mut(&m.from).and_then(|b| b.load.as_mut());
    let Some(report) = report else { return };
    let Some(at) = report.shards.iter().position(|row| row.shard == m.shard) else { return };
    let row = report.shards.remove(at);
    let mut empty = report.clone();
    empty.shards.clear();
    if let Some(broker) = next.brokers.get_mut(&m.to) {
        // A broker that reported nothing is given a report to carry the row.
        let blank = evenkeel_model::LoadReport {
            cpu_percent: None,
            memory_percent: None,
            disk_io_bytes_per_second: None,
            network_io_bytes_per_second: None,
            ..empty
        };
        broker.load.get_or_insert(blank).shards.push(row);
    }
}
