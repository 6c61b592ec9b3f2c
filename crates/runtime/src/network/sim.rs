//! The network of a simulation: hosts, in-memory links between them, and faults.
//!
//! Everything is decided by the calls made and one seed: the same run sees the same latencies.

mod faults;
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::pipe::Pipe;
use super::{Connection, Incoming, Network};

pub(super) use stream::SimStream;

/// First port that a listener without one gets.
const FIRST_PORT: u32 = 40_000;

/// The host was crashed by the simulation; what is left of it reaches nobody.
#[derive(Debug, thiserror::Error)]
#[error("host {0} is down")]
pub struct HostDown(pub String);

/// All hosts and links of one simulation. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SimNetwork {
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
}

/// One host's handle; it is worth nothing once the host has crashed and started again.
#[derive(Debug, Clone)]
pub(super) struct SimHost {
    name: Arc<str>,
    life: u64,
    network: SimNetwork,
}

#[derive(Debug)]
struct State {
    rng: StdRng,
    lives: BTreeMap<Arc<str>, u64>,
    down: BTreeSet<Arc<str>>,
    listeners: BTreeMap<String, Listening>,
    links: BTreeMap<u64, Link>,
    next_link: u64,
    next_port: u32,
    cuts: BTreeSet<(Arc<str>, Arc<str>)>,
    isolated: BTreeSet<Arc<str>>,
    refusing: BTreeSet<Arc<str>>,
    latency_ms: RangeInclusive<u64>,
    link_latency_ms: BTreeMap<(Arc<str>, Arc<str>), RangeInclusive<u64>>,
    bandwidth: BTreeMap<Arc<str>, u64>,
    /// When a host's egress is free again.
    egress_free: BTreeMap<Arc<str>, Instant>,
}

#[derive(Debug)]
struct Listening {
    host: Arc<str>,
    id: u64,
    accepted: mpsc::UnboundedSender<SimStream>,
}

/// Both directions of one connection; `from` opened it.
#[derive(Debug)]
struct Link {
    from: Arc<str>,
    to: Arc<str>,
    pipes: [Pipe; 2],
    /// Ends not dropped yet: faults must reach what one end left under way.
    ends: u8,
}

impl Link {
    fn touches(&self, host: &str) -> bool {
        &*self.from == host || &*self.to == host
    }
}

/// Accepted links of one address; dropping it stops listening.
#[derive(Debug)]
pub(super) struct SimListener {
    address: String,
    id: u64,
    accepted: mpsc::UnboundedReceiver<SimStream>,
    network: SimNetwork,
}

impl SimNetwork {
    /// No hosts, no latency, no faults.
    pub fn new(seed: u64) -> Self {
        let state = State {
            rng: StdRng::seed_from_u64(seed),
            lives: BTreeMap::new(),
            down: BTreeSet::new(),
            listeners: BTreeMap::new(),
            links: BTreeMap::new(),
            next_link: 0,
            next_port: FIRST_PORT,
            cuts: BTreeSet::new(),
            isolated: BTreeSet::new(),
            refusing: BTreeSet::new(),
            latency_ms: 0..=0,
            link_latency_ms: BTreeMap::new(),
            bandwidth: BTreeMap::new(),
            egress_free: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::new(watch::Sender::new(0)) }
    }

