//! Background work that can wait: admitted beside copies, so that what a recovery put off comes
//! back as a ramp and not as a second peak.
//!
//! Every job asks the [`admission::Admission`] before each small step. The copy controller sets
//! what both streams may take together and, of it, what maintenance may.

pub mod admission;
pub mod disk_space;
mod turns;

#[cfg(test)]
mod tests;

/// What the work is, in the order of service among equals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Job {
    /// Reading closed segments to write down what is in them, so that opening a log is quick.
    Index,
    /// Reading closed segments to find decay.
    Scrub,
    /// Erasing the bytes of shards that this broker holds no more.
    Deletion,
    /// Reading caches and writing again what still counts of their oldest segments.
    Compaction,
}

impl Job {
    /// Every job.
    pub const ALL: [Self; 4] = [Self::Index, Self::Scrub, Self::Deletion, Self::Compaction];

    /// The word used in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Scrub => "scrub",
            Self::Deletion => "deletion",
            Self::Compaction => "compaction",
        }
    }
}
