//! Brokers that must carry more take, the least loaded first.

use super::board::{Board, Piece};
use super::{Evening, LoadAim};
use crate::world::Ord32;

impl Evening<'_> {
    /// Every needy broker is brought up, by brokers that can spare it; for fewest moves, if it must
    /// be, by any that carries more.
    pub(super) fn fill(&mut self) {
        self.fill_above(self.board.low);
        if self.aim == LoadAim::FewestMoves {
            self.fill_above(0.0);
        }
    }

    /// No giver falls below `floor`.
    fn fill_above(&mut self, floor: f64) {
        let mut waiting: Vec<Ord32> =
            self.needy.iter().copied().filter(|b| self.board.is_under(*b)).collect();
        // The least loaded is last.
        waiting.sort_by(|a, b| self.board.load(*b).total_cmp(&self.board.load(*a)).then(b.cmp(a)));
        while let Some(to) = waiting.pop() {
            let Some((piece, from)) = best_gift(&self.board, to, floor) else { continue };
            self.board.go(piece, from, to);
            if self.board.is_under(to) {
                let load = self.board.load(to);
                let at = waiting.partition_point(|b| self.board.load(*b) > load);
                waiting.insert(at, to);
            }
        }
    }
}

/// The piece that helps a broker most, and who gives it: the lightest that is enough, or else the
/// heaviest.
fn best_gift(board: &Board<'_>, to: Ord32, floor: f64) -> Option<(Piece, Ord32)> {
    let (lack, room) = (board.lack(to), board.high - board.load(to));
    let mut enough: Option<(f64, Piece, Ord32)> = None;
    let mut heaviest: Option<(f64, Piece, Ord32)> = None;
    for from in board.active().rev().take_while(|b| board.load(*b) > board.load(to)) {
        let gap = board.load(from) - board.load(to);
        let spare = (board.load(from) - floor).min(room);
        if enough.is_none() && heaviest.is_some_and(|(most, ..)| most >= spare) {
            break;
        }
        let fits = |piece: &Piece| {
            board.size(*piece) <= spare
                && board.size(*piece) < gap
                && board.may_move(*piece, from, to)
        };
        let least = enough.map_or(f64::INFINITY, |(least, ..)| least);
        let lighter = board.at_least(from, lack).take_while(|p| board.size(*p) < least).find(fits);
        if let Some(piece) = lighter {
            enough = Some((board.size(piece), piece, from));
        }
        if enough.is_some() {
            continue;
        }
        let most = heaviest.map_or(0.0, |(most, ..)| most);
        let heavier = board.at_most(from, spare).take_while(|p| board.size(*p) > most).find(fits);
        if let Some(piece) = heavier {
            heaviest = Some((board.size(piece), piece, from));
        }
    }
    enough.or(heaviest).map(|(_, piece, from)| (piece, from))
}
