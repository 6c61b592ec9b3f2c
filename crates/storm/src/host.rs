//! One node: its request queue, its clients, its control law and the work it puts off.

use std::collections::VecDeque;

use evenkeel_throttle::{Concurrency, Crowd, Law, LawName, Sample, State, TargetError};

use crate::clients::{Clients, Tally};
use crate::latency::{Piece, p99};
use crate::queue::{Queue, Served, service_ms};
use crate::scenario::{Controls, LawChoice, Settings, Traffic};
use crate::seed::Seed;
use crate::upkeep::Upkeep;

/// The shortest queue that counts as a usual one, and over how many seconds it is learned; as in
/// the agent.
const USUAL_QUEUE_MIN: f64 = 16.0;
const USUAL_QUEUE_S: f64 = 60.0;

/// Requests that are taken in at once, at least and at most: an agent's own.
const LEAST_AT_ONCE: u64 = 32;
const MOST_AT_ONCE: u64 = 4096;

/// Times in a step that the limit on them is looked at: an agent's window is 100 ms.
pub(crate) const WINDOWS: usize = 2;

/// See the module.
pub(crate) struct Host {
    pub(crate) up: bool,
    /// When its lease runs out, of one that is gone.
    pub(crate) expires_ms: Option<f64>,
    /// Part of its speed that a sick disk leaves.
    pub(crate) speed: f64,
    pub(crate) upkeep: Upkeep,
    pub(crate) state: State,
    /// Of the last second, without noise.
    pub(crate) p99_ms: Option<f64>,
    /// Pieces of the seconds that the law looks at, the newest last.
    pieces: VecDeque<Piece>,
    queue: Queue,
    clients: Clients,
    law: Option<Law>,
    /// How many requests are taken in at once; none without shedding.
    limit: Option<Concurrency>,
    /// Requests refused in the second so far.
    refused: f64,
    off_share: f64,
    usual_queue: Option<f64>,
    /// Maintenance bytes of the step and of the second so far.
    pub(crate) maintained: (f64, f64),
    seed: Seed,
}

impl Host {
    pub(crate) fn new(settings: &Settings, seed: Seed) -> Result<Self, TargetError> {
        let controls = &settings.controls;
        Ok(Self {
            up: true,
            expires_ms: None,
            speed: 1.0,
            upkeep: Upkeep::new(controls)?,
            state: State::NoData,
            p99_ms: None,
            pieces: VecDeque::new(),
            queue: Queue::default(),
            clients: Clients::default(),
            law: law(controls)?,
            limit: limit(controls),
            refused: 0.0,
            off_share: controls.off_share,
            usual_queue: None,
            maintained: (0.0, 0.0),
            seed,
        })
    }

    /// The share of the link that copies may take.
    pub(crate) fn share(&self) -> f64 {
        self.law.as_ref().map_or(self.off_share, Law::share)
    }

    /// The same in bytes per second.
    pub(crate) fn allowed(&self, link: u64) -> u64 {
        match &self.law {
            Some(law) => law.bytes_per_second(link),
            None => (link as f64 * self.off_share) as u64,
        }
    }

    /// Requests inside.
    pub(crate) fn depth(&self, traffic: &Traffic) -> f64 {
        self.queue.depth(traffic)
    }

    /// One step of requests beside copies that take `busy` of the link.
    pub(crate) fn step(
        &mut self,
        settings: &Settings,
        demand: f64,
        busy: f64,
        step_ms: f64,
    ) -> Tally {
        let traffic = &settings.traffic;
        let attempts = self.clients.attempts(traffic, demand, step_ms);
        let asked: f64 = attempts.iter().sum();
        let served = if self.up {
            let left = self.speed - traffic.contention * busy;
            self.serve(traffic, asked, left, step_ms)
        } else {
            // Nobody answers.
            let never = Piece { requests: 0.0, shift_ms: f64::MAX, mean_ms: 1.0 };
            Served { piece: never, refused: 0.0, dropped: 0.0 }
        };
        self.clients.answered(traffic, &settings.controls, &attempts, &served, step_ms)
    }

