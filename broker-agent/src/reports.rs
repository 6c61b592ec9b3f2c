//! Writes the shards' reports: edges only, the latest of each shard, many in one transaction, all
//! again under a new lease.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_coordination::{LeaseId, Session, Store};
use evenkeel_model::keys::Keys;
use evenkeel_model::{BrokerId, RECORD_VERSION, ReportRecord, ShardKey, ShardReport, encode};
use evenkeel_runtime::Clock;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::halted::Halted;
use crate::metrics;
use crate::switchover::Switchovers;

/// Before a failed write is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// What is to be written, without I/O.
#[derive(Debug, Default)]
struct Outbox {
    latest: BTreeMap<ShardKey, ShardReport>,
    dirty: BTreeSet<ShardKey>,
    gone: BTreeSet<ShardKey>,
}

impl Outbox {
    /// An edge. A report of an older generation than the latest is late and ignored.
    fn edge(&mut self, report: ShardReport) {
        let shard = report.shard.clone();
        if let Some(latest) = self.latest.get(&shard)
            && (latest.generation > report.generation || *latest == report)
        {
            return;
        }
        self.gone.remove(&shard);
        self.dirty.insert(shard.clone());
        self.latest.insert(shard, report);
    }

    /// Only these shards are spoken of; reports about others are taken back.
    fn keep(&mut self, is_kept: impl Fn(&ShardKey) -> bool) {
        let gone: Vec<ShardKey> =
            self.latest.keys().filter(|shard| !is_kept(shard)).cloned().collect();
        for shard in gone {
            self.latest.remove(&shard);
            self.dirty.remove(&shard);
            self.gone.insert(shard);
        }
    }

    /// Under a new lease everything is written again.
    fn renew(&mut self) {
        self.dirty = self.latest.keys().cloned().collect();
    }

    fn is_empty(&self) -> bool {
        self.dirty.is_empty() && self.gone.is_empty()
    }

    fn take(&mut self) -> (Vec<ShardReport>, BTreeSet<ShardKey>) {
        let dirty = std::mem::take(&mut self.dirty);
        let reports = dirty.iter().filter_map(|shard| self.latest.get(shard).cloned()).collect();
        (reports, std::mem::take(&mut self.gone))
    }

    /// What was taken was not written. What has changed meanwhile is newer.
    fn put_back(&mut self, reports: &[ShardReport], gone: BTreeSet<ShardKey>) {
        for report in reports {
            if self.latest.contains_key(&report.shard) {
                self.dirty.insert(report.shard.clone());
            }
        }
        self.gone.extend(gone.into_iter().filter(|shard| !self.latest.contains_key(shard)));
    }
}

/// The writer.
pub(crate) struct ReportWriter {
    pub(crate) store: Store,
    pub(crate) session: Session,
    pub(crate) keys: Keys,
    pub(crate) clock: Clock,
    pub(crate) me: BrokerId,
    pub(crate) incarnation: u64,
    pub(crate) edges: mpsc::UnboundedReceiver<ShardReport>,
    pub(crate) held: watch::Receiver<BTreeSet<ShardKey>>,
    /// Reports about shards that are not held.
    pub(crate) offers: watch::Receiver<BTreeMap<ShardKey, ShardReport>>,
    pub(crate) switchovers: Switchovers,
    pub(crate) halted: Halted,
}

impl ReportWriter {
    /// Runs until the session or the host ends.
    pub(crate) async fn run(mut self) {
        let mut lease = self.session.watch();
        let mut outbox = Outbox::default();
        let mut under: Option<LeaseId> = None;
        loop {
            while let Ok(report) = self.edges.try_recv() {
                self.take_in(&mut outbox, report);
            }
            let changed = [self.held.has_changed(), self.offers.has_changed()];
            if changed.into_iter().any(|changed| changed.unwrap_or(false)) {
                let (held, offers) =
                    (self.held.borrow_and_update(), self.offers.borrow_and_update());
                outbox.keep(|shard| held.contains(shard) || offers.contains_key(shard));
                self.halted.keep(|shard| held.contains(shard));
                let offered = offers.iter().filter(|(shard, _)| !held.contains(*shard));
                offered.for_each(|(_, report)| outbox.edge(report.clone()));
            }
            let held = lease.borrow_and_update().map(|l| l.id);
            if held.is_some() && held != under {
                outbox.renew();
                under = held;
            }
            if let Some(lease) = held
                && !outbox.is_empty()
            {
                let (reports, gone) = outbox.take();
                if !self.write(lease, &reports, &gone).await {
                    outbox.put_back(&reports, gone);
                    sleep(RETRY).await;
                }
                continue;
            }
            tokio::select! {
                biased;
                changed = lease.changed() => if changed.is_err() { return },
                changed = self.held.changed() => match changed {
                    Ok(()) => self.held.mark_changed(),
                    Err(_) => return,
                },
                changed = self.offers.changed() => match changed {
                    Ok(()) => self.offers.mark_changed(),
                    Err(_) => return,
                },
                report = self.edges.recv() => match report {
                    Some(report) => self.take_in(&mut outbox, report),
                    None => return,
                },
            }
        }
    }

