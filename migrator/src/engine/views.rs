//! What people ask the engine.

use std::time::Duration;

use evenkeel_model::{CopyClass, CopyPauseRecord, ShardKey};
use evenkeel_proto::migrations::{
    ClassSummary, CopyPause, Limit, ListMigrationsResponse, Migration, ShowMigrationResponse,
    SourceCandidate, Span,
};

use super::{Engine, Now};
use crate::copies::{self, Copy, State};
use crate::nodes::Node;

/// Without a byte for so long a copy is called stalled, seconds; it is stopped later.
const STANDS: Duration = Duration::from_secs(5);

/// Which copies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Those after this one in the order of service.
    pub after: Option<ShardKey>,
    /// Only these.
    pub class: Option<CopyClass>,
    /// At most so many.
    pub size: usize,
}

impl Engine {
    /// Every copy, in the order of service.
    pub fn migrations(&self, now: Duration) -> Vec<Migration> {
        self.in_order().into_iter().map(|copy| migration(copy, now)).collect()
    }

    /// A page of copies, and what holds of all of them. A copy that the page before ended with and
    /// that is gone meanwhile begins anew.
    pub fn page(&self, now: Now, page: &Page) -> ListMigrationsResponse {
        let copies = self.in_order().into_iter();
        let copies: Vec<&Copy> =
            copies.filter(|copy| page.class.is_none_or(|class| copy.job.class == class)).collect();
        let at = page.after.as_ref().and_then(|after| {
            copies.iter().position(|copy| copy.job.shard == *after).map(|at| at + 1)
        });
        let rest = &copies[at.unwrap_or(0)..];
        let shown = &rest[..rest.len().min(page.size)];
        let more = rest.len() > shown.len();
        let last = shown.last().filter(|_| more).map(|copy| copy.job.shard.to_string());
        ListMigrationsResponse {
            migrations: shown.iter().map(|copy| migration(copy, now.at)).collect(),
            next_page_token: last.unwrap_or_default(),
            classes: self.summary(),
            pauses: self.pauses(now).map(pause).collect(),
        }
    }

    fn in_order(&self) -> Vec<&Copy> {
        let mut copies: Vec<&Copy> = self.copies.values().collect();
        let is_left = |copy: &Copy| matches!(copy.state, State::Level | State::Failed);
        copies.sort_by_key(|copy| {
            (copy.job.class, is_left(copy), copy.place, copy.arrival, &copy.job.shard)
        });
        copies
    }

    /// One line for each class that has copies.
    fn summary(&self) -> Vec<ClassSummary> {
        let of = |class: CopyClass| {
            let copies: Vec<&Copy> =
                self.copies.values().filter(|copy| copy.job.class == class).collect();
            (!copies.is_empty()).then(|| summary(class, &copies))
        };
        CopyClass::ALL.into_iter().filter_map(of).collect()
    }

    fn pauses(&self, now: Now) -> impl Iterator<Item = &CopyPauseRecord> {
        self.world.pauses.values().filter(move |pause| pause.is_on(now.wall_ms))
    }

    /// Everything about one copy; none if the shard has none.
    pub fn show(&self, now: Now, shard: &ShardKey) -> Option<ShowMigrationResponse> {
        let copy = self.copies.get(shard)?;
        let candidates = self.candidates(copy, now.at);
        let limit_of = |broker: &evenkeel_model::BrokerId| {
            self.nodes.get(broker).map(|node| limit(&broker.to_string(), node, now.at))
        };
        Some(ShowMigrationResponse {
            migration: Some(migration(copy, now.at)),
            class_reason: copy.job.class_reason.clone(),
            source_reason: source_reason(copy, &candidates),
            candidates,
            source_limit: copy.source.as_ref().and_then(limit_of),
            destination_limit: limit_of(&copy.job.destination),
            pauses: self.world.holding(copy.job.class, shard, now.wall_ms).map(pause).collect(),
        })
    }

    /// Every node's limit and who decides about it.
    pub fn limits(&self, now: Duration) -> Vec<Limit> {
        let nodes = self.nodes.iter();
        nodes.map(|(broker, node)| limit(&broker.to_string(), node, now)).collect()
    }

    /// Time between two rounds.
    pub fn round_length(&self) -> Duration {
        self.settings.round
    }

    /// Whether the migrator knows of a broker.
    pub fn knows(&self, broker: &evenkeel_model::BrokerId) -> bool {
        self.nodes.contains_key(broker)
    }
}

