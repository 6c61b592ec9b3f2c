//! The states of a copy.

/// What a copy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It was not ordered yet.
    Queued,
    /// It has a slot.
    Running,
    /// It lost its slot and resumes where it was.
    Paused,
    /// An operator's pause holds it where it is.
    Held,
    /// The destination is level; the leader's own stream ships what comes.
    Level,
    /// The last try failed; another follows.
    Failed,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Running, Self::Paused, Self::Held, Self::Level, Self::Failed];

    /// The word used in metrics and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Held => "held",
            Self::Level => "level",
            Self::Failed => "failed",
        }
    }
}
