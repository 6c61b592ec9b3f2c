//! Brokers that must carry more take, the least loaded first.

use super::board::{Board, Piece};
use super::{Evening, LoadAim};
use crate::world::Ord32;

impl Evening<'_> {
    /// Every needy broker is brought up, for fewest moves by any broker that carries more, or else by
    /// those that can spare it.
    pub(super) fn fill(&mut self) {
        let floor = match self.aim {
            LoadAim::BothSides => self.board.low,
            LoadAim::FewestMoves => 0.0,
        };
        let mut waiting: Vec<Ord32> =
            self.needy.iter().copied().filter(|b| self.board.is_under(*b)).collect();
        // The least loaded is last.
        waiting.sort_by(|a, b| self.board.load(*b).total_cmp(&self.board.load(*a)).then(b.cmp(a)));
        while let Some(to) = waiting.pop() {
            // What several empty ones get too much is dealt among them afterwards.
            let heavy = self.empty.len() > 1 && self.empty.contains(&to);
            let enough = if heavy { None } else { lightest_enough(&self.board, to, floor) };
            let gift = enough.or_else(|| heaviest(&self.board, to, floor));
            let Some((piece, from)) = gift else { continue };
            self.board.go(piece, from, to);
            if self.board.is_under(to) {
                let load = self.board.load(to);
                let at = waiting.partition_point(|b| self.board.load(*b) > load);
                waiting.insert(at, to);
            }
        }
    }
}

/// The lightest piece that is all a broker lacks, and who gives it without falling below `floor`.
fn lightest_enough(board: &Board<'_>, to: Ord32, floor: f64) -> Option<(Piece, Ord32)> {
    let mut best: Option<(Piece, Ord32)> = None;
    for (from, spare) in givers(board, to, floor) {
        let least = best.map_or(f64::INFINITY, |(piece, _)| board.size(piece));
        let found = board
            .at_least(from, board.lack(to))
            .take_while(|piece| board.size(*piece) < least && board.size(*piece) <= spare)
            .find(|piece| board.may_move(*piece, from, to));
        best = found.map(|piece| (piece, from)).or(best);
    }
    best
}

/// The heaviest piece that a broker may take.
fn heaviest(board: &Board<'_>, to: Ord32, floor: f64) -> Option<(Piece, Ord32)> {
    let mut best: Option<(Piece, Ord32)> = None;
    for (from, spare) in givers(board, to, floor) {
        let most = best.map_or(0.0, |(piece, _)| board.size(piece));
        if board.top(from) <= most {
            continue;
        }
        let found = board
            .at_most(from, spare)
            .take_while(|piece| board.size(*piece) > most)
            .find(|piece| board.may_move(*piece, from, to));
        best = found.map(|piece| (piece, from)).or(best);
    }
    best
}

/// Brokers that carry more, the most loaded first, and what each may give: not so much that the two
/// only change places.
fn givers<'a>(
    board: &'a Board<'_>,
    to: Ord32,
    floor: f64,
) -> impl Iterator<Item = (Ord32, f64)> + 'a {
    let has = board.load(to);
    let room = board.high - has;
    let spare = move |from: Ord32| {
        let load = board.load(from);
        (from, (load - floor).min(room).min((load - has) * (1.0 - 1e-9)))
    };
    board.active().rev().map(spare).take_while(|(_, spare)| *spare > 0.0)
}
