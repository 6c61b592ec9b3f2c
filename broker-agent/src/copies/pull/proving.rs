//! A copy counts only when all of it is here as the source has it.
//!
//! What arrived in chunks is read back from the disk and compared with what it was then; what an
//! earlier try brought is compared with the source itself.

use std::time::Duration;

use evenkeel_proto::copy::DigestRequest;
use evenkeel_proto::copy::shard_copy_client::ShardCopyClient;
use tokio::time::{Instant, timeout};
use tonic::transport::Channel;

use super::Pull;
use super::unproven::{STEP_BYTES, Span};
use crate::copies::failure::Failed;
use crate::copies::orders::Order;
use crate::host::RangeDigest;
use crate::metrics;

/// A source that takes longer to say what a step of its records is is given up.
const COMPARE_LIMIT: Duration = Duration::from_secs(30);

impl Pull {
    /// Proves what is not proven yet. Only then does the copy count.
    pub(super) async fn prove(
        &mut self,
        mut client: ShardCopyClient<Channel>,
    ) -> Result<(), Failed> {
        let Order { shard, generation, .. } = self.order.clone();
        self.position = self.to.host.copy_position(&shard).await?;
        let start = self.position.start_offset.max(self.source_start);
        self.unproven.keep(start, self.position.end_offset);
        while let Some(span) = self.unproven.next(true) {
            let found = self.to.host.digest(&shard, span.from, span.to, u64::MAX).await?;
            self.read_back(span, found)?;
            let detail = format!("read back up to record {}", span.to);
            self.to.desk.note(&shard, self.progress("running", detail), false);
        }
        while let Some(span) = self.unproven.unknown() {
            self.presence.moves();
            let compared = self.compare(&mut client, span).await?;
            self.unproven.compared(compared);
            let detail = format!("compared with its source up to record {compared} of {}", span.to);
            self.to.desk.note(&shard, self.progress("running", detail), false);
        }
        self.to.host.copy_verified(&shard, generation).await?;
        Ok(())
    }

    pub(super) fn read_back(&mut self, span: Span, found: RangeDigest) -> Result<(), Failed> {
        self.presence.moves();
        let Span { from, to } = span;
        if found.to_offset < to {
            return Err(Failed::Gone(from, to));
        }
        if !self.unproven.read_back(span, found) {
            metrics::checksum_failure();
            return Err(Failed::Decayed(from, to));
        }
        Ok(())
    }

    /// Compares the first records of a span with the source's; answers where to go on.
    async fn compare(
        &self,
        client: &mut ShardCopyClient<Channel>,
        span: Span,
    ) -> Result<u64, Failed> {
        let Order { shard, generation, .. } = &self.order;
        let Span { from, to } = span;
        let began = Instant::now();
        let here = self.to.host.digest(shard, from, to, STEP_BYTES).await?;
        self.to.admission.rest_after(began.elapsed()).await;
        let asked = DigestRequest {
            shard: shard.to_string(),
            generation: *generation,
            from_offset: from,
            to_offset: here.to_offset,
        };
        let there = timeout(COMPARE_LIMIT, client.digest(asked)).await;
        let there = there
            .map_err(|_| Failed::Source("it does not say what its records are".to_owned()))??
            .into_inner();
        if there.to_offset != here.to_offset {
            let detail =
                format!("it has records up to {}, not {}", there.to_offset, here.to_offset);
            return Err(Failed::Source(detail));
        }
        if (there.crc32c, there.bytes) != (here.crc32c, here.bytes) {
            metrics::checksum_failure();
            return Err(Failed::Differs(from, here.to_offset));
        }
        if here.to_offset == from {
            return Err(Failed::Source(format!("no record at {from} to compare")));
        }
        Ok(here.to_offset)
    }
}
