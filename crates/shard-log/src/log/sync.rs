//! Which records are durable, while syncs run beside appends and truncations.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::{Log, LogError};
use crate::storage::StoredFile;

/// A sync that can run away from the log. It covers everything written before it was made.
pub struct SyncJob {
    file: Arc<dyn StoredFile>,
    name: String,
    ticket: u64,
}

impl SyncJob {
    /// Waits for the disk.
    pub fn run(&self) -> Result<(), LogError> {
        self.file.sync().map_err(|source: io::Error| LogError::Io {
            action: "sync",
            file: self.name.clone(),
            source,
        })
    }

    /// What to give to [`Log::finish_sync`] once it ran.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }
}

#[derive(Default)]
pub(super) struct Syncs {
    /// Counts changes of the log.
    written: u64,
    /// `written` when the last sync was begun.
    begun: u64,
    /// Syncs under way: the change they cover and the end of the log then, cut by truncations.
    pending: VecDeque<(u64, u64)>,
    durable_end: u64,
}

impl Syncs {
    pub(super) fn opened_at(end: u64) -> Self {
        Self { durable_end: end, ..Self::default() }
    }

    pub(super) fn wrote(&mut self) {
        self.written += 1;
    }

    pub(super) fn truncated(&mut self, end: u64) {
        self.written += 1;
        self.durable_end = self.durable_end.min(end);
        for (_, covered) in &mut self.pending {
            *covered = (*covered).min(end);
        }
    }

    /// The log is empty and begins at `start`, durably.
    pub(super) fn restarted(&mut self, start: u64) {
        self.written += 1;
        self.durable_end = start;
        for (_, covered) in &mut self.pending {
            *covered = (*covered).min(start);
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.durable_end
    }
}

impl Log {
    /// Offset after the last record that is known to be durable.
    pub fn synced_end(&self) -> u64 {
        self.syncs.end()
    }

    /// A sync of everything written so far; `None` if one that covers it was begun already.
    pub fn begin_sync(&mut self) -> Option<SyncJob> {
        if self.syncs.begun == self.syncs.written {
            return None;
        }
        self.syncs.begun = self.syncs.written;
        let end = self.end();
        self.syncs.pending.push_back((self.syncs.written, end));
        let segment = self.last_segment();
        Some(SyncJob {
            file: segment.file.clone(),
            name: self.storage.describe(&segment.name),
            ticket: self.syncs.written,
        })
    }

    /// Takes note that the sync with this ticket, and so every one before it, has run.
    pub fn finish_sync(&mut self, ticket: u64) {
        while let Some((covers, end)) = self.syncs.pending.front().copied()
            && covers <= ticket
        {
            self.syncs.pending.pop_front();
            self.syncs.durable_end = self.syncs.durable_end.max(end);
        }
    }
}
