//! Brokers that carry too much give, the heaviest pieces first, to the least loaded that may take
//! them.

use std::collections::BinaryHeap;

use super::Evening;
use super::board::Piece;
use crate::world::Ord32;

/// A piece to be given next, heavier ones first, then those of the first broker.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Offer {
    bits: u64,
    from: std::cmp::Reverse<Ord32>,
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
        while let Some(Offer { bits, from, .. }) = offers.pop() {
            // Others were served since: what is offered, and to whom, may have changed.
            let Some(offer) = self.offer(from.0, lack > 0.0) else { continue };
            if offer.bits < bits && offers.peek().is_some_and(|next| next.bits > offer.bits) {
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
        Some(Offer { bits: board.size(piece).to_bits(), from: std::cmp::Reverse(from), piece })
    }
}
