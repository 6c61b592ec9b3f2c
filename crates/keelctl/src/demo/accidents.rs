//! The acts in which something happens to the cluster, while the producers publish.

use tokio::time::Instant;

use super::Scale;
use super::cluster::View;
use super::stage::{FACTOR, Stage, begin, show_leaders};
use crate::Failure;
use crate::commands::{drain, moves};

/// A broker more, one less, one dead, the leading load manager dead, and everything repaired.
pub(crate) async fn accidents(stage: &Stage<'_>, scale: Scale) -> Result<(), Failure> {
    begin(stage, "publishing, until there is something to copy");
    let enough = scale.bytes() / 4;
    stage
        .cluster
        .until("a quarter of the text to be published", || async {
            let done = stage.ledger.progress().bytes;
            let said = format!("{} MiB are acknowledged", done >> 20);
            // Input of the user's may be shorter: then what is there has to do.
            Ok(if done >= enough || stage.ledger.is_quiet() { Ok(()) } else { Err(said) })
        })
        .await?;
    add_a_broker(stage, scale.brokers() + 1).await?;
    drain_one(stage, "b2").await?;
    kill_one(stage, "b3").await?;
    kill_the_leader_in_a_move(stage).await?;
    begin(stage, "repairing: every shard back at three replicas, every stream even");
    let view = stage.cluster.until_even(stage.shards, FACTOR).await?;
    show_leaders(stage, &view);
    Ok(())
}

async fn add_a_broker(stage: &Stage<'_>, number: u32) -> Result<(), Failure> {
    begin(stage, &format!("adding broker b{number}: every stream evens out over it"));
    stage.services.start_broker(number)?;
    stage.cluster.until_live(number as usize).await?;
    let view = stage.cluster.until_even(stage.shards, FACTOR).await?;
    show_leaders(stage, &view);
    Ok(())
}

async fn drain_one(stage: &Stage<'_>, broker: &str) -> Result<(), Failure> {
    begin(stage, &format!("draining broker {broker}: it gives away everything it holds"));
    drain::begin(&stage.cluster.admin, broker).await?;
    stage
        .cluster
        .until(&format!("broker {broker} to be empty"), || async {
            let view = stage.cluster.view().await?;
            let it = view.brokers.iter().find(|b| b.id == broker);
            Ok(match it.map(|b| (b.leaders, b.replicas)) {
                None | Some((_, 0)) => Ok(()),
                Some((leaders, replicas)) => {
                    Err(format!("{broker} leads {leaders} and holds {replicas}"))
                }
            })
        })
        .await?;
    show_leaders(stage, &stage.cluster.view().await?);
    begin(stage, &format!("putting broker {broker} back: it is given its share again"));
    drain::put_back(&stage.cluster.admin, broker).await?;
    let view = stage.cluster.until_even(stage.shards, FACTOR).await?;
    show_leaders(stage, &view);
    Ok(())
}

async fn kill_one(stage: &Stage<'_>, broker: &str) -> Result<(), Failure> {
    begin(stage, &format!("killing broker {broker} without warning"));
    stage.services.kill_broker(broker)?;
    stage.observer.died(broker);
    let killed = Instant::now();
    stage
        .cluster
        .until("every shard to be led again", || async {
            let view = stage.cluster.view().await?;
            let led_by_it =
                view.shards.iter().filter(|a| a.leader.as_deref().is_none_or(|l| l == broker));
            let (left, serving) = (led_by_it.count(), stage.cluster.status().await?.shards_serving);
            Ok(match left {
                0 if serving as usize == stage.shards => Ok(()),
                0 => Err(format!("{serving} of {} shards serve", stage.shards)),
                left => Err(format!("{left} shards wait for a new leader")),
            })
        })
        .await?;
    let seconds = killed.elapsed().as_secs_f64();
    stage.screen.say(format!("          every shard is led again {seconds:.1} s after the kill"));
    Ok(())
}

/// A move is begun by hand; once it is staged, the load manager that staged it is killed.
async fn kill_the_leader_in_a_move(stage: &Stage<'_>) -> Result<(), Failure> {
    begin(stage, "killing the leading load manager in the middle of a move");
    let status = stage.cluster.status().await?;
    let (shard, to, staged_at) = stage
        .cluster
        .until("a shard that can be moved", || async {
            let view = stage.cluster.view().await?;
            let mut last = "no broker is free to take one".to_owned();
            for (shard, to) in candidates(&view) {
                match moves::start(&stage.cluster.admin, &shard, &to, false).await {
                    Ok(answer) => {
                        let assignment = answer.assignment.unwrap_or_default();
                        return Ok(Ok((shard, to, assignment.generation)));
                    }
                    Err(Failure::No(why)) => last = why,
                    Err(other) => return Err(other),
                }
            }
            Ok(Err(last))
        })
        .await?;
    let killed = stage.services.kill_load_manager(&status.leader_address)?;
    stage.screen.say(format!(
        "          {killed} is killed after it staged the move of {shard} to {to} (generation {staged_at})"
    ));
    let next = stage
        .cluster
        .until("the other load manager to take over", || async {
            let now = stage.cluster.status().await?;
            let other = now.leader_address != status.leader_address;
            Ok(if other { Ok(now.leader) } else { Err("nobody is elected yet".to_owned()) })
        })
        .await?;
    let leader = stage
        .cluster
        .until("the move to end", || async {
            let view = stage.cluster.view().await?;
            let Some(a) = view.shards.iter().find(|a| a.shard == shard) else {
                return Ok(Err(format!("{shard} is not listed")));
            };
            let moving = a.successor.is_some() || a.state == "draining";
            let leader = a.leader.clone().unwrap_or_default();
            Ok(if moving { Err(format!("{shard} moves to {to}")) } else { Ok(leader) })
        })
        .await?;
    stage.screen.say(format!("          {next} took over; {shard} is led by {leader}"));
    stage.services.start_load_manager(&killed)
}

/// Shards that nothing is under way for, each with a live broker that holds no copy of it.
fn candidates(view: &View) -> Vec<(String, String)> {
    let live = view.live();
    let still = view.shards.iter().filter(|a| a.successor.is_none() && a.joining.is_none());
    let led = still.filter(|a| a.leader.as_deref().is_some_and(|l| live.contains(l)));
    led.filter_map(|a| {
        let holds = |b: &str| {
            a.leader.as_deref() == Some(b) || a.followers.iter().any(|follower| follower == b)
        };
        let to = live.iter().find(|b| !holds(b))?;
        Some((a.shard.clone(), (*to).to_owned()))
    })
    .collect()
}
