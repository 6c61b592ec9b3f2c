//! `keelctl migrations pause` and `resume`.

use clap::Args;
use evenkeel_model::{CopyClass, PauseScope, ShardKey};
use evenkeel_proto::migrations::{PauseCopiesRequest, ResumeCopiesRequest};
use serde_json::{Value, json};

use super::elected::Elected;
use super::{Where, screen};
use crate::cli::Global;
use crate::commands::shards::parse_shard;
use crate::output::emit;
use crate::{Failure, document};

/// What to hold, why, and for how long. Without a class or a shard: drains,
/// spread, balance and maintenance.
#[derive(Debug, Args)]
pub(crate) struct Pause {
    /// Copies of this class; repairs have to be named. May be repeated.
    #[arg(long, value_name = "CLASS")]
    class: Vec<CopyClass>,
    /// The copy of this shard, whatever its class. May be repeated.
    #[arg(long, value_parser = parse_shard)]
    shard: Vec<ShardKey>,
    /// Every copy, repairs as well.
    #[arg(long, conflicts_with_all = ["class", "shard"])]
    all: bool,
    /// Kept with the pause, for others to read.
    #[arg(long)]
    reason: String,
    /// Who pauses.
    #[arg(long, env = "USER", default_value = "operator")]
    by: String,
    /// It ends by itself after this long, such as 90s, 30m, 2h or 1d.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_ms)]
    r#for: Option<i64>,
    #[command(flatten)]
    at: Where,
}

/// Which pauses to end; all of them without a class or a shard.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// The pause of this class. May be repeated.
    #[arg(long, value_name = "CLASS")]
    class: Vec<CopyClass>,
    /// The pause of this shard. May be repeated.
    #[arg(long, value_parser = parse_shard)]
    shard: Vec<ShardKey>,
    /// Who ends it.
    #[arg(long, env = "USER", default_value = "operator")]
    by: String,
    #[command(flatten)]
    at: Where,
}

pub(super) async fn pause(global: &Global, options: Pause) -> Result<(), Failure> {
    let elected = Elected::new(global, &options.at);
    let request = PauseCopiesRequest {
        scopes: scopes(&options.class, &options.shard),
        all: options.all,
        by: options.by,
        reason: options.reason,
        for_ms: options.r#for,
    };
    let answer = elected
        .call("pause copies", true, |mut c| {
            let request = request.clone();
            async move { c.pause_copies(request).await }
        })
        .await?;
    let rows: Vec<Value> = answer.pauses.iter().map(document::copy_pause).collect();
    emit(global.output, &json!({ "pauses": rows }), |d| screen::pauses(&d["pauses"]))
}

pub(super) async fn resume(global: &Global, options: Resume) -> Result<(), Failure> {
    let elected = Elected::new(global, &options.at);
    let request =
        ResumeCopiesRequest { scopes: scopes(&options.class, &options.shard), by: options.by };
    let answer = elected
        .call("resume copies", false, |mut c| {
            let request = request.clone();
            async move { c.resume_copies(request).await }
        })
        .await?;
    let rows: Vec<Value> = answer.ended.iter().map(document::copy_pause).collect();
    emit(global.output, &json!({ "ended": rows }), |d| {
        let ended = d["ended"].as_array().map(Vec::as_slice).unwrap_or_default();
        match ended.len() {
            0 => "nothing of that was paused".to_owned(),
            _ => {
                let scopes = ended.iter().map(|pause| crate::output::cell(&pause["scope"]));
                format!("copies go on: {}", scopes.collect::<Vec<_>>().join(", "))
            }
        }
    })
}

fn scopes(classes: &[CopyClass], shards: &[ShardKey]) -> Vec<String> {
    let classes = classes.iter().map(|class| PauseScope::Class(*class).to_string());
    let shards = shards.iter().map(|shard| PauseScope::Shard(shard.clone()).to_string());
    classes.chain(shards).collect()
}

/// A number with s, m, h or d behind it.
fn parse_duration_ms(text: &str) -> Result<i64, String> {
    let expected = "expected a whole number with s, m, h or d behind it, such as 30m, up to a year";
    let unit = text.chars().last().ok_or(expected)?;
    let seconds: i64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(expected.to_owned()),
    };
    let number = text[..text.len() - 1].parse::<i64>().map_err(|_| expected)?;
    let total = number.checked_mul(seconds).filter(|s| (1..=31_536_000).contains(s));
    total.map(|seconds| seconds * 1000).ok_or_else(|| expected.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_whole_numbers_with_a_unit() {
        for (text, ms) in
            [("90s", 90_000), ("30m", 1_800_000), ("2h", 7_200_000), ("1d", 86_400_000)]
        {
            assert_eq!(parse_duration_ms(text), Ok(ms));
        }
        for bad in ["", "s", "5", "-1m", "0s", "1.5h", "1w", "99999999999999999h", "366d", "5µ"] {
            assert!(parse_duration_ms(bad).is_err(), "{bad}");
        }
    }
}
