//! Replication messages on the wire.

use evenkeel_model::{BrokerId, ShardKey};
use evenkeel_proto::replication as wire;
use evenkeel_shard_log::{
    Answer, Append, Position, Record, Request, Term, decode_frames, encode_frames,
};
use tonic::Status;

/// Longest message: one append's records, or a single record of the largest size, and room.
pub(super) const MESSAGE_MAX_BYTES: usize = 16 << 20;

fn term_out(term: Term) -> Option<wire::Term> {
    Some(wire::Term { generation: term.generation, opening: term.opening })
}

fn term_in(term: Option<wire::Term>) -> Term {
    term.map(|t| Term::new(t.generation, t.opening)).unwrap_or_default()
}

fn bad(what: &str, detail: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("{what}: {detail}"))
}

fn shard_in(shard: &str) -> Result<ShardKey, Status> {
    shard.parse().map_err(|e| bad("shard", e))
}

fn leader_in(leader: &str) -> Result<BrokerId, Status> {
    leader.parse().map_err(|e| bad("leader", e))
}

fn frames_in(frames: &bytes::Bytes) -> Result<Vec<Record>, Status> {
    decode_frames(frames).map_err(|e| bad("frames", e))
}

pub(super) fn promise_out(shard: &ShardKey, term: Term, leader: &BrokerId) -> wire::PromiseRequest {
    wire::PromiseRequest {
        shard: shard.to_string(),
        term: term_out(term),
        leader: leader.to_string(),
    }
}

pub(super) fn promise_in(request: &wire::PromiseRequest) -> Result<(ShardKey, Request), Status> {
    let leader = leader_in(&request.leader)?;
    let term = term_in(request.term);
    Ok((shard_in(&request.shard)?, Request::Promise { term, leader }))
}

pub(super) fn append_out(shard: &ShardKey, append: &Append) -> wire::AppendRequest {
    wire::AppendRequest {
        shard: shard.to_string(),
        term: term_out(append.term),
        leader: append.leader.to_string(),
        prev_end: append.prev_end,
        prev_term: term_out(append.prev_term),
        frames: encode_frames(&append.records),
        committed: append.committed,
        leader_end: append.leader_end,
        level: append.level,
        counted: append.counted,
        from_start: append.from_start,
    }
}

pub(super) fn append_in(request: &wire::AppendRequest) -> Result<(ShardKey, Request), Status> {
    let records = frames_in(&request.frames)?;
    if records.first().is_some_and(|first| first.offset != request.prev_end) {
        return Err(bad("frames", "the first record is not at prev_end"));
    }
    let append = Append {
        term: term_in(request.term),
        leader: leader_in(&request.leader)?,
        prev_end: request.prev_end,
        prev_term: term_in(request.prev_term),
        records,
        committed: request.committed,
        leader_end: request.leader_end,
        level: request.level,
        counted: request.counted,
        from_start: request.from_start,
    };
    Ok((shard_in(&request.shard)?, Request::Append(append)))
}

pub(super) fn fetch_out(
    shard: &ShardKey,
    term: Term,
    from: u64,
    prev_term: Term,
    max_bytes: usize,
) -> wire::FetchRequest {
    wire::FetchRequest {
        shard: shard.to_string(),
        term: term_out(term),
        from_offset: from,
        prev_term: term_out(prev_term),
        max_bytes: u32::try_from(max_bytes).unwrap_or(u32::MAX),
    }
}

pub(super) fn fetch_in(request: &wire::FetchRequest) -> Result<(ShardKey, Request), Status> {
    let fetch = Request::Fetch {
        term: term_in(request.term),
        from: request.from_offset,
        prev_term: term_in(request.prev_term),
        max_bytes: (request.max_bytes as usize).min(MESSAGE_MAX_BYTES / 4),
    };
    Ok((shard_in(&request.shard)?, fetch))
}

pub(super) fn promised_out(answer: Answer) -> Result<wire::PromiseResponse, Status> {
    let Answer::Promise { granted, promised, position, trusted } = answer else {
        return Err(mismatched());
    };
    Ok(wire::PromiseResponse {
        granted,
        promised: term_out(promised),
        last_term: term_out(position.term),
        end_offset: position.end,
        trusted,
    })
}

pub(super) fn promised_in(response: wire::PromiseResponse) -> Answer {
    Answer::Promise {
        granted: response.granted,
        promised: term_in(response.promised),
        position: Position { term: term_in(response.last_term), end: response.end_offset },
        trusted: response.trusted,
    }
}

pub(super) fn appended_out(answer: Answer) -> Result<wire::AppendResponse, Status> {
    let Answer::Append { accepted, promised, matched, end, level, retry_from, detail } = answer
    else {
        return Err(mismatched());
    };
    Ok(wire::AppendResponse {
        accepted,
        promised: term_out(promised),
        matched,
        end_offset: end,
        level,
        retry_from,
        detail,
    })
}

pub(super) fn appended_in(response: wire::AppendResponse) -> Answer {
    Answer::Append {
        accepted: response.accepted,
        promised: term_in(response.promised),
        matched: response.matched,
        end: response.end_offset,
        level: response.level,
        retry_from: response.retry_from,
        detail: response.detail,
    }
}

pub(super) fn fetched_out(answer: Answer) -> Result<wire::FetchResponse, Status> {
    let Answer::Fetch { records, retry_from, promised, begins } = answer else {
        return Err(mismatched());
    };
    let frames = encode_frames(&records);
    Ok(wire::FetchResponse {
        frames,
        retry_from,
        promised: term_out(promised),
        begins_at: begins.map(|begins| begins.end),
        begins_after: begins.and_then(|begins| term_out(begins.term)),
    })
}

pub(super) fn fetched_in(response: wire::FetchResponse) -> Result<Answer, Status> {
    let term = term_in(response.begins_after);
    Ok(Answer::Fetch {
        begins: response.begins_at.map(|end| Position { term, end }),
        records: frames_in(&response.frames)?,
        retry_from: response.retry_from,
        promised: term_in(response.promised),
    })
}

fn mismatched() -> Status {
    Status::internal("the answer is to another kind of request")
}
