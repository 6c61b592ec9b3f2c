//! A broker dies under requests: their latency while its replicas are copied again and after, how
//! long that takes over what the links allow, and how much of what is granted is used.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use evenkeel_e2e::bench::figures::{Aim, Figures, Sample};
use evenkeel_e2e::bench::growth::stored;
use evenkeel_e2e::bench::meters::Meters;
use evenkeel_e2e::bench::publishers::{
    Acknowledged, Outcome, Work, closed_loop, for_a_while, open_loop,
};
use evenkeel_model::{BrokerId, ShardKey, StreamKey};
use evenkeel_storm::bound::{Link, Missing, least_seconds_within};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::Args;
use crate::readback::lost;
use crate::stage::{Stage, p99, rests};

const PART: &str = "repair";
const BROKERS: u32 = 6;
const SHARDS: u32 = 64;
const FACTOR: u32 = 3;
const VICTIM: &str = "b6";

/// New leaders serve before the copies begin, so that what is felt is the copies.
const RESTORE_AFTER: Duration = Duration::from_secs(8);

/// The maximum is measured so long.
const FLAT_OUT: Duration = Duration::from_secs(4);
const PRODUCERS: u32 = 32;
/// Of the maximum, what is asked for during the repair.
const LOAD: f64 = 0.5;

const LOOK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let mut stage = Stage::start(args, BROKERS, 1, RESTORE_AFTER).await?;
    let measured = measure(args, &mut stage, figures).await;
    stage.explain(measured)
}

async fn measure(args: &Args, stage: &mut Stage, figures: &mut Figures) -> anyhow::Result<()> {
    let stream = stage.stream("repair", SHARDS, FACTOR, args.repair_mib << 20).await?;
    let work = Work { stream: stream.clone(), shards: SHARDS, records: 1, record_bytes: 1 << 10 };
    let client = stage.client.clone();
    let flat_out =
        async |stop: &watch::Receiver<bool>| closed_loop(&client, &work, PRODUCERS, stop).await;
    let (most, took) = for_a_while(FLAT_OUT, flat_out).await;
    most.check()?;
    let most = most.acknowledged.len() as f64 / took.as_secs_f64();
    figures.add(PART, &format!("most records of 1 KiB, {PRODUCERS} producers"), most, "1/s");
    let distance = Duration::from_secs_f64(1.0 / (most * LOAD));
    let quiet = Duration::from_secs(args.quiet);
    let (stop, stopped) = watch::channel(false);
    let story = async {
        let story = story(stage, &stream, quiet).await;
        let _ = stop.send(true);
        story
    };
    let (story, asked) = tokio::join!(story, open_loop(&client, &work, distance, &stopped));
    let story = story?;
    story.requests(figures, &asked, quiet, args.target);
    story.time(figures, args);
    figures.add(PART, "granted bytes that were used", story.used * 100.0, "%");
    figures.bars(Aim::AtLeast(90.0), Aim::AtLeast(97.0));
    let lost = lost(stage, &stream, &asked).await?;
    let failed = asked.failures.len();
    figures.add(PART, "records acknowledged", asked.acknowledged.len() as f64, "");
    figures.add(PART, "of those, not read back as they were", lost as f64, "");
    figures.aim(Aim::AtMost(0.0));
    figures.add(PART, "records not acknowledged, with the client's retries", failed as f64, "");
    Ok(())
}

/// What happened when.
struct Story {
    began: Instant,
    killed: Instant,
    /// The first copy was asked for.
    from: Instant,
    /// The last one was level and its shard whole.
    to: Instant,
    used: f64,
    bytes_at_first: f64,
    missing: Vec<Missing>,
    /// The same, with the destination that each copy was given.
    given: Vec<Missing>,
    /// Shares of the live brokers over time.
    shares: Vec<(Instant, Vec<f64>)>,
}

