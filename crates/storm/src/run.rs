//! The run: events, planner, migrator, requests and laws in turn, on virtual time.

use std::time::Duration;

use evenkeel_proto::migrations::NodeStatus;
use evenkeel_throttle::State;
use serde::Serialize;

use crate::clients::Tally;
use crate::exposure::{self, Exposure};
use crate::host::Host;
use crate::latency::{Piece, p99};
use crate::measures::{Second, Series};
use crate::migration::{Migration, ROUND};
use crate::naive;
use crate::placement::Placement;
use crate::scenario::{Event, LawChoice, Scenario, ScenarioError, Settings, Signal, What};
use crate::seed::Seed;
use crate::summary::{Notes, Summary};

/// Time between two passes when nothing wakes the planner, and the least between two.
const PASS_MS: f64 = 5_000.0;
const PASS_LEAST_MS: f64 = 1_000.0;

/// A scenario's runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Storm {
    /// What it shows.
    pub title: String,
    /// What the noise was made from.
    pub seed: u64,
    /// What happens.
    pub events: Vec<Mark>,
    /// One of each variant, in the order of the file.
    pub variants: Vec<Outcome>,
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mark {
    /// When, seconds from the start.
    pub at_s: f64,
    /// What.
    pub what: String,
}

/// One variant's run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The variant.
    pub variant: String,
    /// What came of it.
    pub summary: Summary,
    /// The p99 that requests should keep, milliseconds.
    pub target_ms: f64,
    /// Every second of it.
    pub series: Series,
}

/// Runs every variant.
pub fn simulate(scenario: &Scenario, seed: u64) -> Result<Storm, ScenarioError> {
    let mut variants = Vec::new();
    for variant in &scenario.variants {
        let mut run = Run::new(&variant.settings, seed).map_err(|error| ScenarioError {
            line: 0,
            field: "target".to_owned(),
            detail: error.to_string(),
        })?;
        run.all(&scenario.events);
        variants.push(Outcome {
            variant: variant.name.clone(),
            summary: Summary::of(&run.series, &scenario.events, &variant.settings, &run.notes),
            target_ms: variant.settings.controls.target_ms,
            series: run.series,
        });
    }
    let marks =
        scenario.events.iter().map(|e| Mark { at_s: e.at_ms / 1000.0, what: e.what.to_string() });
    Ok(Storm { title: scenario.title.clone(), seed, events: marks.collect(), variants })
}

struct Run<'a> {
    settings: &'a Settings,
    step_ms: f64,
    hosts: Vec<Host>,
    placement: Placement,
    migration: Migration,
    leads: Vec<f64>,
    exposure: Exposure,
    load: f64,
    last_pass_ms: f64,
    /// When the first event was.
    first_ms: Option<f64>,
    second: Tally,
    series: Series,
    notes: Notes,
}

impl<'a> Run<'a> {
    fn new(settings: &'a Settings, seed: u64) -> Result<Self, evenkeel_throttle::TargetError> {
        let nodes = settings.cluster.nodes;
        let hosts: Result<Vec<Host>, _> = (0..nodes)
            .map(|n| Host::new(settings, Seed::new(seed.wrapping_mul(1000).wrapping_add(n as u64))))
            .collect();
        let mut run = Self {
            settings,
            step_ms: ROUND.as_secs_f64() * 1000.0,
            hosts: hosts?,
            placement: Placement::new(&settings.cluster, &settings.controls),
            migration: Migration::new(nodes, settings.cluster.link, &settings.controls),
            leads: Vec::new(),
            exposure: Exposure::default(),
            load: 1.0,
            last_pass_ms: 0.0,
            first_ms: None,
            second: Tally::default(),
            series: Vec::new(),
            notes: Notes::new(nodes),
        };
        for node in 0..nodes {
            run.migration.connect(Duration::ZERO, node, true, &mut run.placement);
            run.migration.allow(node, run.hosts[node].allowed(settings.cluster.link));
        }
        Ok(run)
    }

    fn all(&mut self, events: &[Event]) {
        let steps = (self.settings.run_ms / self.step_ms) as u32;
        let mut events = events.iter().peekable();
        for step in 0..steps {
            let now = ROUND * step;
            let now_ms = now.as_secs_f64() * 1000.0;
            while let Some(event) = events.next_if(|event| event.at_ms <= now_ms) {
                self.first_ms.get_or_insert(now_ms);
                self.happen(now, now_ms, event.what);
            }
            self.detect(now_ms);
            let due = if self.placement.unplanned { PASS_LEAST_MS } else { PASS_MS };
            if now_ms - self.last_pass_ms >= due {
                self.last_pass_ms = now_ms;
                self.placement.pass(now_ms);
            }
            self.migration.step(now, &mut self.placement);
            self.migration.note();
            if std::mem::take(&mut self.placement.reseated) {
                self.look();
            }
            self.serve(now_ms);
            if (step + 1) % self.steps_per_second() == 0 {
                self.end_second(now + ROUND);
            }
        }
        self.notes.copied = self.migration.copied as f64;
        self.notes.balance_moves = self.placement.balance_moves;
        self.notes.busiest = self.migration.busiest;
    }

    fn steps_per_second(&self) -> u32 {
        (1000.0 / self.step_ms) as u32
    }

    fn look(&mut self) {
        let up: Vec<bool> = self.hosts.iter().map(|host| host.up).collect();
        let replicas = self.settings.cluster.replicas as usize;
        (self.leads, self.exposure) = exposure::look(&self.placement, &up, replicas);
    }

