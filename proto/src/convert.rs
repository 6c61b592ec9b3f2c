//! Between messages and the model.

use evenkeel_model as model;

use crate::admin;

impl From<&model::Move> for admin::Move {
    fn from(m: &model::Move) -> Self {
        Self {
            reason: m.reason.as_str().to_owned(),
            started_at_ms: m.started_at_ms,
            fenced_at_ms: m.fenced_at_ms,
            progress_at_ms: m.progress_at_ms,
            give_ups: m.give_ups,
            next_try_ms: m.next_try_ms,
        }
    }
}

fn text<T: ToString>(value: Option<&T>) -> Option<String> {
    value.map(ToString::to_string)
}

impl From<&model::Assignment> for admin::Assignment {
    fn from(a: &model::Assignment) -> Self {
        Self {
            shard: a.shard.to_string(),
            leader: text(a.leader.as_ref()),
            followers: a.followers.iter().map(ToString::to_string).collect(),
            generation: a.generation,
            state: a.state.as_str().to_owned(),
            successor: text(a.successor.as_ref()),
            joining: text(a.joining.as_ref()),
            leaving: text(a.leaving.as_ref()),
            r#move: a.move_.as_ref().map(Into::into),
        }
    }
}

impl From<&model::ShardReport> for admin::ShardReport {
    fn from(r: &model::ShardReport) -> Self {
        Self {
            broker: r.broker.to_string(),
            shard: r.shard.to_string(),
            generation: r.generation,
            phase: r.phase.map(|p| p.as_str().to_owned()),
            caught_up: r.caught_up,
            lag_records: r.lag_records,
            drained: r.drained,
            halted: r.halted.clone(),
            log_end: r.log_end,
        }
    }
}

impl From<&model::Stream> for admin::Stream {
    fn from(s: &model::Stream) -> Self {
        Self {
            stream: s.stream.to_string(),
            shards: s.shards,
            replication_factor: s.replication_factor,
            durable: s.durable,
            created_at_ms: s.created_at_ms,
            region: s.region.clone(),
        }
    }
}

/// A field of a message that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {detail}")]
pub struct FieldError {
    /// Which field.
    pub field: &'static str,
    /// What was given and what was expected.
    pub detail: String,
}

/// Parses an identifier in a message, naming the field.
pub fn parse<T: std::str::FromStr<Err = model::IdError>>(
    field: &'static str,
    value: &str,
) -> Result<T, FieldError> {
    value.parse().map_err(|e: model::IdError| FieldError { field, detail: e.to_string() })
}

impl TryFrom<&admin::Stream> for model::Stream {
    type Error = FieldError;

    fn try_from(s: &admin::Stream) -> Result<Self, FieldError> {
        let within = |field, value: u32, max: u32| {
            if (1..=max).contains(&value) {
                return Ok(value);
            }
            let detail = format!("{value} is out of range: expected 1 to {max}");
            Err(FieldError { field, detail })
        };
        Ok(Self {
            v: model::RECORD_VERSION,
            stream: parse("stream", &s.stream)?,
            shards: within("shards", s.shards, model::stream::MAX_SHARDS)?,
            replication_factor: within(
                "replication_factor",
                s.replication_factor,
                model::stream::MAX_REPLICATION_FACTOR,
            )?,
            durable: s.durable,
            created_at_ms: s.created_at_ms,
            region: s.region.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_survives_the_wire_and_bad_ones_are_named() {
        let stream = model::Stream {
            v: 1,
            stream: "stream/default/orders".parse().unwrap(),
            shards: 12,
            replication_factor: 3,
            durable: true,
            created_at_ms: Some(7),
            region: None,
        };
        let mut message = admin::Stream::from(&stream);
        assert_eq!(model::Stream::try_from(&message), Ok(stream));
        message.shards = 0;
        let error = model::Stream::try_from(&message).unwrap_err().to_string();
        assert_eq!(error, "shards: 0 is out of range: expected 1 to 1000000");
    }
}