async fn story(stage: &mut Stage, stream: &StreamKey, quiet: Duration) -> anyhow::Result<Story> {
    let began = Instant::now();
    sleep(quiet).await;
    let victim: BrokerId = VICTIM.parse()?;
    let live: Vec<String> = stage.cluster.brokers().into_iter().filter(|b| b != VICTIM).collect();
    let mut lost = missing(stage, stream, &victim, &live)?;
    let killed = Instant::now();
    stage.cluster.kill9(VICTIM)?;
    let joins = |stage: &Stage| -> anyhow::Result<BTreeMap<ShardKey, BrokerId>> {
        let all = stage.records.assignments()?.into_iter();
        Ok(all.filter_map(|a| a.joining.map(|to| (a.shard, to))).collect())
    };
    let deadline = killed + PATIENCE;
    while joins(stage)?.is_empty() {
        anyhow::ensure!(Instant::now() < deadline, "no copy is asked for");
        sleep(LOOK / 5).await;
    }
    let from = Instant::now();
    let before = moved(stage, &live).await?;
    let (mut given, mut shares) = (BTreeMap::new(), Vec::new());
    let bytes_at_first = lost.iter().map(|(_, missing)| missing.bytes).sum();
    let factor = FACTOR as usize;
    loop {
        given.extend(joins(stage)?);
        let all = stage.records.assignments()?;
        if all
            .iter()
            .all(|a| rests(a) && a.voters().count() == factor && a.role_of(&victim).is_none())
        {
            break;
        }
        anyhow::ensure!(Instant::now() < deadline, "the repair does not end");
        shares.push((Instant::now(), shares_of(stage, &live).await?));
        for (shard, missing) in &mut lost {
            // What is published until a copy is whole has to be copied too.
            let copied = all.iter().find(|a| a.shard == *shard && a.joining.is_some());
            if let (Some(_), Some(holder)) = (copied, missing.holders.first()) {
                let folder = stage.cluster.shard_folder(&live[*holder], shard);
                missing.bytes = missing.bytes.max(stored(&folder) as f64);
            }
        }
        sleep(LOOK).await;
    }
    let to = Instant::now();
    let after = moved(stage, &live).await?;
    sleep(quiet).await;
    let used = (after.0 - before.0) / (after.1 - before.1);
    let given = given_to(&lost, &given, &live);
    let missing = lost.into_iter().map(|(_, missing)| missing).collect();
    Ok(Story { began, killed, from, to, used, bytes_at_first, missing, given, shares })
}

/// What the victim holds, from whom and to whom it can be copied; brokers by their place in `live`.
fn missing(
    stage: &Stage,
    stream: &StreamKey,
    victim: &BrokerId,
    live: &[String],
) -> anyhow::Result<Vec<(ShardKey, Missing)>> {
    let all = stage.records.assignments()?.into_iter();
    let lost = all.filter(|a| a.shard.stream == *stream && a.role_of(victim).is_some());
    let missing = lost.map(|a| {
        let place = |broker: &BrokerId| live.iter().position(|b| b == broker.as_str());
        let holders: Vec<usize> = a.voters().filter_map(place).collect();
        let allowed = (0..live.len()).filter(|n| !holders.contains(n)).collect();
        let holder = holders.first().map(|n| &live[*n]).context("nobody else holds it")?;
        let bytes = stored(&stage.cluster.shard_folder(holder, &a.shard)) as f64;
        Ok((a.shard, Missing { bytes, holders, allowed }))
    });
    missing.collect()
}

fn given_to(
    lost: &[(ShardKey, Missing)],
    given: &BTreeMap<ShardKey, BrokerId>,
    live: &[String],
) -> Vec<Missing> {
    let with = lost.iter().map(|(shard, missing)| {
        let to = given.get(shard).and_then(|to| live.iter().position(|b| b == to.as_str()));
        let allowed = to.map_or_else(|| missing.allowed.clone(), |to| vec![to]);
        Missing { allowed, ..missing.clone() }
    });
    with.collect()
}

/// Bytes that arrived in copies, and bytes that were granted.
async fn moved(stage: &Stage, live: &[String]) -> anyhow::Result<(f64, f64)> {
    let mut arrived = 0.0;
    for broker in live {
        let meters = Meters::read(&stage.cluster, broker).await?;
        arrived += meters.sum("evenkeel_broker_copy_bytes_total", "ingress");
    }
    let migrator = Meters::read(&stage.cluster, "mig1").await?;
    Ok((arrived, migrator.sum("evenkeel_copy_granted_bytes_total", "")))
}

async fn shares_of(stage: &Stage, live: &[String]) -> anyhow::Result<Vec<f64>> {
    let mut shares = Vec::new();
    for broker in live {
        let meters = Meters::read(&stage.cluster, broker).await?;
        shares.push(meters.sum("evenkeel_broker_throttle_share_ratio", ""));
    }
    Ok(shares)
}