    /// A shard is known as held before the host hears of it, so an edge about another is late.
    fn take_in(&self, outbox: &mut Outbox, report: ShardReport) {
        if let Some(took) = self.switchovers.reported(&report) {
            metrics::switchover_seconds(took);
        }
        if self.held.borrow().contains(&report.shard) {
            self.halted.reported(&report);
            outbox.edge(report);
        }
    }

    async fn write(
        &self,
        lease: LeaseId,
        reports: &[ShardReport],
        gone: &BTreeSet<ShardKey>,
    ) -> bool {
        let entries = reports.iter().map(|report| {
            let record = ReportRecord {
                v: RECORD_VERSION,
                report: report.clone(),
                incarnation: self.incarnation,
                at_ms: self.clock.now_ms(),
            };
            (self.keys.report(&self.me, &report.shard), encode(&record))
        });
        let written = self.store.put_all(entries.collect(), Some(lease)).await.map(|_| ());
        let result = match written {
            Ok(()) if !gone.is_empty() => {
                let keys = gone.iter().map(|shard| self.keys.report(&self.me, shard)).collect();
                self.store.delete_all(keys).await.map(|_| ())
            }
            written => written,
        };
        match result {
            Ok(()) => {
                metrics::reports_written(reports.len());
                true
            }
            Err(error) => {
                tracing::warn!(%error, reports = reports.len(), "reports were not written");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::Phase;

    fn report(shard: &str, generation: u64, phase: Phase) -> ShardReport {
        ShardReport {
            broker: "b1".parse().unwrap(),
            shard: shard.parse().unwrap(),
            generation,
            phase: Some(phase),
            caught_up: false,
            lag_records: None,
            drained: false,
            halted: None,
            log_end: None,
            declined: false,
        }
    }

    #[test]
    fn only_the_latest_of_each_shard_is_written_and_only_once() {
        let (a, b) = ("stream/d/s/0", "stream/d/s/1");
        let mut outbox = Outbox::default();
        outbox.edge(report(a, 1, Phase::Opening));
        outbox.edge(report(a, 1, Phase::Serving));
        outbox.edge(report(b, 3, Phase::Following));
        outbox.edge(report(b, 2, Phase::Serving));
        let written = vec![report(a, 1, Phase::Serving), report(b, 3, Phase::Following)];
        assert_eq!(outbox.take(), (written, BTreeSet::new()));
        outbox.edge(report(a, 1, Phase::Serving));
        assert!(outbox.is_empty(), "no edge");
    }

    #[test]
    fn a_new_lease_writes_everything_and_a_failure_what_was_taken() {
        let a = report("stream/d/s/0", 1, Phase::Serving);
        let mut outbox = Outbox::default();
        outbox.edge(a.clone());
        let (taken, gone) = outbox.take();
        outbox.put_back(&taken, gone);
        assert_eq!(outbox.take().0, vec![a.clone()]);
        outbox.renew();
        assert_eq!(outbox.take().0, vec![a]);
    }

    #[test]
    fn a_shard_that_is_held_no_more_loses_its_report() {
        let a = report("stream/d/s/0", 1, Phase::Serving);
        let mut outbox = Outbox::default();
        outbox.edge(a.clone());
        outbox.keep(|_| false);
        let (reports, gone) = outbox.take();
        assert_eq!((reports, gone.len()), (Vec::new(), 1));
        // It comes back while the removal fails: the removal must not overtake the report.
        outbox.edge(a.clone());
        outbox.put_back(&[], gone);
        assert_eq!(outbox.take(), (vec![a], BTreeSet::new()));
    }
}
