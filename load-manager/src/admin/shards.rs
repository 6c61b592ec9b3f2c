//! Shards: pages of assignments, and everything about one.

use std::ops::Bound;

use evenkeel_model::{Assignment, BrokerId, ShardKey, StreamKey};
use evenkeel_proto::admin::{
    GetShardRequest, GetShardResponse, ListShardsRequest, ListShardsResponse,
};
use tonic::Status;

use super::gate;
use crate::cluster::Cluster;

const PAGE_DEFAULT: u32 = 1000;
const PAGE_MAX: u32 = 10_000;

struct Filter {
    stream: Option<StreamKey>,
    leader: Option<BrokerId>,
    member: Option<BrokerId>,
}

impl Filter {
    fn of(request: &ListShardsRequest) -> Result<Self, Status> {
        let broker = |field, value: &Option<String>| {
            value.as_ref().map(|v| gate::parse::<BrokerId>(field, v)).transpose()
        };
        let stream = request.stream.as_ref().map(|v| gate::parse("stream", v)).transpose()?;
        let leader = broker("leader", &request.leader)?;
        Ok(Self { stream, leader, member: broker("member", &request.member)? })
    }

    fn takes(&self, a: &Assignment) -> bool {
        self.stream.as_ref().is_none_or(|s| a.shard.stream == *s)
            && self.leader.as_ref().is_none_or(|b| a.leader.as_ref() == Some(b))
            && self.member.as_ref().is_none_or(|b| a.role_of(b).is_some())
    }
}

pub(super) fn list(
    cluster: &Cluster,
    request: &ListShardsRequest,
) -> Result<ListShardsResponse, Status> {
    let filter = Filter::of(request)?;
    let size = match request.page_size {
        0 => PAGE_DEFAULT,
        size => size.min(PAGE_MAX),
    };
    // The token is the last shard of the page before: it stays valid whatever changes meanwhile.
    let after = match request.page_token.as_str() {
        "" => Bound::Unbounded,
        token => Bound::Excluded(gate::parse::<ShardKey>("page_token", token)?),
    };
    cluster.observe(|_, snapshot| {
        if let Some(stream) = filter.stream.as_ref().filter(|s| !snapshot.streams.contains_key(s)) {
            return Err(gate::not_found("stream", stream));
        }
        let rest = snapshot.assignments.range((after, Bound::Unbounded)).map(|(_, a)| a);
        let mut matching = rest.filter(|a| filter.takes(a));
        let page: Vec<&Assignment> = matching.by_ref().take(size as usize).collect();
        let more = matching.next().is_some();
        let last = page.last().filter(|_| more).map(|a| a.shard.to_string());
        Ok(ListShardsResponse {
            assignments: page.into_iter().map(Into::into).collect(),
            next_page_token: last.unwrap_or_default(),
        })
    })
}

pub(super) fn get(
    cluster: &Cluster,
    request: &GetShardRequest,
) -> Result<GetShardResponse, Status> {
    let shard: ShardKey = gate::parse("shard", &request.shard)?;
    cluster.observe(|_, snapshot| {
        let known = snapshot.streams.get(&shard.stream).is_some_and(|s| shard.number < s.shards);
        if !known {
            return Err(gate::not_found("shard", &shard));
        }
        let explanation = evenkeel_planner::explain(snapshot, &shard);
        Ok(GetShardResponse {
            assignment: snapshot.assignments.get(&shard).map(Into::into),
            reports: snapshot.reports.get(&shard).into_iter().flatten().map(Into::into).collect(),
            explanation: explanation.map(|e| e.text).unwrap_or_default(),
        })
    })
}
