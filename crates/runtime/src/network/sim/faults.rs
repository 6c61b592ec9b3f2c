//! What a simulation does to its network.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::{SimNetwork, State, ordered};
use crate::network::pipe::Pipe;

impl SimNetwork {
    /// Nothing passes between two hosts, silently, until healed. What is under way waits.
    pub fn cut(&self, a: &str, b: &str) {
        self.change(|state| {
            state.cuts.insert(ordered(a.into(), b.into()));
        });
    }

    /// Takes back [`Self::cut`].
    pub fn heal(&self, a: &str, b: &str) {
        self.change(|state| {
            state.cuts.remove(&ordered(a.into(), b.into()));
        });
    }

    /// Nothing passes between this host and any other.
    pub fn isolate(&self, host: &str) {
        self.change(|state| {
            state.isolated.insert(host.into());
        });
    }

    /// Takes back [`Self::isolate`].
    pub fn rejoin(&self, host: &str) {
        self.change(|state| {
            state.isolated.remove(host);
        });
    }

    /// Takes back every cut and every isolation.
    pub fn heal_all(&self) {
        self.change(|state| {
            state.cuts.clear();
            state.isolated.clear();
        });
    }

    /// New connections to this host are refused; open ones go on.
    pub fn refuse(&self, host: &str) {
        self.change(|state| {
            state.refusing.insert(host.into());
        });
    }

    /// Takes back [`Self::refuse`].
    pub fn accept(&self, host: &str) {
        self.change(|state| {
            state.refusing.remove(host);
        });
    }

    /// Resets every open connection.
    pub fn reset_all(&self) {
        self.reset_links(|_| true);
    }

    /// Resets every open connection of one host.
    pub fn reset(&self, host: &str) {
        self.reset_links(|touches| touches(host));
    }

    /// The host dies at once: its connections are reset, it listens no more, and handles of this
    /// life reach nobody. [`SimNetwork::host`] starts it again.
    pub fn crash(&self, host: &str) {
        let name: Arc<str> = host.into();
        self.change(|state| {
            *state.lives.entry(name.clone()).or_insert(0) += 1;
            state.down.insert(name.clone());
        });
        // Dropped outside the lock: each holds streams that take the lock when they go.
        let stopped: Vec<_> = {
            let mut state = self.state();
            let mine: Vec<String> = state
                .listeners
                .iter()
                .filter(|(_, listening)| listening.host == name)
                .map(|(address, _)| address.clone())
                .collect();
            mine.iter().filter_map(|address| state.listeners.remove(address)).collect()
        };
        drop(stopped);
        self.reset(host);
    }

    /// Latency in milliseconds of every link without one of its own; drawn for each message.
    pub fn set_latency_ms(&self, range: RangeInclusive<u64>) {
        self.change(|state| state.latency_ms = range);
    }

    /// Latency in milliseconds between two hosts.
    pub fn set_link_latency_ms(&self, a: &str, b: &str, range: RangeInclusive<u64>) {
        self.change(|state| {
            state.link_latency_ms.insert(ordered(a.into(), b.into()), range);
        });
    }

    /// What a host can send, in bytes per second, to all others together; 0 is unlimited.
    pub fn set_bandwidth(&self, host: &str, bytes_per_second: u64) {
        self.change(|state| {
            state.bandwidth.insert(host.into(), bytes_per_second);
        });
    }

    /// Open connections, for tests and for a look at leaks.
    pub fn open_links(&self) -> usize {
        self.state().links.len()
    }

    /// Addresses that are listened on.
    pub fn listening(&self) -> BTreeSet<String> {
        self.state().listeners.keys().cloned().collect()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let pipes: Vec<(Pipe, bool)> = {
            let mut state = self.state();
            change(&mut state);
            let cut = |link: &super::Link| state.is_cut(&link.from, &link.to);
            state
                .links
                .values()
                .flat_map(|link| link.pipes.iter().map(move |pipe| (pipe.clone(), cut(link))))
                .collect()
        };
        for (pipe, cut) in pipes {
            pipe.set_cut(cut);
        }
        self.notify();
    }

    fn reset_links(&self, chosen: impl Fn(&dyn Fn(&str) -> bool) -> bool) {
        let pipes: Vec<Pipe> = {
            let state = self.state();
            state
                .links
                .values()
                .filter(|link| chosen(&|host| link.touches(host)))
                .flat_map(|link| link.pipes.clone())
                .collect()
        };
        for pipe in pipes {
            pipe.reset();
        }
    }
}
