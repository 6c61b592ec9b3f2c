//! Streams and caches.

use evenkeel_coordination::{Guard, Guarded, Outcome, Write};
use evenkeel_model::{Marker, MarkerReason, ShardKey, StreamKey};
use evenkeel_proto::admin::{
    CreateStreamRequest, CreateStreamResponse, GetStreamRequest, GetStreamResponse,
    ListStreamsResponse,
};
use evenkeel_proto::refusal::{Reason, refuse};
use tonic::Status;

use super::gate;
use crate::cluster::{Cluster, Leading};

/// Markers written in one transaction; etcd takes 128 operations.
const MARKERS_BATCH: usize = 120;

pub(super) fn list(cluster: &Cluster) -> ListStreamsResponse {
    let streams =
        cluster.observe(|_, snapshot| snapshot.streams.values().map(Into::into).collect());
    ListStreamsResponse { streams }
}

pub(super) fn get(
    cluster: &Cluster,
    request: &GetStreamRequest,
) -> Result<GetStreamResponse, Status> {
    let key: StreamKey = gate::parse("stream", &request.stream)?;
    cluster.observe(|_, snapshot| {
        let stream = snapshot.streams.get(&key).ok_or_else(|| gate::not_found("stream", &key))?;
        let from = key.shard(0);
        let assignments = snapshot.assignments.range(from..);
        let own = assignments.take_while(|(shard, _)| shard.stream == key);
        Ok(GetStreamResponse {
            stream: Some(stream.into()),
            assignments: own.map(|(_, assignment)| assignment.into()).collect(),
        })
    })
}

/// Creates a stream. Asking again with the same content answers the same.
pub(super) async fn create(
    cluster: &Cluster,
    request: &CreateStreamRequest,
) -> Result<CreateStreamResponse, Status> {
    let message = request.stream.as_ref().ok_or_else(|| gate::invalid("stream: it is missing"))?;
    let mut stream = evenkeel_model::Stream::try_from(message).map_err(gate::invalid)?;
    let leading = gate::leading(cluster)?;
    if let Some(there) = existing(cluster, &stream)? {
        return Ok(CreateStreamResponse { stream: Some((&there).into()) });
    }
    stream.created_at_ms = Some(cluster.clock.now_ms());
    let key = cluster.keys.stream(&stream.stream);
    let record =
        Write::Put { key: key.clone(), value: evenkeel_model::encode(&stream), lease: None };
    let shards: Vec<ShardKey> = (0..stream.shards).map(|n| stream.stream.shard(n)).collect();
    let (first, rest) = shards.split_at(shards.len().min(MARKERS_BATCH - 1));
    let txn = Guarded {
        token: Some(leading.token.clone()),
        guards: vec![Guard::Absent { key }],
        writes: std::iter::once(record).chain(markers(cluster, first)).collect(),
    };
    if let Err(status) = gate::commit(cluster, txn).await {
        // Somebody may have created the very same stream in the meantime, or this very write may
        // have been made after all.
        return match existing(cluster, &stream) {
            Ok(Some(there)) => Ok(CreateStreamResponse { stream: Some((&there).into()) }),
            Ok(None) => Err(status),
            Err(refused) => Err(refused),
        };
    }
    mark_rest(cluster, &leading, rest).await;
    cluster.wake.notify_one();
    Ok(CreateStreamResponse { stream: Some((&stream).into()) })
}

/// The stream of that name, if it is the same but for its age.
fn existing(
    cluster: &Cluster,
    wanted: &evenkeel_model::Stream,
) -> Result<Option<evenkeel_model::Stream>, Status> {
    cluster.read(|records| {
        let exists = |detail| refuse(Reason::AlreadyExists, detail);
        let key = &wanted.stream;
        if records.streams.is_unreadable(key) {
            return Err(exists(format!("stream '{key}' exists and its record cannot be read")));
        }
        let Some(stored) = records.streams.get(key) else { return Ok(None) };
        let there = stored.value.clone();
        let same = evenkeel_model::Stream {
            v: there.v,
            created_at_ms: there.created_at_ms,
            ..wanted.clone()
        };
        if same == there {
            return Ok(Some(there));
        }
        Err(exists(format!(
            "stream '{key}' exists with {} shards, replication factor {}, durable {}",
            there.shards, there.replication_factor, there.durable
        )))
    })
}

fn markers<'a>(cluster: &'a Cluster, shards: &'a [ShardKey]) -> impl Iterator<Item = Write> + 'a {
    let marker = Marker { reason: MarkerReason::New, ..Marker::default() };
    let value = evenkeel_model::encode(&marker);
    shards.iter().map(move |shard| {
        let key = cluster.keys.marker(shard);
        Write::Put { key, value: value.clone(), lease: None }
    })
}

/// Marks the shards beyond the first transaction, in order. A marker only tells why a shard is
/// unplaced; one that is missing, because a transaction failed, costs nothing: whoever leads then
/// places every shard of a stream that has no assignment.
async fn mark_rest(cluster: &Cluster, leading: &Leading, shards: &[ShardKey]) {
    for batch in shards.chunks(MARKERS_BATCH) {
        let open: Vec<ShardKey> = cluster.read(|records| {
            batch.iter().filter(|s| !records.assignments.contains(s)).cloned().collect()
        });
        if open.is_empty() {
            continue;
        }
        let txn = Guarded {
            token: Some(leading.token.clone()),
            guards: Vec::new(),
            writes: markers(cluster, &open).collect(),
        };
        match cluster.store.commit(txn).await {
            Outcome::Written { .. } => {}
            Outcome::Stale { .. } | Outcome::Deposed => return,
            Outcome::Unknown(error) => {
                tracing::warn!(%error, "shards of a new stream are not all marked");
                return;
            }
        }
    }
}
