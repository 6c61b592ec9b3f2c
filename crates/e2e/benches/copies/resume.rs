//! kill -9 of a copy's destination, its source and the migrator at random points of it, started
//! again at once: how many bytes travel twice, and whether the result is the same.

use std::time::Duration;

use anyhow::Context;
use evenkeel_e2e::bench::figures::{Aim, Figures, Sample};
use evenkeel_e2e::bench::growth::stored;
use evenkeel_e2e::bench::meters::Meters;
use evenkeel_model::{BrokerId, ShardKey};
use evenkeel_proto::copy::shard_copy_client::ShardCopyClient;
use evenkeel_proto::copy::{DigestRequest, DigestResponse};
use evenkeel_proto::migrations::ListMigrationsRequest;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{Instant, sleep};

use crate::Args;
use crate::stage::Stage;

const PART: &str = "resume";
const BROKERS: [&str; 3] = ["b1", "b2", "b3"];

/// A copy is this large, MiB: it takes some seconds at the share that a controller starts with.
const SHARD_MIB: u64 = 24;

/// A leader ships the last thousand records itself, uncounted: small ones, so that they are less
/// than what is looked for.
const RECORD_BYTES: usize = 256;

/// Copies that nobody disturbs, to compare with.
const UNDISTURBED: u32 = 3;

/// Kills fall into this part of a copy.
const POINTS: std::ops::Range<f64> = 0.1..0.9;

const POLL: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Nobody,
    Destination,
    Source,
    Migrator,
}

impl Victim {
    fn word(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Destination => "the destination",
            Self::Source => "the source",
            Self::Migrator => "the migrator",
        }
    }
}

/// What one copy took.
struct Copied {
    /// Bytes that travelled, as the side that lived counted them.
    bytes: f64,
    size: f64,
    took: Duration,
    identical: bool,
}

pub(crate) async fn run(args: &Args, figures: &mut Figures) -> anyhow::Result<()> {
    let mut stage = Stage::start(args, BROKERS.len() as u32, 1, Duration::from_secs(60)).await?;
    let measured = measure(args, &mut stage, figures).await;
    stage.explain(measured)
}

async fn measure(args: &Args, stage: &mut Stage, figures: &mut Figures) -> anyhow::Result<()> {
    let mut rng = StdRng::seed_from_u64(args.seed);
    // Each shard is copied once: what it leaves behind would be built upon the next time.
    let shards = UNDISTURBED + 3 * args.kills;
    let stream = stage.stream_of("resume", shards, 2, SHARD_MIB << 20, RECORD_BYTES).await?;
    let mut shards = (0..shards).map(|number| stream.shard(number));
    let mut next = || shards.next().context("no shard is left");
    let mut undisturbed = Sample::default();
    for _ in 0..UNDISTURBED {
        undisturbed.add(copy(stage, &next()?, Victim::Nobody, 1.0).await?.bytes);
    }
    let mut identical = (0, 0);
    for victim in [Victim::Destination, Victim::Source, Victim::Migrator] {
        let (mut again, mut took) = (Sample::default(), Sample::default());
        for _ in 0..args.kills {
            let point = rng.random_range(POINTS);
            let copied = copy(stage, &next()?, victim, point).await;
            let killed = || format!("{} killed at {point:.2} of the copy", victim.word());
            let copied = copied.with_context(killed)?;
            let more = copied.bytes - undisturbed.quantile(0.5);
            eprintln!(
                "  {}: {:.1} % again, {:.1} s",
                killed(),
                more / copied.size * 100.0,
                copied.took.as_secs_f64()
            );
            again.add((more / copied.size * 100.0).max(0.0));
            took.add(copied.took.as_secs_f64());
            identical.1 += 1;
            identical.0 += u32::from(copied.identical);
        }
        let name = format!("kill -9 of {}: bytes sent again, of the shard's size", victim.word());
        figures.median(PART, &name, &again, "%");
        figures.bars(Aim::AtMost(5.0), Aim::AtMost(1.0));
        let name = format!("kill -9 of {}: the whole move", victim.word());
        figures.median(PART, &name, &took, "s");
    }
    let (same, all) = identical;
    let name = format!("results of {all} kills that are the same as their source");
    figures.add(PART, &name, f64::from(same) / f64::from(all) * 100.0, "%");
    figures.aim(Aim::AtLeast(100.0));
    Ok(())
}

