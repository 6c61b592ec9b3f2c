//! What an etcd error means for the caller. Codes alone do not tell: `OutOfRange` has three
//! meanings and "too many requests" comes as `Unknown`, so the text decides first.

use std::error::Error as _;

use etcd_client::Error as EtcdError;
use tonic::Code;

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorClass {
    /// The wanted revision is not (or no longer) in the store's history: list again.
    Compacted,
    /// Request or response too large: split it; never retry it as it is.
    TooLarge,
    /// The store's space quota is used up: it takes no write until an operator or
    /// [`crate::Store::reclaim`] makes room. Reads, keep-alives and revokes still work.
    NoSpace,
    /// Credentials refused or expired.
    Auth,
    /// The store asks to slow down; nothing was done.
    Busy,
    /// No usable answer: the endpoint is gone, slow, or without a leader.
    Unavailable,
    /// The lease does not exist (any more).
    LeaseGone,
    /// The request itself is wrong, or not allowed.
    Fatal,
}

impl ErrorClass {
    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Compacted => "compacted",
            Self::TooLarge => "too_large",
            Self::NoSpace => "no_space",
            Self::Auth => "auth",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
            Self::LeaseGone => "lease_gone",
            Self::Fatal => "fatal",
        }
    }
}

/// A failed call to the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("etcd: {detail} ({})", class.label())]
pub struct StoreError {
    /// What to do about it.
    pub class: ErrorClass,
    /// What etcd or the transport said.
    pub detail: String,
    maybe_applied: bool,
}

impl StoreError {
    /// Whether a write that ended in this error may have been made all the same.
    pub fn maybe_applied(&self) -> bool {
        self.maybe_applied
    }

    pub(crate) fn new(class: ErrorClass, detail: impl Into<String>) -> Self {
        Self { class, detail: detail.into(), maybe_applied: class == ErrorClass::Unavailable }
    }

    /// Our own limit for one attempt has passed.
    pub(crate) fn timed_out(limit: std::time::Duration) -> Self {
        Self::new(ErrorClass::Unavailable, format!("no answer within {} ms", limit.as_millis()))
    }

    /// An answer that a correct etcd does not give.
    pub(crate) fn malformed(what: &str) -> Self {
        Self::new(ErrorClass::Unavailable, format!("malformed answer: {what}"))
    }

    /// The only place where errors are judged.
    pub(crate) fn classify(error: EtcdError) -> Self {
        match error {
            EtcdError::GRpcStatus(status) => {
                let class = class_of(status.code(), status.message());
                let detail = describe(&status);
                let sent = !never_sent(&detail);
                Self { class, maybe_applied: class == ErrorClass::Unavailable && sent, detail }
            }
            EtcdError::LeaseKeepAliveError(text) if text.contains("lease not found") => {
                Self::new(ErrorClass::LeaseGone, text)
            }
            EtcdError::LeaseKeepAliveError(text) | EtcdError::WatchError(text) => {
                Self::new(ErrorClass::Unavailable, text)
            }
            EtcdError::TransportError(error) => {
                Self::new(ErrorClass::Unavailable, with_sources(&error))
            }
            EtcdError::IoError(error) => Self::new(ErrorClass::Unavailable, error.to_string()),
            other => Self::new(ErrorClass::Fatal, other.to_string()),
        }
    }
}

fn class_of(code: Code, message: &str) -> ErrorClass {
    const BY_TEXT: &[(&str, ErrorClass)] = &[
        ("required revision has been compacted", ErrorClass::Compacted),
        ("required revision is a future revision", ErrorClass::Compacted),
        ("database space exceeded", ErrorClass::NoSpace),
        ("message length too large", ErrorClass::TooLarge),
        ("request is too large", ErrorClass::TooLarge),
        ("received message larger", ErrorClass::TooLarge),
        ("too many operations", ErrorClass::TooLarge),
        ("requested lease not found", ErrorClass::LeaseGone),
        ("lease not found", ErrorClass::LeaseGone),
        ("too many requests", ErrorClass::Busy),
        ("request timed out", ErrorClass::Unavailable),
        ("no leader", ErrorClass::Unavailable),
        ("leader changed", ErrorClass::Unavailable),
        ("invalid auth token", ErrorClass::Auth),
        ("revision of auth store is old", ErrorClass::Auth),
        ("authentication failed", ErrorClass::Auth),
        ("user name is empty", ErrorClass::Auth),
    ];
    if let Some((_, class)) = BY_TEXT.iter().find(|(text, _)| message.contains(text)) {
        return *class;
    }
    match code {
        Code::Unauthenticated => ErrorClass::Auth,
        Code::Unavailable
        | Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Unknown
        | Code::Aborted
        | Code::Internal
        | Code::DataLoss
        | Code::ResourceExhausted => ErrorClass::Unavailable,
        _ => ErrorClass::Fatal,
    }
}

/// A connection that was never made cannot have carried the request.
fn never_sent(detail: &str) -> bool {
    ["tcp connect error", "dns error", "invalid peer certificate"]
        .iter()
        .any(|text| detail.contains(text))
}

fn describe(status: &tonic::Status) -> String {
    let mut text = format!("{:?}: {}", status.code(), status.message());
    if let Some(source) = status.source() {
        text.push_str(": ");
        text.push_str(&with_sources(source));
    }
    text
}

/// TLS and socket errors hide their cause below "transport error".
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
