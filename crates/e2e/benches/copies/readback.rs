//! What was acknowledged is read back and compared.

use std::collections::BTreeMap;

use evenkeel_client::Delivery;
use evenkeel_e2e::bench::publishers::Outcome;
use evenkeel_model::StreamKey;

use crate::stage::Stage;

/// Acknowledged records that are not where they should be.
pub(crate) async fn lost(
    stage: &Stage,
    stream: &StreamKey,
    asked: &Outcome,
) -> anyhow::Result<usize> {
    let mut expected: BTreeMap<u32, BTreeMap<u64, u64>> = BTreeMap::new();
    for batch in &asked.acknowledged {
        let shard = expected.entry(batch.shard).or_default();
        shard.extend(batch.offsets.iter().map(|offset| (*offset, batch.turn)));
    }
    let mut lost = 0;
    for (number, mut records) in expected {
        let first = records.keys().next().copied().unwrap_or(0);
        let mut reading = stage.client.read(stream.shard(number), first);
        while let Delivery::Records(batch) = reading.next().await? {
            for record in batch {
                let turn = record.payload.first_chunk::<8>().map(|b| u64::from_le_bytes(*b));
                if records.get(&record.offset).copied() == turn {
                    records.remove(&record.offset);
                }
            }
        }
        lost += records.len();
    }
    Ok(lost)
}