    /// Starts (or starts again) a host and gives its network. Handles from an earlier life of the
    /// host stay dead.
    pub fn host(&self, name: &str) -> Network {
        let name: Arc<str> = name.into();
        let mut state = self.state();
        state.down.remove(&name);
        let life = *state.lives.entry(name.clone()).or_insert(0);
        drop(state);
        self.notify();
        Network::simulated(SimHost { name, life, network: self.clone() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets those who wait to connect look again.
    fn notify(&self) {
        self.changed.send_modify(|n| *n += 1);
    }
}

impl State {
    fn is_cut(&self, a: &Arc<str>, b: &Arc<str>) -> bool {
        if a == b {
            return false;
        }
        self.isolated.contains(a)
            || self.isolated.contains(b)
            || self.cuts.contains(&ordered(a.clone(), b.clone()))
    }

    /// When `bytes` sent now from one host arrive at another.
    fn arrival(&mut self, from: &Arc<str>, to: &Arc<str>, bytes: usize) -> Instant {
        let now = Instant::now();
        if from == to {
            return now;
        }
        let pair = ordered(from.clone(), to.clone());
        let range = self.link_latency_ms.get(&pair).unwrap_or(&self.latency_ms).clone();
        // No draw for a fixed latency: other links keep their sequence when one is set.
        let latency = if range.start() == range.end() {
            *range.start()
        } else {
            self.rng.random_range(range)
        };
        let mut sent = now;
        if let Some(rate) = self.bandwidth.get(from).copied().filter(|rate| *rate > 0) {
            let free = self.egress_free.get(from).copied().unwrap_or(now).max(now);
            sent = free + Duration::from_secs_f64(bytes as f64 / rate as f64);
            self.egress_free.insert(from.clone(), sent);
        }
        sent + Duration::from_millis(latency)
    }

    fn link(&mut self, from: &Arc<str>, to: &Arc<str>) -> (u64, [Pipe; 2]) {
        let cut = self.is_cut(from, to);
        let pipes = [Pipe::new(cut), Pipe::new(cut)];
        let id = self.next_link;
        self.next_link += 1;
        let link = Link { from: from.clone(), to: to.clone(), pipes: pipes.clone(), ends: 2 };
        self.links.insert(id, link);
        (id, pipes)
    }

    fn leave(&mut self, link: u64) {
        if let Some(known) = self.links.get_mut(&link) {
            known.ends -= 1;
            if known.ends == 0 {
                self.links.remove(&link);
            }
        }
    }
}

fn ordered(a: Arc<str>, b: Arc<str>) -> (Arc<str>, Arc<str>) {
    if a <= b { (a, b) } else { (b, a) }
}

impl SimHost {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn check_alive(&self, state: &State) -> io::Result<()> {
        let alive =
            !state.down.contains(&self.name) && state.lives.get(&self.name) == Some(&self.life);
        if alive { Ok(()) } else { Err(io::Error::other(HostDown(self.name.to_string()))) }
    }

    pub(super) fn listen(&self, address: &str) -> io::Result<Incoming> {
        let malformed = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("'{address}' is not a simulated address"),
            )
        };
        let mut state = self.network.state();
        self.check_alive(&state)?;
        let (host, port) = address.rsplit_once(':').ok_or_else(malformed)?;
        let mut port: u32 = port.parse().map_err(|_| malformed())?;
        if port == 0 {
            port = state.next_port;
            state.next_port += 1;
        }
        // A wildcard or loopback host means this one: the address must be reachable from others.
        let host = match host {
            "0.0.0.0" | "127.0.0.1" | "localhost" | "" => self.name(),
            named => named,
        };
        let address = format!("{host}:{port}");
        if state.listeners.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let (sender, accepted) = mpsc::unbounded_channel();
        let id = state.next_link;
        state.next_link += 1;
        let listening = Listening { host: self.name.clone(), id, accepted: sender };
        state.listeners.insert(address.clone(), listening);
        drop(state);
        let listener =
            SimListener { address: address.clone(), id, accepted, network: self.network.clone() };
        Ok(Incoming::simulated(listener, address))
    }

    pub(super) async fn connect(&self, address: &str) -> io::Result<Connection> {
        let mut changes = self.network.changed.subscribe();
        loop {
            changes.borrow_and_update();
            let arrival = {
                let mut state = self.network.state();
                self.check_alive(&state)?;
                let target = self.target(&state, address);
                match target {
                    // A cut link loses the attempt; whoever waits has a timeout.
                    Some(to) if state.is_cut(&self.name, &to) => None,
                    Some(to) => Some((state.arrival(&self.name, &to, 0), to)),
                    None => Some((Instant::now(), self.name.clone())),
                }
            };
            let Some((arrival, to)) = arrival else {
                // The sender lives in self.network.
                let _ = changes.changed().await;
                continue;
            };
            if arrival > Instant::now() {
                tokio::time::sleep_until(arrival).await;
            }
            return self.establish(address, &to);
        }
    }

    /// The host that listens on an address, or that would.
    fn target(&self, state: &State, address: &str) -> Option<Arc<str>> {
        if let Some(listening) = state.listeners.get(address) {
            return Some(listening.host.clone());
        }
        let host = address.rsplit_once(':')?.0;
        state.lives.get_key_value(host).map(|(name, _)| name.clone())
    }

    fn establish(&self, address: &str, to: &Arc<str>) -> io::Result<Connection> {
        let mut state = self.network.state();
        self.check_alive(&state)?;
        let refused =
            || io::Error::new(io::ErrorKind::ConnectionRefused, format!("{address} refused"));
        if state.refusing.contains(to) {
            return Err(refused());
        }
        let accepted = state.listeners.get(address).ok_or_else(refused)?.accepted.clone();
        let (id, [there, back]) = state.link(&self.name, to);
        drop(state);
        let network = &self.network;
        let here = SimStream::new(
            network.clone(),
            id,
            (self.name.clone(), to.clone()),
            (back.clone(), there.clone()),
        );
        let far =
            SimStream::new(network.clone(), id, (to.clone(), self.name.clone()), (there, back));
        accepted.send(far).map_err(|_| refused())?;
        Ok(Connection::simulated(here))
    }
}

impl SimListener {
    pub(super) fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<SimStream> {
        match self.accepted.poll_recv(cx) {
            Poll::Ready(Some(stream)) => Poll::Ready(stream),
            // The host crashed: nothing comes any more.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let mut state = self.network.state();
        if state.listeners.get(&self.address).is_some_and(|l| l.id == self.id) {
            state.listeners.remove(&self.address);
        }
        // Whoever was not accepted yet is refused when the channel goes, outside the lock.
    }
}

#[cfg(test)]
mod tests;