    fn happen(&mut self, now: Duration, now_ms: f64, what: What) {
        match what {
            What::Lose(node) if self.hosts[node].up => {
                self.hosts[node].stop(now_ms, self.settings.cluster.detection_ms);
                self.migration.connect(now, node, false, &mut self.placement);
                self.placement.reseated = true;
                self.bound(now_ms);
            }
            What::Return(node) if !self.hosts[node].up => {
                let host = &mut self.hosts[node];
                host.start(&self.settings.controls);
                self.migration.allow(node, host.allowed(self.settings.cluster.link));
                self.placement.register(node, true, now_ms);
                self.migration.connect(now, node, true, &mut self.placement);
                self.placement.reseated = true;
            }
            What::Lose(_) | What::Return(_) => {}
            What::Load(factor) => self.load = factor,
            What::Slow(node, factor) => self.hosts[node].speed = factor,
            What::Cut(a, b, cut) => self.migration.cut(a, b, cut),
        }
    }

    /// The least that the repair can take from here, with every link at its largest share.
    fn bound(&mut self, now_ms: f64) {
        let cluster = &self.settings.cluster;
        let up: Vec<bool> = self.hosts.iter().map(|host| host.up).collect();
        let rate = cluster.link as f64 * evenkeel_throttle::MAX_SHARE;
        let replicas = cluster.replicas as usize;
        let copies = exposure::least_repair_s(&self.placement, &up, replicas, rate);
        let before = now_ms - self.first_ms.unwrap_or(now_ms);
        let delays = cluster.detection_ms + cluster.restore_delay_ms;
        self.notes.bound_s = copies.map(|copies| (before + delays) / 1000.0 + copies);
    }

    /// Leases of nodes that are gone run out.
    fn detect(&mut self, now_ms: f64) {
        for node in 0..self.hosts.len() {
            if self.hosts[node].expires_ms.is_some_and(|at| at <= now_ms) {
                self.hosts[node].expires_ms = None;
                self.placement.register(node, false, now_ms);
            }
        }
    }

    /// One step of requests and maintenance.
    fn serve(&mut self, now_ms: f64) {
        let cluster = &self.settings.cluster;
        let traffic = &self.settings.traffic;
        let all = traffic.utilisation * traffic.capacity * cluster.nodes as f64 * self.load;
        let each = all / f64::from(cluster.shards);
        let link_step = cluster.link as f64 * self.step_ms / 1000.0;
        for (node, host) in self.hosts.iter_mut().enumerate() {
            let (out, into) = self.migration.flow(node);
            host.upkeep.put_off(now_ms, out + into, &self.settings.controls);
            let maintained = if host.up {
                let speed = link_step * host.speed;
                host.upkeep.work(now_ms, speed, &self.settings.controls)
            } else {
                0.0
            };
            host.maintained.0 = maintained;
            host.maintained.1 += maintained;
            let busy = (out.max(into) as f64 + maintained) / link_step;
            let tally = host.step(self.settings, each * self.leads[node], busy, self.step_ms);
            self.second.add(&tally);
        }
    }

    fn end_second(&mut self, now: Duration) {
        let now_ms = now.as_secs_f64() * 1000.0;
        let steps = self.steps_per_second() as usize;
        let link = self.settings.cluster.link;
        let mut sample = Second { at_s: now.as_secs_f64(), share_min: 1.0, ..Second::default() };
        let mut up = 0.0;
        for node in 0..self.hosts.len() {
            let (out, into) = self.migration.second(node);
            let host = &mut self.hosts[node];
            sample.copied += into as f64;
            sample.maintained += std::mem::take(&mut host.maintained.1);
            sample.maintenance_backlog += host.upkeep.backlog();
            if !host.up {
                self.notes.shares[node].push(None);
                continue;
            }
            let allowed = host.allowed(link).max(1) as f64;
            host.observe(self.settings, now_ms, steps, out.max(into) as f64 / allowed);
            self.migration.allow(node, host.allowed(link));
            let depth = host.depth(&self.settings.traffic);
            up += 1.0;
            sample.share += host.share();
            sample.share_min = sample.share_min.min(host.share());
            sample.queue = sample.queue.max(depth);
            sample.worst_p99_ms = sample.worst_p99_ms.max(host.p99_ms.unwrap_or(0.0));
            sample.at_floor += usize::from(host.state == State::Floor);
            let target_ms = self.settings.controls.target_ms;
            let spent = evenkeel_throttle::is_spent(host.share(), host.p99_ms, target_ms);
            self.notes.seen(node, host.share(), host.state, spent);
            let status = NodeStatus {
                p99_ms: host.p99_ms,
                queue_depth: depth as u64,
                share: self.told_share(node),
                state: self.hosts[node].state.as_str().to_owned(),
                egress_bytes: out,
                ingress_bytes: into,
                ..NodeStatus::default()
            };
            self.migration.status(now, node, status, &mut self.placement);
        }
        sample.share /= f64::max(up, 1.0);
        let pieces: Vec<Piece> =
            self.hosts.iter().flat_map(|host| host.last_second(steps)).copied().collect();
        sample.p99_ms = p99(&pieces).unwrap_or(0.0);
        sample.exposed(self.exposure);
        sample.asked(&std::mem::take(&mut self.second));
        self.series.push(sample);
        let naive = self.settings.controls.rebalance == Signal::Latency;
        if naive && now_ms % naive::EVERY_MS < self.step_ms {
            let seen: Vec<Option<f64>> = self.hosts.iter().map(|host| host.p99_ms).collect();
            let at_once = self.settings.controls.rebalance_at_once;
            naive::look(&mut self.placement, &seen, now_ms, at_once);
        }
    }

    /// Without a law the engine was told a link of which its largest share is what copies take.
    fn told_share(&self, node: usize) -> f64 {
        match self.settings.controls.law {
            LawChoice::Off => evenkeel_throttle::MAX_SHARE,
            _ => self.hosts[node].share(),
        }
    }
}
