//! How exactly a bucket holds its rate in real time: over seconds, in the worst tenth of one, and
//! after a change.

use std::time::Duration;

use evenkeel_broker_agent::copies::bucket::Bucket;
use evenkeel_broker_agent::copies::pieces::chunk_bytes;
use evenkeel_e2e::bench::figures::{Aim, Figures, Sample};
use evenkeel_e2e::bench::growth::Course;
use tokio::time::{Instant, sleep};

use crate::Args;

const PART: &str = "rates";

/// MB/s.
const RATES: [u64; 4] = [5, 20, 100, 300];
const CHANGES: [(u64, u64); 3] = [(5, 100), (100, 5), (100, 300)];

const WINDOW: Duration = Duration::from_millis(100);

/// The bucket is full when it starts: what it has saved up passes first.
const SETTLED: Duration = Duration::from_millis(500);

/// How long a rate stands before and after a change.
const STEP: Duration = Duration::from_secs(2);

/// In so short a time the new rate must show.
const SPAN: Duration = Duration::from_millis(250);

pub(crate) async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let seconds = Duration::from_secs(args.seconds);
    let all = RATES.map(|rate| tokio::spawn(taken(Bucket::new(rate * 1_000_000), seconds)));
    for (rate, course) in RATES.into_iter().zip(all) {
        let course = course.await?;
        let (from, to) = (course.0[0].0 + SETTLED, course.0[0].0 + seconds);
        let allowed = (rate * 1_000_000) as f64;
        let off = (course.rate(from, to) / allowed - 1.0) * 100.0;
        let name = format!("{rate} MB/s over {} s: off by", args.seconds);
        figures.add(PART, &name, off.abs(), "%");
        figures.bars(Aim::AtMost(2.0), Aim::AtMost(0.5));
        let worst = course.fastest(from, to, WINDOW) / allowed;
        figures.add(PART, &format!("{rate} MB/s: worst 100 ms over the rate"), worst, "");
        figures.bars(Aim::AtMost(1.5), Aim::AtMost(1.2));
    }
    let mut times = Sample::default();
    for (before, after) in CHANGES {
        times.add(change(before * 1_000_000, after * 1_000_000).await?);
    }
    let name = format!("change of the rate to within 5 % of it, {} changes", CHANGES.len());
    figures.median(PART, &name, &times, "ms");
    figures.bars(Aim::AtMost(1000.0), Aim::AtMost(250.0));
    Ok(())
}

/// Chunk after chunk through the bucket, for a time.
async fn taken(bucket: Bucket, time: Duration) -> Course {
    let (began, mut bytes) = (Instant::now(), 0);
    let mut course = Course(vec![(began, 0)]);
    while began.elapsed() < time {
        let chunk = chunk_bytes(bucket.rate()) as u64;
        bucket.take(chunk).await;
        bytes += chunk;
        course.0.push((Instant::now(), bytes));
    }
    course
}

/// Milliseconds from a change to the start of a span that flows at the new rate.
async fn change(before: u64, after: u64) -> anyhow::Result<f64> {
    let bucket = Bucket::new(before);
    let taking = tokio::spawn(taken(bucket.clone(), 2 * STEP));
    sleep(STEP).await;
    let changed = Instant::now();
    bucket.set_rate(after);
    let course = taking.await?;
    let near = |rate: f64| (rate / after as f64 - 1.0).abs() <= 0.05;
    let settled = course.first_window(changed, SPAN, near);
    let settled = settled.ok_or_else(|| anyhow::anyhow!("the rate of {after} never shows"))?;
    Ok((settled - changed).as_secs_f64() * 1000.0)
}
