//! `keelctl migrations`: copies that the migrator runs, and what limits them.

use clap::Subcommand;
use evenkeel_proto::admin::StatusRequest;
use evenkeel_proto::migrations::migrations_client::MigrationsClient;
use evenkeel_proto::migrations::{ListLimitsRequest, ListMigrationsRequest, SetLimitRequest};
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};

use crate::cli::Global;
use crate::output::{cells, emit, table};
use crate::{Failure, document};

/// What to do with migrations.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Copies: queued, running, paused.
    List(Where),
    /// What each broker's copies may use, and who says so.
    Limits(Where),
    /// Cap a broker's copies.
    SetLimit {
        /// Its id.
        broker: String,
        /// Bytes per second; 0 lifts the cap.
        bytes_per_second: u64,
        #[command(flatten)]
        at: Where,
    },
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
        Verb::List(at) => {
            let mut client = connect(global, at).await?;
            let answer = client.list_migrations(ListMigrationsRequest {}).await;
            let answer = answer.map_err(|s| Failure::of_status("list migrations", &s))?;
            let rows: Vec<Value> =
                answer.into_inner().migrations.iter().map(document::migration).collect();
            emit(global.output, &json!({ "migrations": rows }), |d| {
                let fields = [
                    "shard",
                    "class",
                    "source",
                    "destination",
                    "state",
                    "bytes_done",
                    "bytes_total",
                    "bytes_per_second",
                    "limited_by",
                ];
                table(fields, cells(&d["migrations"], fields))
            })
        }
        Verb::Limits(at) => {
            let mut client = connect(global, at).await?;
            let answer = client.list_limits(ListLimitsRequest {}).await;
            let answer = answer.map_err(|s| Failure::of_status("list limits", &s))?;
            let rows: Vec<Value> = answer.into_inner().limits.iter().map(document::limit).collect();
            emit(global.output, &json!({ "limits": rows }), |d| {
                let fields = [
                    "broker",
                    "link_bytes_per_second",
                    "share",
                    "effective_bytes_per_second",
                    "owner",
                    "cap_bytes_per_second",
                    "p99_ms",
                ];
                table(fields, cells(&d["limits"], fields))
            })
        }
        Verb::SetLimit { broker, bytes_per_second, at } => {
            let mut client = connect(global, at).await?;
            let request = SetLimitRequest { broker: broker.clone(), bytes_per_second };
            let answer = client.set_limit(request).await;
            answer.map_err(|s| Failure::of_status(&format!("limit broker {broker}"), &s))?;
            let document = json!({ "broker": broker, "bytes_per_second": bytes_per_second });
            emit(global.output, &document, |_| match bytes_per_second {
                0 => format!("copies of broker {broker} have no cap"),
                cap => format!("copies of broker {broker} are capped at {cap} bytes/s"),
            })
        }
    }
}

async fn connect(global: &Global, at: Where) -> Result<MigrationsClient<Channel>, Failure> {
    let address = match at.migrator {
        Some(address) => address,
        None => {
            let status =
                global
                    .admin()?
                    .call("find the migrator", true, |mut c| async move {
                        c.status(StatusRequest {}).await
                    })
                    .await?;
            if status.migrator_address.is_empty() {
                let what = "no migrator is elected, so nothing can say what is copied";
                return Err(Failure::Unreachable(format!("{what}: check that one runs")));
            }
            status.migrator_address
        }
    };
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| {
        Failure::Input(format!("migrator address '{address}' is not valid: expected host:port"))
    })?;
    let channel = endpoint.connect().await.map_err(|e| {
        let why = crate::admin::root(&e);
        Failure::Unreachable(format!("cannot reach the migrator at {address}: {why}"))
    })?;
    Ok(MigrationsClient::new(channel))
}
