//! Where single pieces are too large: one goes over and a lighter one comes back.

use super::Evening;
use super::board::{Board, Piece};
use crate::world::Ord32;

/// Brokers compared at each end; more would cost time and save little.
const ENDS: usize = 8;

impl Evening<'_> {
    /// Makes the first exchange that narrows the gap between a broker that is off and one at the
    /// other end. False if there is none.
    pub(super) fn exchange(&mut self) -> bool {
        let board = &self.board;
        let high: Vec<Ord32> = board.active().rev().take(ENDS).collect();
        let low: Vec<Ord32> = board.active().take(ENDS).collect();
        for &from in &high {
            for &to in &low {
                let gap = board.load(from) - board.load(to);
                let off = board.is_over(from) || self.needy.contains(&to) && board.is_under(to);
                if !off || gap <= board.mean * 1e-9 {
                    continue;
                }
                if let Some((there, back)) = best_exchange(board, from, to, gap / 2.0) {
                    self.board.go(there, from, to);
                    self.board.go(back, to, from);
                    return true;
                }
            }
        }
        false
    }
}

/// A piece of `from` and a lighter one of `to` whose difference is closest to `wanted` and narrows
/// the gap between the two.
fn best_exchange(board: &Board<'_>, from: Ord32, to: Ord32, wanted: f64) -> Option<(Piece, Piece)> {
    // Anything off by as much as what is wanted would not narrow the gap.
    let mut least = wanted * (1.0 - 1e-9);
    let mut best = None;
    for back in board.at_most(to, f64::INFINITY) {
        let ideal = board.size(back) + wanted;
        let off = |there: Piece| (board.size(there) - ideal).abs();
        let fits = |there: &Piece| {
            board.replica(*there).shard != board.replica(back).shard
                && board.may_sit(*there, from, to)
                && board.may_sit(back, to, from)
        };
        let larger = board.at_least(from, ideal).take_while(|p| off(*p) < least).find(fits);
        let smaller = board.at_most(from, ideal).take_while(|p| off(*p) < least).find(fits);
        for there in larger.into_iter().chain(smaller) {
            if off(there) < least {
                (least, best) = (off(there), Some((there, back)));
            }
        }
    }
    best
}
