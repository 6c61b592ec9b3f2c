//! A scenario: a cluster, its traffic, what holds copies back, what happens, and the variants that
//! are compared.

mod grammar;
mod keys;

use std::fmt;

/// One scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What it shows.
    pub title: String,
    /// What happens, in order of time.
    pub(crate) events: Vec<Event>,
    /// Runs that are compared; at least one.
    pub(crate) variants: Vec<Variant>,
}

/// One run of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) settings: Settings,
}

/// Everything that a line can set.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Settings {
    pub(crate) run_ms: f64,
    pub(crate) cluster: Cluster,
    pub(crate) traffic: Traffic,
    pub(crate) controls: Controls,
}

/// Nodes are called `n1` to `n<nodes>` and lie in the zones in turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cluster {
    pub(crate) nodes: usize,
    pub(crate) zones: usize,
    pub(crate) shards: u32,
    pub(crate) replicas: u32,
    /// Every shard once.
    pub(crate) data_bytes: u64,
    /// Bytes per second each way.
    pub(crate) link: u64,
    /// From a death to the end of its lease.
    pub(crate) detection_ms: f64,
    /// From there to the first copies.
    pub(crate) restore_delay_ms: f64,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            nodes: 0,
            zones: 1,
            shards: 0,
            replicas: 3,
            data_bytes: 0,
            link: 0,
            detection_ms: 15e3,
            restore_delay_ms: 30e3,
        }
    }
}

/// Requests, and how nodes and clients answer load.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Traffic {
    /// Part of every node's request capacity that is asked for before anything happens.
    pub(crate) utilisation: f64,
    /// What one node can answer, requests per second.
    pub(crate) capacity: f64,
    /// The p99 of an idle node's requests.
    pub(crate) p99_idle_ms: f64,
    /// Utilisation up to which nothing queues; 0 is one queue.
    pub(crate) knee: f64,
    /// Part of the request capacity that copies at the whole link take.
    pub(crate) contention: f64,
    /// Requests that a node would have to let wait longer are dropped without an answer.
    pub(crate) queue_ms: f64,
    /// Clients give up an attempt after this; none never.
    pub(crate) timeout_ms: Option<f64>,
    pub(crate) retries: usize,
    /// Before the first retry; doubles.
    pub(crate) backoff_ms: f64,
    /// A client's pause between two operations; 0 is an endless stream of new clients.
    pub(crate) think_ms: f64,
    /// Standard deviation of the measured p99, as a logarithm.
    pub(crate) noise: f64,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            utilisation: 0.0,
            capacity: 2000.0,
            p99_idle_ms: 0.0,
            knee: 0.0,
            contention: 0.9,
            queue_ms: 10e3,
            timeout_ms: None,
            retries: 0,
            backoff_ms: 100.0,
            think_ms: 0.0,
            noise: 0.0,
        }
    }
}

/// What decides about the rate of copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LawChoice {
    /// One sample, one step.
    Plain,
    /// Windows and proportional steps.
    #[default]
    Steady,
    /// A share that nothing changes.
    Off,
}

/// Which copy goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Order {
    /// By class, the most exposed first.
    #[default]
    Priority,
    /// In order of arrival.
    Fifo,
    /// All of them, sharing evenly.
    AllAtOnce,
}

/// What a rebalancer looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Signal {
    /// The planner's: counts of leaders and replicas.
    #[default]
    Counts,
    /// Latency: a slow node must hold too much.
    Latency,
}

/// Controls.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Controls {
    pub(crate) law: LawChoice,
    /// The p99 that requests should keep.
    pub(crate) target_ms: f64,
    /// Seconds of requests in each p99 that the law is told.
    pub(crate) window_s: usize,
    /// The share of the link that copies take when no law holds them back.
    pub(crate) off_share: f64,
    pub(crate) order: Order,
    /// Copies at once in the cluster, and out of and into one node.
    pub(crate) at_once: usize,
    pub(crate) per_node: usize,
    /// Refuse at once what would wait too long.
    pub(crate) shedding: bool,
    /// A mean latency up to this refuses nothing.
    pub(crate) shed_latency_ms: f64,
    /// The delay that a refusal asks for.
    pub(crate) retry_after_ms: f64,
    /// Retries over first attempts, at most; none is no budget.
    pub(crate) retry_budget: Option<f64>,
    pub(crate) rebalance: Signal,
    /// Moves at once of a rebalancer by latency.
    pub(crate) rebalance_at_once: usize,
    /// Bytes of maintenance put off for each byte copied into or out of a node.
    pub(crate) maintenance: f64,
    /// Admitted by ramp, or all at once.
    pub(crate) maintenance_ramp: bool,
    /// Without the ramp: a node begins this long after its last copy, at this share of its link.
    pub(crate) maintenance_wait_ms: f64,
    pub(crate) maintenance_share: f64,
}

