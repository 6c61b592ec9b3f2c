//! Publishing with three replicas, synced before it counts: how much in batches, how fast alone.

use std::time::Duration;

use evenkeel_client::Client;
use evenkeel_e2e::bench::figures::Figures;
use evenkeel_e2e::bench::publishers::{Work, closed_loop, for_a_while, open_loop};

use crate::{Args, SHARDS, stream_key};

const PART: &str = "publish";
const PRODUCERS: u32 = 16;

/// Distance of the single records: 250 a second.
const DISTANCE: Duration = Duration::from_millis(4);

/// Routes are read and connections made before it counts.
const WARM_UP: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &Args, client: &Client, figures: &mut Figures) -> anyhow::Result<()> {
    let batches = Work { stream: stream_key()?, shards: SHARDS, records: 64, record_bytes: 1024 };
    let single = Work { records: 1, record_bytes: 100, ..batches.clone() };
    for_a_while(WARM_UP, async |stop| closed_loop(client, &single, PRODUCERS, stop).await).await;

    let seconds = Duration::from_secs(args.seconds);
    let (outcome, took) =
        for_a_while(seconds, async |stop| closed_loop(client, &batches, PRODUCERS, stop).await)
            .await;
    outcome.check()?;
    let rate = outcome.acknowledged.len() as f64 / took.as_secs_f64();
    let bytes = (batches.records * batches.record_bytes) as f64;
    figures.add(PART, "batches of 64 KiB, 16 producers", rate * bytes / 1e6, "MB/s");
    figures.add(PART, "records of 1 KiB in them", rate * batches.records as f64, "1/s");
    figures.spread(PART, "a batch of 64 KiB", &outcome.latencies(), None);

    let (outcome, took) =
        for_a_while(seconds, async |stop| closed_loop(client, &single, 64, stop).await).await;
    outcome.check()?;
    let rate = outcome.acknowledged.len() as f64 / took.as_secs_f64();
    figures.add(PART, "single records of 100 B, 64 producers", rate, "1/s");

    let (outcome, _) =
        for_a_while(seconds, async |stop| open_loop(client, &single, DISTANCE, stop).await).await;
    outcome.check()?;
    figures.spread(PART, "a record of 100 B at 250/s", &outcome.latencies(), None);
    Ok(())
}
