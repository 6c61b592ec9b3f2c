//! Identifiers: brokers, streams, shards, and their text forms.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An identifier that does not have the form it must have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} '{value}' is not valid: expected {expected}")]
pub struct IdError {
    /// Which identifier.
    pub what: &'static str,
    /// What was given.
    pub value: String,
    /// The form it must have.
    pub expected: &'static str,
}

fn check(
    what: &'static str,
    value: &str,
    max: usize,
    allowed: fn(char) -> bool,
    expected: &'static str,
) -> Result<(), IdError> {
    let sized = !value.is_empty() && value.len() <= max;
    if sized && value.chars().all(allowed) && value != "." && value != ".." {
        return Ok(());
    }
    Err(IdError { what, value: value.to_owned(), expected })
}

fn broker_char(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_')
}

fn name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_')
}

/// A broker's identifier: 1–253 characters of `a-z 0-9 - . _`. Cheap to clone.
#[derive(Debug, Clone, Eq)]
pub struct BrokerId(Arc<str>);

impl PartialEq for BrokerId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Hash for BrokerId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialOrd for BrokerId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for BrokerId {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl BrokerId {
    /// Checks the form.
    pub fn new(value: &str) -> Result<Self, IdError> {
        check("broker id", value, 253, broker_char, "1 to 253 characters of a-z 0-9 - . _")?;
        Ok(Self(value.into()))
    }

    /// The text form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a sharded resource is. Streams and caches are counted apart even under one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A log with a materialised map.
    Cache,
    /// A log.
    Stream,
}

impl Kind {
    /// The word used in keys.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Stream => "stream",
        }
    }
}

/// A stream or cache: `<kind>/<namespace>/<name>`. Cheap to clone, and one word large: every shard's
/// key has one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StreamKey(Arc<StreamName>);

/// What a [`StreamKey`] consists of.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamName {
    /// Stream or cache.
    pub kind: Kind,
    /// 1–255 characters of `A-Z a-z 0-9 - . _`.
    pub namespace: Box<str>,
    /// The same form as the namespace.
    pub name: Box<str>,
}

impl StreamKey {
    /// Checks the namespace and the name.
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Result<Self, IdError> {
        let expected = "1 to 255 characters of A-Z a-z 0-9 - . _";
        check("namespace", namespace, 255, name_char, expected)?;
        check("stream name", name, 255, name_char, expected)?;
        let name = StreamName { kind, namespace: namespace.into(), name: name.into() };
        Ok(Self(Arc::new(name)))
    }

    /// One of its shards.
    pub fn shard(&self, number: u32) -> ShardKey {
        ShardKey { stream: self.clone(), number }
    }
}

impl Deref for StreamKey {
    type Target = StreamName;

    fn deref(&self) -> &StreamName {
        &self.0
    }
}

impl PartialOrd for StreamKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StreamKey {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

/// One slice of a stream: `<kind>/<namespace>/<name>/<number>`. Ordered by kind, namespace, name,
/// then number as a number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardKey {
    /// The stream it belongs to.
    pub stream: StreamKey,
    /// 0 up to the stream's shard count, exclusive.
    pub number: u32,
}

impl fmt::Display for BrokerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        spaced(f, format_args!("{}/{}/{}", name.kind.as_str(), name.namespace, name.name))
    }
}

impl fmt::Display for ShardKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        spaced(f, format_args!("{}/{}", self.stream, self.number))
    }
}

/// Writes a text, copied only where it has to be brought to a width.
fn spaced(f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>) -> fmt::Result {
    if f.width().is_some() || f.precision().is_some() {
        return f.pad(&text.to_string());
    }
    f.write_fmt(text)
}

impl FromStr for BrokerId {
    type Err = IdError;

    fn from_str(s: &str) -> Result<Self, IdError> {
        Self::new(s)
    }
}

impl FromStr for Kind {
    type Err = IdError;

    fn from_str(s: &str) -> Result<Self, IdError> {
        match s {
            "stream" => Ok(Self::Stream),
            "cache" => Ok(Self::Cache),
            other => Err(IdError {
                what: "kind",
                value: other.to_owned(),
                expected: "'stream' or 'cache'",
            }),
        }
    }
}

impl FromStr for StreamKey {
    type Err = IdError;

    fn from_str(s: &str) -> Result<Self, IdError> {
        let mut parts = s.split('/');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(kind), Some(namespace), Some(name), None) => {
                Self::new(kind.parse()?, namespace, name)
            }
            _ => Err(IdError {
                what: "stream",
                value: s.to_owned(),
                expected: "<kind>/<namespace>/<name>, such as stream/default/orders",
            }),
        }
    }
}

impl FromStr for ShardKey {
    type Err = IdError;

    fn from_str(s: &str) -> Result<Self, IdError> {
        let malformed = || IdError {
            what: "shard",
            value: s.to_owned(),
            expected: "<kind>/<namespace>/<name>/<number>, such as stream/default/orders/3",
        };
        let (stream, number) = s.rsplit_once('/').ok_or_else(malformed)?;
        // One text form per shard: no sign, no leading zero.
        let canonical = number == "0" || !number.starts_with(['0', '+']);
        let number = number.parse().ok().filter(|_| canonical).ok_or_else(malformed)?;
        if stream.split('/').count() != 3 {
            return Err(malformed());
        }
        Ok(Self { stream: stream.parse()?, number })
    }
}

macro_rules! text_serde {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                d.deserialize_str(Text(PhantomData))
            }
        }
    )*};
}

/// Reads a text form where it lies, without a copy of it.
struct Text<T>(PhantomData<T>);

impl<T: FromStr<Err = IdError>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

text_serde!(BrokerId, StreamKey, ShardKey);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_round_trip_and_bad_ones_are_named() {
        let shard: ShardKey = "stream/default/orders/3".parse().unwrap();
        assert_eq!(shard.to_string(), "stream/default/orders/3");
        assert_eq!(shard.number, 3);
        assert_eq!(format!("[{shard:25}]"), "[stream/default/orders/3  ]");
        for bad in [
            "stream/default/orders",
            "stream/default/orders/x",
            "queue/a/b/1",
            "stream//b/1",
            "stream/a/b/01",
            "stream/a/b/+1",
            "stream/a/b/c/1",
            "stream/../b/1",
            "",
            "stream/a/b/4294967296",
        ] {
            assert!(bad.parse::<ShardKey>().is_err(), "{bad}");
        }
        let error = BrokerId::new("Broker 1").unwrap_err().to_string();
        assert_eq!(
            error,
            "broker id 'Broker 1' is not valid: expected 1 to 253 characters of a-z 0-9 - . _"
        );
    }

    #[test]
    fn shards_are_ordered_by_number_as_a_number() {
        let mut keys: Vec<ShardKey> =
            ["stream/d/b/2", "stream/d/a/10", "stream/d/a/9", "cache/d/z/0"]
                .iter()
                .map(|k| k.parse().unwrap())
                .collect();
        keys.sort();
        let text: Vec<String> = keys.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["cache/d/z/0", "stream/d/a/9", "stream/d/a/10", "stream/d/b/2"]);
    }
}
