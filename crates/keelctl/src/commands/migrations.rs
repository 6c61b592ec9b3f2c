//! `keelctl migrations`: copies that the migrator runs, what limits them, and their pauses.

mod elected;
mod pausing;
mod rate;
mod screen;

use clap::Subcommand;
use evenkeel_model::{CopyClass, ShardKey};
use evenkeel_proto::migrations::{
    ListLimitsRequest, ListMigrationsRequest, SetLimitRequest, ShowMigrationRequest,
};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::commands::shards::parse_shard;
use crate::output::emit;
use crate::watch::Watch;
use crate::{Failure, document};
use elected::Elected;

/// What to do with migrations.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Copies in the order of service, with a line for each class and the pauses that are on.
    List {
        /// Only copies of this class.
        #[arg(long, value_name = "CLASS")]
        class: Option<CopyClass>,
        #[command(flatten)]
        watch: Watch,
        #[command(flatten)]
        at: Where,
    },
    /// One copy: why it is there, where from, what limits it, when it ends.
    Show {
        /// kind/namespace/name/number, or namespace/name/number of a stream.
        #[arg(value_parser = parse_shard)]
        shard: ShardKey,
        #[command(flatten)]
        watch: Watch,
        #[command(flatten)]
        at: Where,
    },
    /// What each broker's copies may use, and who says so.
    Limits {
        #[command(flatten)]
        watch: Watch,
        #[command(flatten)]
        at: Where,
    },
    /// Cap a broker's copies.
    SetLimit {
        /// Its id.
        broker: String,
        /// Bytes per second, or with a unit, such as 4MB/s; 0 lifts the cap.
        #[arg(value_name = "RATE", value_parser = rate::parse)]
        bytes_per_second: u64,
        #[command(flatten)]
        at: Where,
    },
    /// Hold copies where they are; routine ones unless repairs are named.
    Pause(pausing::Pause),
    /// End pauses of copies.
    Resume(pausing::Resume),
}

/// Where the migrator is.
#[derive(Debug, clap::Args)]
pub(crate) struct Where {
    /// The elected migrator, host:port; asked of a load manager if not given.
    #[arg(long, env = "EVENKEEL_MIGRATOR", value_name = "ADDR")]
    migrator: Option<String>,
}

/// Runs the verb.
pub(crate) async fn run(global: &Global, verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::List { class, watch, at } => {
            let (at, class) = (&at, class.map(|class| class.as_str().to_owned()));
            let ask = || list(global, at, class.clone());
            watch.run(global, ask, screen::list).await
        }
        Verb::Show { shard, watch, at } => {
            let (at, shard) = (&at, &shard);
            watch.run(global, || show(global, at, shard), screen::show).await
        }
        Verb::Limits { watch, at } => {
            let at = &at;
            watch.run(global, || limits(global, at), screen::limits).await
        }
        Verb::SetLimit { broker, bytes_per_second, at } => {
            set_limit(global, &at, broker, bytes_per_second).await
        }
        Verb::Pause(options) => pausing::pause(global, options).await,
        Verb::Resume(options) => pausing::resume(global, options).await,
    }
}

/// All pages. Copies that end meanwhile may be missed; none is told twice.
async fn list(global: &Global, at: &Where, class: Option<String>) -> Result<Value, Failure> {
    let elected = Elected::new(global, at);
    let mut request = ListMigrationsRequest { class, ..Default::default() };
    let mut copies: Vec<Value> = Vec::new();
    loop {
        let page = elected
            .call("list migrations", true, |mut c| {
                let request = request.clone();
                async move { c.list_migrations(request).await }
            })
            .await?;
        let rows: Vec<Value> = page.migrations.iter().map(document::migration).collect();
        let known = copies.len();
        for row in rows {
            if !copies[..known].iter().any(|old| old["shard"] == row["shard"]) {
                copies.push(row);
            }
        }
        if page.next_page_token.is_empty() || copies.len() == known {
            let classes: Vec<Value> = page.classes.iter().map(document::copy_class).collect();
            let pauses: Vec<Value> = page.pauses.iter().map(document::copy_pause).collect();
            return Ok(json!({ "migrations": copies, "classes": classes, "pauses": pauses }));
        }
        request.page_token = page.next_page_token;
    }
}

async fn show(global: &Global, at: &Where, shard: &ShardKey) -> Result<Value, Failure> {
    let elected = Elected::new(global, at);
    let request = ShowMigrationRequest { shard: shard.to_string() };
    let answer = elected
        .call(&format!("show the copy of {shard}"), true, |mut c| {
            let request = request.clone();
            async move { c.show_migration(request).await }
        })
        .await?;
    Ok(document::shown_migration(&answer))
}

async fn limits(global: &Global, at: &Where) -> Result<Value, Failure> {
    let elected = Elected::new(global, at);
    let answer = elected
        .call("list limits", true, |mut c| async move { c.list_limits(ListLimitsRequest {}).await })
        .await?;
    let rows: Vec<Value> = answer.limits.iter().map(document::limit).collect();
    Ok(json!({ "limits": rows }))
}

async fn set_limit(
    global: &Global,
    at: &Where,
    broker: String,
    bytes_per_second: u64,
) -> Result<(), Failure> {
    let elected = Elected::new(global, at);
    let request = SetLimitRequest { broker: broker.clone(), bytes_per_second };
    elected
        .call(&format!("limit broker {broker}"), true, |mut c| {
            let request = request.clone();
            async move { c.set_limit(request).await }
        })
        .await?;
    let document = json!({ "broker": broker, "bytes_per_second": bytes_per_second });
    emit(global.output, &document, |_| match bytes_per_second {
        0 => format!("copies of broker {broker} have no cap"),
        cap => format!("copies of broker {broker} are capped at {cap} bytes/s"),
    })
}