impl Story {
    /// `target` is what the agents hold their own p99 to, milliseconds.
    fn requests(&self, figures: &mut Figures, asked: &Outcome, quiet: Duration, target: f64) {
        let between = |from: Instant, to: Instant| -> Vec<&Acknowledged> {
            let all = asked.acknowledged.iter();
            all.filter(|batch| batch.due >= from && batch.due < to).collect()
        };
        let of = |batches: &[&Acknowledged]| p99(&batches.iter().map(|b| b.took).collect());
        // The first second reads routes and makes connections.
        let before = of(&between(self.began + Duration::from_secs(1), self.killed));
        let during = between(self.from, self.to);
        let after = of(&between(self.to, self.to + quiet));
        figures.add(PART, "a record at half of that, before: p99", before, "ms");
        figures.add(PART, "during the repair: p99", of(&during), "ms");
        figures.add(PART, "during over before", of(&during) / before, "");
        figures.bars(Aim::AtMost(2.0), Aim::AtMost(1.3));
        let most = 1.2 * target;
        let calm = seconds(&during, self.from).filter(|p99| *p99 <= most).count();
        let all = seconds(&during, self.from).count();
        let name = format!("of {all} s of repair, those with p99 at most {most:.0} ms");
        figures.add(PART, &name, calm as f64 / all as f64 * 100.0, "%");
        figures.bars(Aim::AtLeast(90.0), Aim::AtLeast(100.0));
        figures.add(
            PART,
            &format!("in the {} s after the last copy: p99", quiet.as_secs()),
            after,
            "ms",
        );
        figures.add(PART, "after over before", after / before, "");
        figures.bars(Aim::AtMost(1.2), Aim::AtMost(1.1));
    }

    fn time(&self, figures: &mut Figures, args: &Args) {
        let took = (self.to - self.from).as_secs_f64();
        let bytes: f64 = self.missing.iter().map(|copy| copy.bytes).sum();
        let shares = self.shares.iter().flat_map(|(_, shares)| shares);
        let shares: Sample = shares.copied().collect();
        let name =
            format!("copies of {} shards, first asked for to last whole", self.missing.len());
        figures.add(PART, &name, took, "s");
        figures.add(PART, "bytes to copy, when the broker died", self.bytes_at_first / 1e6, "MB");
        figures.add(PART, "bytes to copy, with those published until then", bytes / 1e6, "MB");
        figures.median(PART, "share of the link, over brokers and time", &shares, "");
        let link = args.link_bytes() as f64;
        let bound = |copies: &[Missing], share: &dyn Fn(f64) -> Vec<f64>| {
            let within = |seconds| {
                let room = share(seconds).into_iter().map(|share| share * link);
                room.map(|bytes| Link { egress: bytes, ingress: bytes }).collect()
            };
            least_seconds_within(within, copies, 10.0 * took).unwrap_or(f64::NAN)
        };
        let allowed = |seconds: f64| self.allowed(seconds);
        let least = bound(&self.missing, &allowed);
        figures.add(PART, "flow bound at the shares that were allowed", least, "s");
        figures.add(PART, "time over it", took / least, "");
        figures.bars(Aim::AtMost(1.5), Aim::AtMost(1.2));
        let given = bound(&self.given, &allowed);
        figures.add(PART, "time over the bound with the destinations as chosen", took / given, "");
        let into: Sample = (0..BROKERS as usize - 1)
            .map(|broker| self.given.iter().filter(|copy| copy.allowed == [broker]).count() as f64)
            .collect();
        figures.median(PART, "copies into each broker", &into, "");
        let half = |seconds: f64| vec![0.5 * seconds; (BROKERS - 1) as usize];
        figures.add(
            PART,
            "time over the bound at half of the links",
            took / bound(&self.missing, &half),
            "",
        );
    }

    /// The shares added up over so many seconds from the start; the last ones go on.
    fn allowed(&self, seconds: f64) -> Vec<f64> {
        let mut sums = vec![0.0; (BROKERS - 1) as usize];
        for (number, (at, shares)) in self.shares.iter().enumerate() {
            // The first ones hold from the start.
            let start = if number == 0 { 0.0 } else { (*at - self.from).as_secs_f64() };
            let next = self.shares.get(number + 1);
            let end = next.map_or(f64::INFINITY, |(at, _)| (*at - self.from).as_secs_f64());
            let span = (end.min(seconds) - start).max(0.0);
            sums.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share * span);
        }
        sums
    }
}

/// The p99 of each whole second.
fn seconds(batches: &[&Acknowledged], from: Instant) -> impl Iterator<Item = f64> {
    let mut seconds: BTreeMap<u64, Vec<Duration>> = BTreeMap::new();
    for batch in batches {
        seconds.entry((batch.due - from).as_secs()).or_default().push(batch.took);
    }
    seconds.into_values().map(|took| p99(&took.into_iter().collect()))
}
