//! Brokers that carry too much give, the heaviest pieces first, to the least loaded that may take
//! them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Evening;
use super::board::{Piece, bits};
use crate::world::Ord32;

/// A piece to be given next: first those of brokers that with their heavier pieces alone would be too
/// high, then the heavier, then those of the most loaded broker.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Offer {
    unavoidable: bool,
    size: u64,
    load: u64,
    from: Reverse<Ord32>,
    piece: Piece,
}

impl Evening<'_> {
    /// Heavy pieces need the most room, so the heaviest of all givers goes first, while there is
    /// room.
    pub(super) fn shed(&mut self) {
        let mut lack = self.lack();
        let over: Vec<Ord32> = self.board.active().filter(|b| self.board.is_over(*b)).collect();
        let mut offers: BinaryHeap<Offer> =
            over.into_iter().filter_map(|from| self.offer(from, lack > 0.0)).collect();
        while let Some(offered) = offers.pop() {
            let from = offered.from;
            // Others were served since: what is offered, and to whom, may have changed.
            let Some(offer) = self.offer(from.0, lack > 0.0) else { continue };
            if offer < offered && offers.peek().is_some_and(|next| *next > offer) {
                offers.push(offer);
                continue;
            }
            let Some(to) = self.board.taker(offer.piece, from.0) else { continue };
            self.board.go(offer.piece, from.0, to);
            if lack > 0.0 {
                lack = self.lack();
            }
            offers.extend(self.offer(from.0, lack > 0.0));
        }
    }

    /// What a broker that is too high gives next: the heaviest piece that somebody may take and that
    /// leaves it high enough; and when nobody lacks anything and one piece is enough, the lightest
    /// of those.
    fn offer(&self, from: Ord32, heavy: bool) -> Option<Offer> {
        let board = &self.board;
        let has = board.load(from);
        if has <= board.high {
            return None;
        }
        let room = board.high - board.load(board.lowest()?);
        let most = room.min(has - board.low);
        let excess = has - board.high;
        let goes = |piece: &Piece| board.taker(*piece, from).is_some();
        let heaviest = || board.at_most(from, most).find(goes);
        let enough = |piece: &Piece| board.size(*piece) >= excess;
        let lightest =
            || board.at_least(from, excess).take_while(|p| board.size(*p) <= room).find(goes);
        let piece = match heavy {
            true => heaviest().filter(enough).or_else(lightest).or_else(heaviest)?,
            false => lightest().or_else(heaviest)?,
        };
        let kept: f64 = board.at_least(from, board.size(piece)).map(|p| board.size(p)).sum();
        Some(Offer {
            unavoidable: kept > board.high,
            size: bits(board.size(piece)),
            load: bits(has),
            from: Reverse(from),
            piece,
        })
    }
}
