//! `keelctl pause` and `keelctl resume`.

use clap::Args;
use evenkeel_proto::admin::{PauseRequest, ResumeRequest};
use serde_json::json;

use crate::Failure;
use crate::cli::Global;
use crate::output::emit;

/// Why and for how long.
#[derive(Debug, Args)]
pub(crate) struct PauseOptions {
    /// Kept with the pause, for others to read.
    #[arg(long)]
    reason: String,
    /// Who pauses.
    #[arg(long, env = "USER", default_value = "operator")]
    by: String,
    /// Lift it after this long, seconds; never if not given.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(1..=31_536_000))]
    r#for: Option<i64>,
}

/// Who ends it.
#[derive(Debug, Args)]
pub(crate) struct ResumeOptions {
    /// Who ends the pause.
    #[arg(long, env = "USER", default_value = "operator")]
    by: String,
}

/// Holds balance moves, and new copies of drains and restores.
pub(crate) async fn pause(global: &Global, options: PauseOptions) -> Result<(), Failure> {
    let for_ms = options.r#for.map(|seconds| seconds * 1000);
    let request = PauseRequest { by: options.by, reason: options.reason, for_ms };
    global
        .admin()?
        .call("pause placement", true, |mut c| {
            let request = request.clone();
            async move { c.pause(request).await }
        })
        .await?;
    let document = json!({ "paused": true, "by": request.by, "reason": request.reason });
    emit(global.output, &document, |_| "placement is paused".to_owned())
}

/// Ends a pause.
pub(crate) async fn resume(global: &Global, options: ResumeOptions) -> Result<(), Failure> {
    let request = ResumeRequest { by: options.by };
    global
        .admin()?
        .call("resume placement", true, |mut c| {
            let request = request.clone();
            async move { c.resume(request).await }
        })
        .await?;
    emit(global.output, &json!({ "paused": false }), |_| "placement goes on".to_owned())
}
