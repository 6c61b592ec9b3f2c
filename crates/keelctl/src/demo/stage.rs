//! What the acts of the story share.

use std::sync::Arc;

use super::cluster::{Cluster, View};
use super::exposure::Observer;
use super::ledger::Ledger;
use super::report::leaders_table;
use super::screen::Screen;
use super::services::Services;

/// Replicas of each shard.
pub(crate) const FACTOR: usize = 3;

/// Everything that the acts share.
pub(crate) struct Stage<'a> {
    pub(crate) cluster: Cluster<'a>,
    pub(crate) services: &'a Services,
    pub(crate) screen: &'a Screen,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) observer: Observer,
    pub(crate) shards: usize,
}

/// A new step of the story.
pub(crate) fn begin(stage: &Stage<'_>, title: &str) {
    stage.screen.step(title);
    stage.ledger.step(title);
}

/// Shows who leads how much of what.
pub(crate) fn show_leaders(stage: &Stage<'_>, view: &View) {
    for line in leaders_table(&view.leaders()).lines() {
        stage.screen.say(format!("          {line}"));
    }
}
