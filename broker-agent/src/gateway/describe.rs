//! Who leads a stream's shards.

use evenkeel_model::StreamKey;
use evenkeel_proto::data::{DescribeRequest, DescribeResponse, ShardRoute};
use evenkeel_proto::refusal::{Reason, refuse};
use tonic::Status;

use super::service::Gateway;

impl Gateway {
    pub(super) fn describe_stream(
        &self,
        request: &DescribeRequest,
    ) -> Result<DescribeResponse, Status> {
        let stream: StreamKey = request
            .stream
            .parse()
            .map_err(|e| refuse(Reason::InvalidArgument, format!("field 'stream': {e}")))?;
        let shards: Vec<ShardRoute> = self
            .routes
            .stream(&stream)
            .iter()
            .map(|assignment| ShardRoute {
                shard: assignment.shard.to_string(),
                leader: assignment.leader.as_ref().map(ToString::to_string),
                address: assignment.leader.as_ref().and_then(|b| self.routes.address_of(b)),
                generation: assignment.generation,
            })
            .collect();
        if shards.is_empty() {
            let detail = format!("no shard of '{stream}' is placed, as far as this broker knows");
            return Err(refuse(Reason::NotFound, detail));
        }
        Ok(DescribeResponse { shards })
    }
}
