//! Moves saved: a light one is taken back where the others' takers can make up for it by dealing
//! among them anew what they were given. That costs no move.

use std::collections::BTreeSet;

use super::Evening;
use super::board::{Board, Made, MoveNumber};
use crate::world::Ord32;

/// Takers compared for one deal, those that have most to spare.
const TAKERS: usize = 64;

/// So many moves in a row that cannot be saved end it.
const PATIENCE: usize = 32;

/// Deals tried for one move.
const DEALS: usize = 12;

/// Two moves that exchange their ends, or one that ends elsewhere.
struct Deal {
    heavy: MoveNumber,
    giver: Ord32,
    light: Option<MoveNumber>,
    gain: f64,
}

/// Which brokers give copies of which shards away. The moves are in an order, and a copy must not
/// come to where another one has not left yet.
struct Left(BTreeSet<(Ord32, Ord32)>);

impl Left {
    fn of(board: &Board<'_>) -> Self {
        let made = board.moves().map(|number| board.made(number));
        Self(made.map(|m| (board.replica(m.piece).shard, m.from)).collect())
    }

    /// Whether a move to `giver` may end at `to` instead, and the other one the other way.
    fn fits(
        &self,
        board: &Board<'_>,
        heavy: MoveNumber,
        light: Option<MoveNumber>,
        (giver, to): (Ord32, Ord32),
    ) -> bool {
        let free = |number: MoveNumber, at: Ord32, next: Ord32| {
            let piece = board.made(number).piece;
            let left = self.0.contains(&(board.replica(piece).shard, next));
            !left && board.may_sit(piece, at, next)
        };
        free(heavy, giver, to)
            && match light {
                Some(light) => free(light, to, giver),
                None => board.may_move(board.made(heavy).piece, giver, to),
            }
    }
}

impl Evening<'_> {
    /// Saves what moves it can, the lightest first.
    pub(super) fn trim(&mut self) {
        let left = Left::of(&self.board);
        let mut numbers: Vec<MoveNumber> = self.board.moves().collect();
        numbers
            .sort_by(|a, b| size(&self.board, *a).total_cmp(&size(&self.board, *b)).then(a.cmp(b)));
        let mut failures = 0;
        for number in numbers {
            let Made { piece, from, to, .. } = self.board.made(number);
            let back = self.board.load(from) + self.board.size(piece);
            if back > self.board.high || !self.board.may_move(piece, to, from) {
                continue;
            }
            if self.saves(number, &left) {
                failures = 0;
                continue;
            }
            failures += 1;
            if failures == PATIENCE {
                return;
            }
        }
    }

    /// Takes a move back, if what its taker then lacks can be had from others. All or nothing.
    fn saves(&mut self, number: MoveNumber, left: &Left) -> bool {
        let to = self.board.made(number).to;
        let mut made: Vec<(Deal, Ord32)> = Vec::new();
        self.board.take_back(number);
        while self.needy.contains(&to) && self.board.is_under(to) {
            let found = if made.len() < DEALS { self.best_deal(to, left) } else { None };
            let Some(deal) = found else {
                for (deal, to) in made.into_iter().rev() {
                    self.redirect(&deal, to, deal.giver);
                }
                self.board.give(number);
                return false;
            };
            self.redirect(&deal, deal.giver, to);
            made.push((deal, to));
        }
        true
    }

    /// The heavy move's end goes from one broker to the other, and the light one's the other way.
    fn redirect(&mut self, deal: &Deal, from: Ord32, to: Ord32) {
        self.board.redirect(deal.heavy, to);
        if let Some(light) = deal.light {
            self.board.redirect(light, from);
        }
    }

    /// The deal that gives a broker all it lacks and the least beyond that, or else the most of
    /// it.
    fn best_deal(&self, to: Ord32, left: &Left) -> Option<Deal> {
        let board = &self.board;
        let spare = |b: Ord32| match self.needy.contains(&b) {
            true => board.load(b) - board.low,
            false => board.load(b),
        };
        let mut givers: Vec<(f64, Ord32)> = board
            .active()
            .filter(|b| *b != to && !board.taken(*b).is_empty())
            .map(|b| (spare(b).min(board.high - board.load(to)), b))
            .filter(|(spare, _)| *spare > 0.0)
            .collect();
        givers.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let lack = board.lack(to);
        let mut best: Option<Deal> = None;
        for (spare, giver) in givers.into_iter().take(TAKERS) {
            let lights = board.taken(to).iter().copied().map(Some);
            for light in lights.chain([None]) {
                let least = light.map_or(0.0, |n| size(board, n));
                for heavy in choices(board, giver, least, lack, spare) {
                    let gain = size(board, heavy) - least;
                    let better =
                        best.as_ref().is_none_or(|b| worth(gain, lack) > worth(b.gain, lack));
                    if better && left.fits(board, heavy, light, (giver, to)) {
                        best = Some(Deal { heavy, giver, light, gain });
                    }
                }
            }
        }
        // Less would take too many deals.
        best.filter(|b| b.gain > lack / 8.0)
    }
}

/// All that is lacking is best had without much beyond it; part of it is better the more it is.
fn worth(gain: f64, lack: f64) -> (bool, f64) {
    (gain >= lack, if gain >= lack { -gain } else { gain })
}

/// The moves to `giver` of which two come closest to a gain of `lack`, or of what can be spared of it,
/// from either side.
fn choices<'a>(
    board: &'a Board<'_>,
    giver: Ord32,
    least: f64,
    lack: f64,
    spare: f64,
) -> impl Iterator<Item = MoveNumber> + 'a {
    let gain = move |number: MoveNumber| size(board, number) - least;
    let taken = board.taken(giver);
    let enough = taken.partition_point(|n| gain(*n) < lack.min(spare));
    let (below, above) = taken.split_at(enough);
    let above = above.iter().take(2);
    let below = below.iter().rev().take(2);
    above.chain(below).copied().filter(move |n| gain(*n) > 0.0 && gain(*n) <= spare)
}

fn size(board: &Board<'_>, number: MoveNumber) -> f64 {
    board.size(board.made(number).piece)
}
