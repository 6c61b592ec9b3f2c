//! What goes wrong, and when: decided by the seed alone.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

use crate::fleet::Fleet;

/// Something that is broken until its time is over.
enum Broken {
    Crashed(String),
    Isolated(String),
    Cut(String, String),
    EtcdPaused,
    EtcdRefusing,
}

/// Breaks and mends.
pub(crate) struct Trouble {
    rng: StdRng,
    broken: Vec<(Instant, Broken)>,
    next: Instant,
    every: Duration,
}

impl Trouble {
    pub(crate) fn new(seed: u64, every: Duration) -> Self {
        let rng = StdRng::seed_from_u64(seed ^ 0x0074_726f_7562_6c65);
        Self { rng, broken: Vec::new(), next: Instant::now() + every, every }
    }

    /// Mends what is due, breaks the next thing if its time has come.
    pub(crate) fn step(&mut self, fleet: &mut Fleet) -> anyhow::Result<()> {
        let now = Instant::now();
        let (due, left) =
            std::mem::take(&mut self.broken).into_iter().partition(|(at, _)| *at <= now);
        self.broken = left;
        for (_, broken) in Vec::from_iter::<Vec<_>>(due) {
            mend(fleet, broken)?;
        }
        if now >= self.next {
            self.next = now + self.every;
            self.break_something(fleet);
        }
        Ok(())
    }

    /// Mends everything.
    pub(crate) fn end(&mut self, fleet: &mut Fleet) -> anyhow::Result<()> {
        for (_, broken) in std::mem::take(&mut self.broken) {
            mend(fleet, broken)?;
        }
        fleet.network.heal_all();
        Ok(())
    }

    fn pick(&mut self, names: Vec<String>) -> String {
        let at = self.rng.random_range(0..names.len());
        names[at].clone()
    }

    /// One broker at a time is away, so that a majority of every set is there.
    fn a_broker_is_away(&self) -> bool {
        self.broken.iter().any(|(_, broken)| match broken {
            Broken::Crashed(name) | Broken::Isolated(name) => name.starts_with('b'),
            Broken::Cut(..) | Broken::EtcdPaused | Broken::EtcdRefusing => false,
        })
    }

    fn break_something(&mut self, fleet: &mut Fleet) {
        let choice = self.rng.random_range(0..10);
        let lasting = Duration::from_millis(self.rng.random_range(1_000..25_000));
        let broken = match choice {
            0..=2 if !self.a_broker_is_away() => {
                let name = self.pick(fleet.brokers());
                fleet.crash(&name);
                Broken::Crashed(name)
            }
            3 if !self.a_broker_is_away() => {
                let name = self.pick(fleet.brokers());
                fleet.network.isolate(&name);
                Broken::Isolated(name)
            }
            4 => {
                let name = self.pick(fleet.load_managers());
                fleet.crash(&name);
                Broken::Crashed(name)
            }
            5 => {
                let name = self.pick(fleet.migrators());
                fleet.crash(&name);
                Broken::Crashed(name)
            }
            6 => {
                let (a, b) = (self.pick(fleet.brokers()), self.pick(fleet.brokers()));
                fleet.network.cut(&a, &b);
                Broken::Cut(a, b)
            }
            7 => {
                fleet.etcd.pause();
                Broken::EtcdPaused
            }
            8 => {
                fleet.network.refuse("etcd");
                fleet.network.reset("etcd");
                fleet.etcd.restart();
                Broken::EtcdRefusing
            }
            _ => {
                fleet.network.reset_all();
                fleet.etcd.compact_now();
                return;
            }
        };
        self.broken.push((Instant::now() + lasting, broken));
    }
}

fn mend(fleet: &mut Fleet, broken: Broken) -> anyhow::Result<()> {
    match broken {
        Broken::Crashed(name) => fleet.start(&name)?,
        Broken::Isolated(name) => fleet.network.rejoin(&name),
        Broken::Cut(a, b) => fleet.network.heal(&a, &b),
        Broken::EtcdPaused => fleet.etcd.resume(),
        Broken::EtcdRefusing => fleet.network.accept("etcd"),
    }
    Ok(())
}
