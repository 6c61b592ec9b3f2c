//! Changes of a cluster, made on a snapshot.

use std::fmt;

use evenkeel_model::{
    BrokerId, BrokerView, Lifecycle, LoadReport, Policy, RECORD_VERSION, Snapshot,
};

/// What a broker is like. What is not given stays as it was, or is the default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Traits {
    /// Failure domain.
    pub zone: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// Effective vCPUs.
    pub weight: Option<f64>,
    /// Most shards in any role; the inner none is no limit.
    pub max_shards: Option<Option<u32>>,
    /// Link, bytes per second.
    pub network_bytes_per_second: Option<u64>,
    /// Disk bandwidth, bytes per second.
    pub disk_bytes_per_second: Option<u64>,
}

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A broker joins, empty.
    Add(BrokerId, Traits),
    /// A broker is emptied and then forgotten; one that is gone already is only forgotten.
    Remove(BrokerId),
    /// A broker becomes larger or smaller.
    Resize(BrokerId, Traits),
    /// A broker is emptied.
    Drain(BrokerId),
    /// A broker is lost, without a farewell.
    Fail(BrokerId),
    /// The policy becomes another.
    Policy(Box<Policy>),
}

/// A change that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The snapshot has no such broker.
    #[error("there is no broker {0}: expected one that the snapshot lists")]
    Unknown(BrokerId),
    /// It has one already.
    #[error("there is a broker {0} already")]
    Exists(BrokerId),
    /// The broker is down or has left.
    #[error("broker {broker} is {lifecycle}: expected one that is live or draining")]
    Gone {
        /// The broker.
        broker: BrokerId,
        /// What it is.
        lifecycle: &'static str,
    },
}

impl Change {
    /// Makes the change.
    pub fn apply(&self, s: &mut Snapshot) -> Result<(), ChangeError> {
        let now = s.as_of_ms;
        match self {
            Self::Add(broker, _) if s.brokers.contains_key(broker) => {
                return Err(ChangeError::Exists(broker.clone()));
            }
            Self::Add(broker, traits) => {
                let mut view = newcomer(s);
                traits.give(&mut view);
                s.brokers.insert(broker.clone(), view);
            }
            Self::Resize(broker, traits) => traits.give(known(s, broker)?),
            Self::Remove(broker) => {
                let view = known(s, broker)?;
                if super::answers(view.lifecycle) && view.lifecycle != Lifecycle::Draining {
                    turn(view, Lifecycle::Draining, now);
                }
                view.stopping = false;
            }
            Self::Drain(broker) => {
                let view = known(s, broker)?;
                if !super::answers(view.lifecycle) {
                    let lifecycle = view.lifecycle.as_str();
                    return Err(ChangeError::Gone { broker: broker.clone(), lifecycle });
                }
                if view.lifecycle != Lifecycle::Draining {
                    turn(view, Lifecycle::Draining, now);
                }
                view.stopping = false;
            }
            Self::Fail(broker) => {
                let view = known(s, broker)?;
                if view.lifecycle != Lifecycle::Down {
                    turn(view, Lifecycle::Down, now);
                }
                view.registered = false;
                view.load = None;
            }
            Self::Policy(policy) => s.policy = (**policy).clone(),
        }
        Ok(())
    }
}

fn known<'a>(s: &'a mut Snapshot, broker: &BrokerId) -> Result<&'a mut BrokerView, ChangeError> {
    s.brokers.get_mut(broker).ok_or_else(|| ChangeError::Unknown(broker.clone()))
}

fn turn(view: &mut BrokerView, lifecycle: Lifecycle, now: i64) {
    view.lifecycle = lifecycle;
    view.since_ms = now;
    view.last_seen_ms = now;
}

/// A broker that has just joined. Where others report their load, it reports that it has none.
fn newcomer(s: &Snapshot) -> BrokerView {
    let reports = s.brokers.values().any(|b| b.load.is_some());
    BrokerView {
        load: reports.then(|| LoadReport {
            v: RECORD_VERSION,
            reported_at_ms: s.as_of_ms,
            incarnation: 1,
            disk_used_percent: None,
            cpu_percent: Some(0.0),
            memory_percent: Some(0.0),
            disk_io_bytes_per_second: Some(0.0),
            network_io_bytes_per_second: Some(0.0),
            shards: Vec::new(),
        }),
        ..BrokerView::live(s.as_of_ms)
    }
}

impl Traits {
    fn give(&self, view: &mut BrokerView) {
        view.zone = self.zone.clone().or(view.zone.take());
        view.region = self.region.clone().or(view.region.take());
        view.weight = self.weight.unwrap_or(view.weight);
        view.max_shards = self.max_shards.unwrap_or(view.max_shards);
        let network = self.network_bytes_per_second;
        view.network_bytes_per_second = network.or(view.network_bytes_per_second);
        view.disk_bytes_per_second = self.disk_bytes_per_second.or(view.disk_bytes_per_second);
    }
}

impl fmt::Display for Traits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        words.extend(self.zone.as_ref().map(|z| format!("zone {z}")));
        words.extend(self.region.as_ref().map(|r| format!("region {r}")));
        words.extend(self.weight.map(|w| format!("weight {w}")));
        words.extend(self.max_shards.map(|max| match max {
            Some(max) => format!("max_shards {max}"),
            None => "no max_shards".to_owned(),
        }));
        words.extend(self.network_bytes_per_second.map(|n| format!("link {n} bytes/s")));
        words.extend(self.disk_bytes_per_second.map(|n| format!("disk {n} bytes/s")));
        f.write_str(&words.join(", "))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(broker, traits) if *traits == Traits::default() => write!(f, "add {broker}"),
            Self::Add(broker, traits) => write!(f, "add {broker} ({traits})"),
            Self::Remove(broker) => write!(f, "remove {broker}"),
            Self::Resize(broker, traits) => write!(f, "resize {broker} ({traits})"),
            Self::Drain(broker) => write!(f, "drain {broker}"),
            Self::Fail(broker) => write!(f, "lose {broker}"),
            Self::Policy(_) => f.write_str("another policy"),
        }
    }
}