    /// Requests of one step, window by window, with so much of the capacity left for them.
    fn serve(&mut self, traffic: &Traffic, asked: f64, left: f64, step_ms: f64) -> Served {
        let (asked, window_ms) = (asked / WINDOWS as f64, step_ms / WINDOWS as f64);
        let offered = asked * 1000.0 / (traffic.capacity * window_ms);
        // Requests inside when one service time of work is.
        let unit = traffic.capacity * service_ms(traffic) / 1000.0;
        let mut all = Served::default();
        for _ in 0..WINDOWS {
            let most = self.limit.as_ref().map(|law| law.limit() as f64 / unit);
            let served = self.queue.step(traffic, window_ms, offered, left, most);
            let requests = asked * (1.0 - served.refused - served.dropped);
            let piece = Piece { requests, ..served.piece };
            self.refused += asked * served.refused;
            if let Some(law) = &mut self.limit {
                law.observe(Crowd {
                    mean_ms: Some(piece.shift_ms + piece.mean_ms),
                    answered: requests as u64,
                    in_flight: self.queue.depth(traffic) as u64,
                });
            }
            self.pieces.push_back(piece);
            all.add(&Served { piece, ..served }, WINDOWS as f64);
        }
        all
    }

    /// Ends a second: the law and the ramp look at it. `copied` is over what was allowed.
    pub(crate) fn observe(&mut self, settings: &Settings, now_ms: f64, steps: usize, copied: f64) {
        let controls = &settings.controls;
        let (first, kept) = (steps * WINDOWS, steps * WINDOWS * controls.window_s);
        while self.pieces.len() > kept {
            self.pieces.pop_front();
        }
        let pieces = self.pieces.make_contiguous();
        let newest = &pieces[pieces.len().saturating_sub(first)..];
        let requests: f64 = newest.iter().map(|p| p.requests).sum();
        self.p99_ms = p99(newest);
        let noise = (settings.traffic.noise * self.seed.normal()).exp();
        let seen = p99(pieces).map(|p99| p99 * noise);
        let depth = self.queue.depth(&settings.traffic);
        let usual = self.usual_queue.unwrap_or(0.0).max(USUAL_QUEUE_MIN);
        let weight = 1.0 - (-1.0 / USUAL_QUEUE_S).exp();
        self.usual_queue = Some(self.usual_queue.map_or(depth, |u| u + weight * (depth - u)));
        // Copies yield before requests are refused: a refusal says that they came too late.
        let refuses = std::mem::take(&mut self.refused) >= 1.0;
        let sample = Sample {
            at_ms: now_ms as u64,
            p99_ms: seen,
            requests: requests as u64,
            queue: Some(if refuses { f64::INFINITY } else { depth / usual }),
            used: copied.min(1.0),
        };
        if let Some(law) = &mut self.law {
            self.state = law.observe(sample);
        }
        self.upkeep.observe(now_ms, &sample, self.share());
    }

    /// Pieces of the last second.
    pub(crate) fn last_second(&self, steps: usize) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().rev().take(if self.up { steps * WINDOWS } else { 0 })
    }

    /// The process ends; what it held in memory is gone.
    pub(crate) fn stop(&mut self, now_ms: f64, detection_ms: f64) {
        self.up = false;
        self.expires_ms = Some(now_ms + detection_ms);
        self.queue.clear();
        self.upkeep.clear();
        self.pieces.clear();
        self.p99_ms = None;
        self.state = State::NoData;
    }

    /// It starts again, with a fresh law.
    pub(crate) fn start(&mut self, controls: &Controls) {
        self.up = true;
        self.expires_ms = None;
        self.usual_queue = None;
        // The target was good for the first one.
        self.law = law(controls).ok().flatten();
        self.limit = limit(controls);
    }
}

fn law(controls: &Controls) -> Result<Option<Law>, TargetError> {
    let name = match controls.law {
        LawChoice::Plain => LawName::Plain,
        LawChoice::Steady => LawName::Steady,
        LawChoice::Off => return Ok(None),
    };
    Law::new(name, controls.target_ms).map(Some)
}

fn limit(controls: &Controls) -> Option<Concurrency> {
    let calm_ms = controls.shed_latency_ms;
    controls.shedding.then(|| Concurrency::new(LEAST_AT_ONCE, MOST_AT_ONCE, calm_ms))
}
