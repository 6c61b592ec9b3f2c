//! `keelctl status`: the cluster on one screen.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use evenkeel_proto::admin::StatusRequest;
use serde_json::Value;

use crate::cli::Global;
use crate::output::{Format, cell, emit, print_text};
use crate::{Failure, document};

/// Once, or again and again.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Ask again every so many seconds, until Ctrl-C.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    watch: Option<u64>,
}

/// Asks and prints. A watch clears the screen of a terminal, and writes one JSON document a line.
pub(crate) async fn run(global: &Global, options: Options) -> Result<(), Failure> {
    let admin = global.admin()?;
    // One for all rounds: what comes while the next answer is on its way is not lost.
    let mut ended = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let status = admin
            .call("show the status", true, |mut c| async move { c.status(StatusRequest {}).await })
            .await?;
        let document = document::status(&status);
        let Some(seconds) = options.watch else {
            return emit(global.output, &document, screen);
        };
        match global.output {
            Format::Json => print_text(&document.to_string())?,
            form => {
                if std::io::stdout().is_terminal() {
                    print_text("\x1b[2J\x1b[H")?;
                }
                emit(form, &document, screen)?;
            }
        }
        tokio::select! {
            biased;
            _ = &mut ended => return Ok(()),
            () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
        }
    }
}

fn screen(s: &Value) -> String {
    let n = |field: &str| cell(&s[field]);
    let checks = s["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let health = match (checks.len(), s["paused"].as_bool().unwrap_or_default()) {
        (0, false) => "ok".to_owned(),
        (0, true) => format!("ok, placement paused by {}", n("paused_by")),
        (1, false) => "1 check".to_owned(),
        (count, false) => format!("{count} checks"),
        (count, true) => format!("{count} checks, placement paused by {}", n("paused_by")),
    };
    let mut lines = vec![format!(
        "cluster   {health}   revision {}   leader {} at {}",
        n("revision"),
        n("leader"),
        n("leader_address")
    )];
    for check in checks {
        lines.push(format!("  check   {:<26} {}", cell(&check["name"]), cell(&check["summary"])));
    }
    lines.push(format!(
        "brokers   {} live, {} draining, {} down, {} left",
        n("brokers_live"),
        n("brokers_draining"),
        n("brokers_down"),
        n("brokers_left")
    ));
    lines.push(format!(
        "shards    {}: {} serving, {} under-replicated ({} replicas missing)",
        n("shards"),
        n("shards_serving"),
        n("shards_under_replicated"),
        n("replicas_missing")
    ));
    lines.push(format!(
        "moves     {} in flight, {} waiting",
        n("moves_in_flight"),
        n("moves_waiting")
    ));
    lines.push(format!(
        "balance   widest spread within a stream {}, load CV {} %",
        n("stream_spread"),
        n("cv_percent")
    ));
    let migrator = match n("migrator") {
        name if name.is_empty() => "none elected".to_owned(),
        name => name,
    };
    lines.push(format!("migrator  {migrator}"));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use evenkeel_proto::admin::{Check, StatusResponse};

    use super::*;

    #[test]
    fn the_screen_names_every_check() {
        let status = StatusResponse {
            leader: "lm-1".into(),
            leader_address: "h:1".into(),
            revision: 7,
            checks: vec![Check { name: "BROKER_DOWN".into(), summary: "b4 is down".into() }],
            brokers_live: 3,
            brokers_down: 1,
            shards: 12,
            shards_serving: 12,
            cv_percent: Some(12.345),
            ..Default::default()
        };
        let expected = "\
cluster   1 check   revision 7   leader lm-1 at h:1
  check   BROKER_DOWN                b4 is down
brokers   3 live, 0 draining, 1 down, 0 left
shards    12: 12 serving, 0 under-replicated (0 replicas missing)
moves     0 in flight, 0 waiting
balance   widest spread within a stream 0, load CV 12.35 %
migrator  none elected";
        assert_eq!(screen(&document::status(&status)), expected);
    }
}
