//! `keelctl whatif`: what a change of the cluster would do, on paper.

mod changes;
mod screen;

use clap::Args;
use evenkeel_planner::{Change, ChangeError, DEFAULT_PASSES, Terms, WhatIf, what_if};

use self::changes::{Sized, broker_and_traits, count_and_traits};
use super::plan::live_snapshot;
use crate::cli::Global;
use crate::failure::input;
use crate::output::{Format, emit_whole};
use crate::{Failure, input as files};

/// On what, and which changes. They are made in the order of this list.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A snapshot file instead of the live cluster; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<String>,
    /// A JSON file of policy settings, laid over the snapshot's.
    #[arg(long, value_name = "FILE")]
    policy: Option<String>,
    /// A broker joins, such as b4 or b4=zone=z1,weight=8,max_shards=100.
    ///
    /// Settings: zone, region, weight, max_shards, network_bytes_per_second,
    /// disk_bytes_per_second. May be given again.
    #[arg(long, value_name = "ID[=SETTING=VALUE,...]", value_parser = broker_and_traits)]
    add_broker: Vec<Sized>,
    /// So many brokers join, such as 3 or 3=zone=z1; they are called new-1, new-2, and so on.
    #[arg(long, value_name = "COUNT[=SETTING=VALUE,...]", value_parser = count_and_traits)]
    add_brokers: Vec<(u32, evenkeel_planner::Traits)>,
    /// A broker becomes larger or smaller, such as b1:weight=16,max_shards=none.
    #[arg(long, value_name = "ID:SETTING=VALUE,...", value_parser = changes::resize)]
    resize_broker: Vec<Sized>,
    /// A broker is emptied.
    #[arg(long, value_name = "ID", value_parser = changes::broker)]
    drain_broker: Vec<evenkeel_model::BrokerId>,
    /// A broker is emptied and then forgotten.
    #[arg(long, value_name = "ID", value_parser = changes::broker)]
    remove_broker: Vec<evenkeel_model::BrokerId>,
    /// A broker is lost, without a farewell.
    #[arg(long, value_name = "ID", value_parser = changes::broker)]
    fail_broker: Vec<evenkeel_model::BrokerId>,
    /// Copies go at this rate into and out of each broker; a fifth of its link if not given.
    #[arg(long, value_name = "BYTES_PER_SECOND", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// List every write on the way.
    #[arg(long)]
    moves: bool,
    /// End after so many passes.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_PASSES)]
    max_passes: u32,
}

/// Plans to rest and prints.
pub(crate) async fn run(global: &Global, options: Options) -> Result<(), Failure> {
    if options.snapshot.as_deref() == Some("-") && options.policy.as_deref() == Some("-") {
        return Err(Failure::Input("--snapshot and --policy cannot both be stdin".to_owned()));
    }
    let snapshot = match &options.snapshot {
        Some(file) => files::snapshot(file)?,
        None => live_snapshot(global).await?,
    };
    let changes = options.changes(&snapshot)?;
    if changes.is_empty() {
        return Err(Failure::Input(
            "nothing is to be changed: expected --add-broker, --drain-broker, --policy or another \
             change; 'keelctl plan --until-stable' tells what happens anyway"
                .to_owned(),
        ));
    }
    let terms = Terms { max_passes: options.max_passes, rate_bytes_per_second: options.rate };
    let answer = what_if(&snapshot, &changes, terms).map_err(input)?;
    print(global.output, answer, options.moves)
}

/// What one change of the live cluster would do.
pub(crate) async fn on_live(global: &Global, change: Change) -> Result<(), Failure> {
    let snapshot = live_snapshot(global).await?;
    let terms = Terms { max_passes: DEFAULT_PASSES, rate_bytes_per_second: None };
    let answer = what_if(&snapshot, &[change], terms).map_err(|error| match error {
        // As the load manager would refuse it.
        ChangeError::Gone { .. } => Failure::No(error.to_string()),
        error => input(error),
    })?;
    print(global.output, answer, false)
}

fn print(format: Format, mut answer: WhatIf, moves: bool) -> Result<(), Failure> {
    if !moves {
        answer.steps.clear();
    }
    emit_whole(format, &answer, || screen::of(&answer))
}

impl Options {
    fn changes(&self, snapshot: &evenkeel_model::Snapshot) -> Result<Vec<Change>, Failure> {
        let mut changes = Vec::new();
        if let Some(file) = &self.policy {
            let policy = files::policy_over(&snapshot.policy, file)?;
            changes.push(Change::Policy(Box::new(policy)));
        }
        let named =
            self.add_broker.iter().map(|(id, traits)| Change::Add(id.clone(), traits.clone()));
        changes.extend(named);
        let mut number = 0;
        for (count, traits) in &self.add_brokers {
            for _ in 0..*count {
                let id = loop {
                    number += 1;
                    let id = changes::broker(&format!("new-{number}")).map_err(input)?;
                    let taken = self.add_broker.iter().any(|(named, _)| *named == id);
                    if !taken && !snapshot.brokers.contains_key(&id) {
                        break id;
                    }
                };
                changes.push(Change::Add(id, traits.clone()));
            }
        }
        let sized = self.resize_broker.iter();
        changes.extend(sized.map(|(id, traits)| Change::Resize(id.clone(), traits.clone())));
        changes.extend(self.drain_broker.iter().cloned().map(Change::Drain));
        changes.extend(self.remove_broker.iter().cloned().map(Change::Remove));
        changes.extend(self.fail_broker.iter().cloned().map(Change::Fail));
        Ok(changes)
    }
}