impl Default for Controls {
    fn default() -> Self {
        Self {
            law: LawChoice::Steady,
            target_ms: 0.0,
            window_s: 1,
            off_share: 0.8,
            order: Order::Priority,
            at_once: 1000,
            per_node: 2,
            shedding: true,
            shed_latency_ms: 100.0,
            retry_after_ms: 1000.0,
            retry_budget: Some(0.1),
            rebalance: Signal::Counts,
            rebalance_at_once: 10,
            maintenance: 0.0,
            maintenance_ramp: true,
            maintenance_wait_ms: 0.0,
            maintenance_share: 0.8,
        }
    }
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) at_ms: f64,
    pub(crate) what: What,
}

/// What happens. Nodes count from 0; factors multiply, and are undone by their inverse event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum What {
    Lose(usize),
    Return(usize),
    /// All requests, times this.
    Load(f64),
    /// One node's requests and maintenance run at this part of their speed.
    Slow(usize, f64),
    /// No byte passes between two nodes, or does again.
    Cut(usize, usize, bool),
}

impl What {
    /// The nodes it names.
    fn nodes(&self) -> [Option<usize>; 2] {
        match self {
            Self::Lose(node) | Self::Return(node) | Self::Slow(node, _) => [Some(*node), None],
            Self::Load(_) => [None, None],
            Self::Cut(a, b, _) => [Some(*a), Some(*b)],
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lose(node) => write!(f, "lose n{}", node + 1),
            Self::Return(node) => write!(f, "return n{}", node + 1),
            Self::Load(by) => write!(f, "load x{by}"),
            Self::Slow(node, by) => write!(f, "slow n{} x{by}", node + 1),
            Self::Cut(a, b, true) => write!(f, "cut n{} n{}", a + 1, b + 1),
            Self::Cut(a, b, false) => write!(f, "join n{} n{}", a + 1, b + 1),
        }
    }
}

/// A scenario that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {field}: {detail}")]
pub struct ScenarioError {
    /// Line of the file, from 1.
    pub line: usize,
    /// The key, section or event.
    pub field: String,
    /// What was found and what was expected.
    pub detail: String,
}

impl Scenario {
    /// Reads a scenario file.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        grammar::parse(text)
    }

    /// The same with so many times fewer nodes, shards and bytes: each node is as busy as before.
    /// Events keep their nodes.
    pub fn smaller(&self, times: u32) -> Result<Self, ScenarioError> {
        let mut scenario = self.clone();
        for Variant { name, settings } in &mut scenario.variants {
            let cluster = &mut settings.cluster;
            let n = times.max(1);
            cluster.nodes /= n as usize;
            cluster.shards = (cluster.shards / n).max(1);
            cluster.data_bytes /= u64::from(n);
            cluster.zones = cluster.zones.min(cluster.nodes);
            let controls = &mut settings.controls;
            controls.at_once = controls.at_once.div_ceil(n as usize);
            controls.rebalance_at_once = controls.rebalance_at_once.div_ceil(n as usize);
            let last = scenario.events.iter().flat_map(|e| e.what.nodes()).flatten().max();
            let least = last.map_or(1, |node| node + 1).max(cluster.replicas as usize + 1);
            if cluster.nodes < least || cluster.data_bytes < u64::from(cluster.shards) {
                return Err(ScenarioError {
                    line: 0,
                    field: "nodes".to_owned(),
                    detail: format!(
                        "{} nodes are left of variant '{name}' with {n} times fewer: its events \
                         and replicas need at least {least}",
                        cluster.nodes
                    ),
                });
            }
        }
        Ok(scenario)
    }

    /// The names of its variants.
    pub fn variants(&self) -> impl Iterator<Item = &str> {
        self.variants.iter().map(|v| v.name.as_str())
    }
}
