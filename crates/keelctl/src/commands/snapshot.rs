//! `keelctl snapshot`: the planner's input, from the live cluster.

use evenkeel_proto::admin::SnapshotRequest;

use crate::Failure;
use crate::cli::Global;
use crate::output::{Format, emit};

/// Prints the snapshot. It is a document, so the form for people is JSON too.
pub(crate) async fn run(global: &Global) -> Result<(), Failure> {
    let admin = global.admin()?;
    let document = admin
        .document("take a snapshot", |mut c| async move { c.snapshot(SnapshotRequest {}).await })
        .await?;
    let format = if global.output == Format::Table { Format::Json } else { global.output };
    emit(format, &document, |d| d.to_string())
}