fn migration(copy: &Copy, now: Duration) -> Migration {
    let idle = copy.idle(now);
    let stands = (idle >= STANDS).then(|| format!("no byte verified for {} s", idle.as_secs()));
    let failed = Some(&copy.last_failure).filter(|_| copy.state == State::Failed);
    let stalled = stands.or_else(|| failed.filter(|why| why.starts_with("stalled")).cloned());
    let moves = copy.state == State::Running && stalled.is_none();
    let expected = copy.remaining().and_then(|left| copy.pace.expected(left));
    Migration {
        shard: copy.job.shard.to_string(),
        generation: copy.job.generation,
        class: copy.job.class.as_str().to_owned(),
        source: copy.source.as_ref().map(ToString::to_string),
        destination: copy.job.destination.to_string(),
        state: copy.state.as_str().to_owned(),
        bytes_done: copy.held(),
        bytes_total: copy.total(),
        bytes_per_second: copy.pace.rate() as u64,
        limited_by: copy.limited_by.clone(),
        place: copy.place,
        age_seconds: now.saturating_sub(copy.since).as_secs(),
        failures: copy.failures,
        last_failure: copy.last_failure.clone(),
        eta: expected.filter(|_| moves).map(span),
        stalled,
        reserved: copy.is_reserved(),
    }
}

fn span((least_seconds, most_seconds): copies::Span) -> Span {
    Span { least_seconds, most_seconds }
}

/// The rest of a class at the rates of those that run; not told while a size is not known or nothing
/// moves.
fn summary(class: CopyClass, copies: &[&Copy]) -> ClassSummary {
    let open = || copies.iter().filter(|copy| copy.state != State::Level);
    let running = || open().filter(|copy| copy.state == State::Running);
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let unknown = open().filter(|copy| copy.remaining().is_none()).count();
    let left = open().fold(0u64, |sum, copy| sum.saturating_add(copy.remaining().unwrap_or(0)));
    let mut together = copies::Pace::default();
    running().for_each(|copy| together.add(&copy.pace));
    ClassSummary {
        class: class.as_str().to_owned(),
        running: count(running().count()),
        queued: count(open().count() - running().count()),
        bytes_left: left,
        bytes_per_second: together.rate() as u64,
        eta: together.expected(left).filter(|_| unknown == 0).map(span),
        unknown_size: count(unknown),
    }
}

/// A pause as it is told.
pub fn pause(record: &CopyPauseRecord) -> CopyPause {
    CopyPause {
        scope: record.scope.to_string(),
        by: record.by.clone(),
        reason: record.reason.clone(),
        at_ms: record.at_ms,
        until_ms: record.until_ms,
    }
}

fn source_reason(copy: &Copy, candidates: &[SourceCandidate]) -> String {
    let Some(source) = copy.source.as_ref().map(ToString::to_string) else {
        return "nobody that serves holds the shard".to_owned();
    };
    let Some(chosen) = candidates.iter().find(|candidate| candidate.broker == source) else {
        return format!("{source} holds it no more; another source is chosen next");
    };
    let has = |role: &str| candidates.iter().any(|c| c.role == role && !c.failed);
    let first = candidates.first().is_some_and(|first| first.broker == source);
    let what = match chosen.role.as_str() {
        "follower" => "a caught-up follower",
        "leader" if has("follower") && first => "the leader, sooner through than any follower",
        "leader" if has("follower") => "the leader",
        "leader" => "the leader, for want of a caught-up follower that serves",
        _ => "a follower that is behind itself, for want of anybody else",
    };
    let failed = candidates.iter().find(|candidate| candidate.failed);
    match failed {
        Some(failed) if failed.broker != source => {
            format!("{what}; the last try from {} failed", failed.broker)
        }
        _ if candidates.len() == 1 => format!("{what}; there is no other"),
        _ if first => format!("{what}, expected to be through first of {}", candidates.len()),
        _ if let Some((first, why)) = &copy.passed_over => {
            format!("{what}; in place of {first}, {why}")
        }
        _ => format!("{what}; kept, as no other would be through in half the time"),
    }
}

fn limit(broker: &str, node: &Node, now: Duration) -> Limit {
    let said = node.fresh(now);
    let backlog = said.map_or(0, |said| said.maintenance_backlog_bytes);
    Limit {
        broker: broker.to_owned(),
        link_bytes_per_second: node.link_bytes_per_second,
        share: node.share(now),
        effective_bytes_per_second: node.bytes_per_second(now),
        owner: node.owner(now).to_owned(),
        cap_bytes_per_second: node.cap,
        p99_ms: said.and_then(|said| said.p99_ms),
        state: said.map(|said| said.state.clone()).unwrap_or_default(),
        reason: node.reason(now),
        target_p99_ms: node.target_p99_ms,
        usual_p99_ms: node.vitals.usual_ms(),
        p99_ratio: node.vitals.ratio(now),
        floor_seconds: node.at_floor(now).as_secs(),
        out_of_capacity: node.is_out_of_capacity(now),
        queue_depth: said.map_or(0, |said| said.queue_depth),
        egress_bytes_per_second: said.map_or(0, |said| said.egress_bytes),
        ingress_bytes_per_second: said.map_or(0, |said| said.ingress_bytes),
        maintenance_backlog_bytes: backlog,
        maintenance_bytes_per_second: said.map_or(0, |said| said.maintenance_bytes_per_second),
        recovering: backlog > 0 || node.vitals.is_in_wake(now),
        expired_grant_bytes: node.sums.expired_grant_bytes,
        requests_shed: node.sums.requests_shed,
        request_limit: said.map_or(0, |said| said.request_limit),
    }
}
