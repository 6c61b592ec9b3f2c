//! `keelctl brokers`: list, show, remove.

use clap::Subcommand;
use evenkeel_proto::admin::{ListBrokersRequest, ListShardsRequest, RemoveBrokerRequest};
use serde_json::{Value, json};

use crate::admin::Admin;
use crate::cli::Global;
use crate::output::{cells, emit, table};
use crate::{Failure, document};

/// What to do with brokers.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// All brokers with what they hold.
    List,
    /// One broker and its shards.
    Show {
        /// Its id.
        broker: String,
    },
    /// Forget a broker that is gone and that no shard names.
    Remove {
        /// Its id.
        broker: String,
    },
}

/// Runs the verb.
pub(crate) async fn run(global: &Global, verb: Verb) -> Result<(), Failure> {
    let admin = global.admin()?;
    match verb {
        Verb::List => {
            let brokers = list(&admin).await?;
            let rows: Vec<Value> = brokers.iter().map(document::broker).collect();
            emit(global.output, &json!({ "brokers": rows }), |d| brokers_table(&d["brokers"]))
        }
        Verb::Show { broker } => show(global, &admin, broker).await,
        Verb::Remove { broker } => {
            let request = RemoveBrokerRequest { broker: broker.clone() };
            admin
                .call(&format!("remove broker {broker}"), true, |mut c| {
                    let request = request.clone();
                    async move { c.remove_broker(request).await }
                })
                .await?;
            let removed = json!({ "broker": broker, "removed": true });
            emit(global.output, &removed, |_| format!("broker {broker} is removed"))
        }
    }
}

/// Every known broker.
pub(crate) async fn list(admin: &Admin) -> Result<Vec<evenkeel_proto::admin::Broker>, Failure> {
    let answer =
        admin
            .call("list brokers", true, |mut c| async move {
                c.list_brokers(ListBrokersRequest {}).await
            })
            .await?;
    Ok(answer.brokers)
}

async fn show(global: &Global, admin: &Admin, id: String) -> Result<(), Failure> {
    let brokers = list(admin).await?;
    let Some(broker) = brokers.iter().find(|b| b.id == id) else {
        let known: Vec<&str> = brokers.iter().map(|b| b.id.as_str()).collect();
        return Err(Failure::Input(format!(
            "there is no broker '{id}': expected one of {}",
            known.join(", ")
        )));
    };
    let filter = ListShardsRequest { member: Some(id.clone()), ..Default::default() };
    let shards = super::shards::list(admin, filter).await?;
    let held: Vec<Value> = shards
        .iter()
        .map(|a| {
            let role = super::shards::role_of(a, &id);
            json!({ "shard": a.shard, "role": role, "generation": a.generation, "state": a.state })
        })
        .collect();
    let document = json!({ "broker": document::broker(broker), "shards": held });
    emit(global.output, &document, |d| {
        let broker = brokers_table(&json!([d["broker"]]));
        let fields = ["shard", "role", "generation", "state"];
        format!("{broker}\n\n{}", table(fields, cells(&d["shards"], fields)))
    })
}

fn brokers_table(rows: &Value) -> String {
    let fields =
        ["id", "lifecycle", "registered", "zone", "address", "leaders", "replicas", "score"];
    table(fields, cells(rows, fields))
}
