//! `keelctl status`: the cluster on one screen.

use evenkeel_proto::admin::StatusRequest;
use serde_json::Value;

use crate::cli::Global;
use crate::output::cell;
use crate::watch::Watch;
use crate::{Failure, document};

/// Once, or again and again.
pub(crate) type Options = Watch;

/// Asks and prints.
pub(crate) async fn run(global: &Global, options: Options) -> Result<(), Failure> {
    let admin = &global.admin()?;
    let ask = || async {
        let status = admin
            .call("show the status", true, |mut c| async move { c.status(StatusRequest {}).await })
            .await?;
        Ok(document::status(&status))
    };
    options.run(global, ask, screen).await
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
