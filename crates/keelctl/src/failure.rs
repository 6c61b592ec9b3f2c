//! How a command fails: one line, and the exit code that scripts decide by.

use std::fmt;
use std::process::ExitCode;

use evenkeel_client::ClientError;
use evenkeel_proto::refusal::Reason;
use tonic::{Code, Status};

/// A command that did not do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The answer to a question about one thing is no. Exit code 1.
    No(String),
    /// Bad usage or bad input. Exit code 2.
    Input(String),
    /// The cluster could not be reached or talked to. Exit code 3.
    Unreachable(String),
    /// The user ended it; what was begun in the cluster goes on. Exit code 130.
    Interrupted(String),
    /// Whoever read the output went away. Silent, exit code 0.
    OutputClosed,
}

impl Failure {
    /// What the process ends with.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::No(_) => 1,
            Self::Input(_) => 2,
            Self::Unreachable(_) => 3,
            Self::Interrupted(_) => 130,
            Self::OutputClosed => 0,
        })
    }

    /// A refusal or a failure of the cluster, for `action` such as `drain broker b1`.
    pub fn of_status(action: &str, status: &Status) -> Self {
        let words = match status.message() {
            "" => status.code().description(),
            words => words,
        };
        let line = format!("cannot {action}: {words}");
        match Reason::of(status).map(|(reason, _)| reason) {
            Some(Reason::NotFound | Reason::InvalidArgument) => Self::Input(line),
            Some(Reason::NotLeader | Reason::NoLeader | Reason::StoreUnavailable) => {
                Self::Unreachable(line)
            }
            Some(reason) => Self::No(format!("{line} [{}]", reason.as_str())),
            None => match status.code() {
                Code::NotFound | Code::InvalidArgument | Code::OutOfRange => Self::Input(line),
                Code::FailedPrecondition | Code::AlreadyExists | Code::Aborted => Self::No(line),
                _ => Self::Unreachable(line),
            },
        }
    }

    /// A failed read or write of data.
    pub fn of_client(error: &ClientError) -> Self {
        let line = error.to_string();
        match error {
            ClientError::NoAddress | ClientError::BadAddress { .. } => Self::Input(line),
            ClientError::Refused { reason, .. } => match reason {
                Some(Reason::NotFound | Reason::InvalidArgument) => Self::Input(line),
                Some(_) => Self::No(line),
                None => Self::Unreachable(line),
            },
            ClientError::GaveUp { .. } | ClientError::Protocol { .. } => Self::Unreachable(line),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::No(line)
            | Self::Input(line)
            | Self::Unreachable(line)
            | Self::Interrupted(line) => f.write_str(&line.replace('\n', " ")),
            Self::OutputClosed => f.write_str("the output was closed"),
        }
    }
}

impl std::error::Error for Failure {}

/// Bad input as a failure, from anything that says what was wrong.
pub fn input(error: impl fmt::Display) -> Failure {
    Failure::Input(error.to_string())
}

#[cfg(test)]
mod tests {
    use evenkeel_proto::refusal::refuse;

    use super::*;

    #[test]
    fn refusals_are_told_apart_by_exit_code() {
        let of = |reason| Failure::of_status("drain broker b1", &refuse(reason, "because"));
        let line = "cannot drain broker b1: because".to_owned();
        assert_eq!(of(Reason::NotFound), Failure::Input(line.clone()));
        assert_eq!(of(Reason::NoLeader), Failure::Unreachable(line.clone()));
        assert_eq!(of(Reason::WrongLifecycle), Failure::No(format!("{line} [wrong_lifecycle]")));
        let lost = Failure::of_status("x", &Status::unavailable("gone"));
        assert_eq!(lost, Failure::Unreachable("cannot x: gone".to_owned()));
    }
}