/// Moves the shard to the broker without it, and kills one of those involved at a part of it.
async fn copy(
    stage: &mut Stage,
    shard: &ShardKey,
    victim: Victim,
    point: f64,
) -> anyhow::Result<Copied> {
    let before = stage.records.assignment(shard)?;
    let leader = before.leader.clone().context("the shard has no leader")?;
    let outside = BROKERS.into_iter().find(|b| before.role_of(&id(b)).is_none());
    let to = outside.context("every broker holds the shard")?;
    let size = stored(&stage.cluster.shard_folder(leader.as_str(), shard));
    let counted = counts(stage).await?;
    let began = Instant::now();
    stage.move_shard(shard, to).await?;
    let at = (size as f64 * point) as u64;
    if victim != Victim::Nobody {
        stage.arrived(to, shard, at).await?;
        let name = match victim {
            Victim::Destination => to.to_owned(),
            Victim::Source => source(stage, shard).await?,
            Victim::Nobody | Victim::Migrator => "mig1".to_owned(),
        };
        stage.cluster.kill9(&name)?;
        stage.cluster.start_process(&name)?;
    }
    stage.moved(shard, to).await?;
    let took = began.elapsed();
    let after = counts(stage).await?;
    // Counts start anew with a process: what the others sent, or what arrived here.
    let bytes = match victim {
        Victim::Destination => after.sent(Some(to)) - counted.sent(Some(to)),
        Victim::Source => after.arrived(to) - counted.arrived(to),
        Victim::Nobody | Victim::Migrator => after.sent(None) - counted.sent(None),
    };
    let identical = identical(stage, shard).await?;
    stage.at_rest(&shard.stream, 2).await?;
    Ok(Copied { bytes, size: size as f64, took, identical })
}

fn id(broker: &str) -> BrokerId {
    BrokerId::new(broker).unwrap_or_else(|error| unreachable!("{broker}: {error}"))
}

/// Which broker the migrator lets it be copied from.
async fn source(stage: &Stage, shard: &ShardKey) -> anyhow::Result<String> {
    let mut migrations = stage.cluster.migrations().await?;
    let listed = migrations.list_migrations(ListMigrationsRequest::default()).await?.into_inner();
    let copy = listed.migrations.into_iter().find(|m| m.shard == shard.to_string());
    copy.and_then(|m| m.source).context("the copy has no source")
}

/// Copy bytes of every broker's process, out and in.
struct Counts(Vec<(&'static str, f64, f64)>);

async fn counts(stage: &Stage) -> anyhow::Result<Counts> {
    let mut counts = Vec::new();
    for broker in BROKERS {
        let meters = Meters::read(&stage.cluster, broker).await?;
        let sum = |direction| meters.sum("evenkeel_broker_copy_bytes_total", direction);
        counts.push((broker, sum("egress"), sum("ingress")));
    }
    Ok(Counts(counts))
}

impl Counts {
    fn sent(&self, but: Option<&str>) -> f64 {
        self.0.iter().filter(|(b, ..)| Some(*b) != but).map(|(_, out, _)| out).sum()
    }

    fn arrived(&self, at: &str) -> f64 {
        self.0.iter().filter(|(b, ..)| *b == at).map(|(_, _, into)| into).sum()
    }
}

/// Whether all replicas have the same records, as they lie on their disks.
async fn identical(stage: &Stage, shard: &ShardKey) -> anyhow::Result<bool> {
    let assignment = stage.records.assignment(shard)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut digests: Vec<DigestResponse> = Vec::new();
        for broker in assignment.voters() {
            let address = stage.cluster.address(broker.as_str())?;
            let mut client = ShardCopyClient::new(stage.cluster.network.channel(address));
            let request = DigestRequest {
                shard: shard.to_string(),
                generation: assignment.generation,
                from_offset: 0,
                to_offset: u64::MAX,
            };
            digests.push(client.digest(request).await?.into_inner());
        }
        let ends: Vec<u64> = digests.iter().map(|digest| digest.to_offset).collect();
        // A follower learns a moment later what is committed.
        if ends.windows(2).all(|pair| pair[0] == pair[1]) {
            return Ok(digests.windows(2).all(|pair| pair[0] == pair[1]));
        }
        anyhow::ensure!(Instant::now() < deadline, "replicas end at {ends:?}");
        sleep(POLL).await;
    }
}
