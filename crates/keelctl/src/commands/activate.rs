//! `keelctl activate`: put a broker back into placement.

use clap::Args;

use crate::Failure;
use crate::cli::Global;

/// Which broker.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The broker that may be given shards again.
    broker: String,
}

/// Activates it.
pub(crate) async fn run(global: &Global, options: Options) -> Result<(), Failure> {
    super::drain::activate(global, &global.admin()?, &options.broker).await
}
