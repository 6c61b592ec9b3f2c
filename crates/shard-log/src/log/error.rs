//! What can go wrong with a log.

use std::io;

/// A failure of a log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Bytes that were durable are not what was written. Nothing was changed.
    #[error("log {file} is damaged at byte {byte}: {detail}; nothing was removed")]
    Corrupt {
        /// The file.
        file: String,
        /// Where in it.
        byte: u64,
        /// What is wrong.
        detail: String,
    },
    /// The disk is full. What was to be written is not there; trying again later is safe.
    #[error("disk is full: cannot write {bytes} bytes to {file}")]
    DiskFull {
        /// The file.
        file: String,
        /// What did not fit.
        bytes: usize,
    },
    /// The disk failed.
    #[error("cannot {action} {file}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        file: String,
        /// The cause.
        source: io::Error,
    },
    /// A committed record that another log has otherwise. Nothing was changed.
    #[error(
        "the log differs from its leader's at offset {offset}, which is committed; nothing was \
         removed"
    )]
    Differs {
        /// Offset of the first such record.
        offset: u64,
    },
    /// A record that was given up.
    #[error("record {offset} was given up: the log begins at {start}")]
    BeforeStart {
        /// Offset of the record.
        offset: u64,
        /// Start of the log.
        start: u64,
    },
    /// A record that does not continue the log, or is too long. The log is unchanged.
    #[error("record {offset} cannot be appended to a log that ends at {end}: {detail}")]
    Rejected {
        /// Offset of the record.
        offset: u64,
        /// End of the log.
        end: u64,
        /// What is wrong.
        detail: &'static str,
    },
}

impl LogError {
    pub(crate) fn io(action: &'static str, file: String) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, file, source }
    }

    /// Whether trying again later can work without a restart.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::DiskFull { .. } | Self::Rejected { .. } | Self::BeforeStart { .. })
    }
}

/// Whether the error says that the disk, or the share of it that may be used, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
