//! Telling decay from a torn write.
//!
//! A write that a crash tore was never synced, so its bytes may be dropped. Bytes that were synced
//! may not, whatever happened to them.

use bytes::Bytes;

use crate::record::{self, BadFrame, HEADER_BYTES};

/// Disks write whole sectors; one that was not written reads as zeros.
const SECTOR_BYTES: usize = 512;

/// So many zeros before a sector's end, or the file's, mean that the rest of it was not written.
const BLANK_BYTES: usize = 16;

/// Whether the bad record number `offset` at byte `at` of a file had been written in full.
///
/// A later record that says so is proof. Without one, a record that is cut short by the end of the
/// file or has a blank in it is taken for torn, and any other for decayed.
pub(super) fn was_durable(file: &Bytes, at: usize, offset: u64, bad: BadFrame) -> bool {
    let mut next = None;
    let rest = &file[at..];
    let most = (rest.len() / HEADER_BYTES) as u64;
    for ahead in 1..rest.len().saturating_sub(HEADER_BYTES - 1) {
        let Ok((total, found)) = record::peek(&rest[ahead..]) else { continue };
        if found <= offset || found - offset > most || rest.len() - ahead < total {
            continue;
        }
        let Ok(frame) = record::decode(&file.slice(at + ahead..)) else { continue };
        if found - u64::from(frame.unsynced) > offset {
            return true;
        }
        next = next.or(Some(at + ahead));
    }
    match next {
        Some(next) => !has_blank(file, at, next),
        None => bad != BadFrame::Short && !has_blank(file, at, file.len()),
    }
}

fn has_blank(file: &[u8], from: usize, to: usize) -> bool {
    let first = (from / SECTOR_BYTES + 1) * SECTOR_BYTES;
    let ends = (first..).step_by(SECTOR_BYTES).take_while(|end| *end <= to);
    // The sector in which the bad bytes end counts too, as far as it belongs to them.
    ends.chain([to]).any(|end| {
        let start = end.saturating_sub(BLANK_BYTES).max(from);
        end - start == BLANK_BYTES && file[start..end].iter().all(|byte| *byte == 0)
    })
}
