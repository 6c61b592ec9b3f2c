//! Which services the demo runs, with which flags.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_coordination::{Store, StoreConfig, StoreError};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::addresses::Addresses;
use super::fleet::Fleet;
use crate::Failure;
use crate::commands::publish::random_id;

/// Life of every lease: a killed process is missed this long.
const LEASE_TTL_MS: u64 = 3_000;

/// The demo's services and their addresses.
pub(crate) struct Services {
    pub(crate) fleet: Fleet,
    dir: PathBuf,
    /// What `--etcd` of every service is.
    etcd: String,
    /// Where the embedded one listens, if it is.
    embedded: Option<String>,
    /// Root of all keys: of this run's own in an etcd that is not.
    root: String,
    load_managers: BTreeMap<String, String>,
    state: Mutex<State>,
}

struct State {
    addresses: Addresses,
    brokers: BTreeMap<String, String>,
}

impl Services {
    pub(crate) fn new(dir: &Path, etcd: Option<String>) -> Result<Self, Failure> {
        let fleet = Fleet::new(dir)?;
        let mut addresses = Addresses::new();
        let (etcd, embedded, root) = match etcd {
            Some(urls) => (urls, None, format!("/evenkeel-demo/{:016x}", random_id())),
            None => {
                let listen = addresses.take()?;
                (format!("http://{listen}"), Some(listen), "/cluster".to_owned())
            }
        };
        let mut load_managers = BTreeMap::new();
        for name in ["load-manager-1", "load-manager-2"] {
            load_managers.insert(name.to_owned(), addresses.take()?);
        }
        let state = Mutex::new(State { addresses, brokers: BTreeMap::new() });
        Ok(Self { fleet, dir: dir.to_owned(), etcd, embedded, root, load_managers, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Placement policy of a cluster that is watched rather than left alone.
    pub(crate) fn policy(&self) -> Value {
        json!({
            "broker_expiry_ms": LEASE_TTL_MS,
            "settle_ms": 1_500,
            "reconcile_interval_ms": 500,
            "restore_after_ms": 3_000,
            "moves_max_concurrent": 4,
            // Two of few brokers may be gone at once here, and that is meant.
            "mass_loss_percent": 60,
            // All brokers are on one disk: none is better off than another.
            "disk_full_percent": 0,
        })
    }

    /// The embedded etcd, unless there is one; returns when it takes connections, as services give
    /// up on one that does not.
    pub(crate) async fn start_etcd(&self, patience: Duration) -> Result<(), Failure> {
        let Some(listen) = &self.embedded else { return Ok(()) };
        self.fleet.start("etcd", "etcd", &flags(&[("listen", listen)]))?;
        let deadline = Instant::now() + patience;
        while tokio::net::TcpStream::connect(listen).await.is_err() {
            self.fleet.check()?;
            if Instant::now() > deadline {
                return Err(Failure::No(format!("the embedded etcd does not listen on {listen}")));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Removes this run's keys from an etcd that is not the demo's own.
    pub(crate) async fn forget(&self) -> Result<(), Failure> {
        if self.embedded.is_some() {
            return Ok(());
        }
        let failed = |e: StoreError| {
            let (root, etcd) = (&self.root, &self.etcd);
            Failure::Unreachable(format!("cannot remove the keys under {root} at {etcd}: {e}"))
        };
        let urls: Vec<String> = self.etcd.split(',').map(str::to_owned).collect();
        let store = Store::open(StoreConfig::urls(urls)).map_err(failed)?;
        store.delete_prefix(&format!("{}/", self.root)).await.map_err(failed)?;
        Ok(())
    }

    /// Load managers and migrators.
    pub(crate) fn start_control(&self) -> Result<(), Failure> {
        for name in self.load_managers.keys() {
            self.start_load_manager(name)?;
        }
        for name in ["migrator-1", "migrator-2"] {
            let listen = self.state().addresses.take()?;
            let given = [
                ("instance", name),
                ("listen", listen.as_str()),
                ("metrics-listen", "127.0.0.1:0"),
                ("etcd", &self.etcd),
                ("root", &self.root),
            ];
            self.fleet.start(name, "migrator", &flags(&given))?;
        }
        Ok(())
    }

    /// A load manager, again after it was killed.
    pub(crate) fn start_load_manager(&self, name: &str) -> Result<(), Failure> {
        let address = self.load_managers.get(name).map(String::as_str).unwrap_or_default();
        let given = [
            ("instance", name),
            ("listen", address),
            ("metrics-listen", "127.0.0.1:0"),
            ("etcd", &self.etcd),
            ("root", &self.root),
            ("session-ttl-ms", &LEASE_TTL_MS.to_string()),
        ];
        self.fleet.start(name, "load-manager", &flags(&given))
    }

    /// Broker `b<number>`, in one of two zones.
    pub(crate) fn start_broker(&self, number: u32) -> Result<(), Failure> {
        let name = format!("b{number}");
        let listen = self.state().addresses.take()?;
        let data = self.dir.join("data").join(&name);
        let zone = if number % 2 == 1 { "z1" } else { "z2" };
        let given = [
            ("broker-id", name.as_str()),
            ("listen", &listen),
            ("metrics-listen", "127.0.0.1:0"),
            ("zone", zone),
            ("data-dir", &data.display().to_string()),
            ("etcd", &self.etcd),
            ("root", &self.root),
            ("lease-ttl-ms", &LEASE_TTL_MS.to_string()),
            ("load-report-interval-seconds", "2"),
        ];
        self.fleet.start(&name, "broker-agent", &flags(&given))?;
        self.state().brokers.insert(name, listen);
        Ok(())
    }

    /// Kills a broker without warning.
    pub(crate) fn kill_broker(&self, name: &str) -> Result<(), Failure> {
        self.fleet.kill(name)?;
        self.state().brokers.remove(name);
        Ok(())
    }

    /// Kills the load manager at an address without warning, and tells its name.
    pub(crate) fn kill_load_manager(&self, address: &str) -> Result<String, Failure> {
        let found = self.load_managers.iter().find(|(_, a)| *a == address);
        let (name, _) = found.ok_or_else(|| {
            Failure::No(format!("the leading load manager at {address} is none of the demo's"))
        })?;
        self.fleet.kill(name)?;
        Ok(name.clone())
    }

    /// Where the load managers are.
    pub(crate) fn load_manager_addresses(&self) -> Vec<String> {
        self.load_managers.values().cloned().collect()
    }

    /// Where the brokers are.
    pub(crate) fn broker_addresses(&self) -> Vec<String> {
        self.state().brokers.values().cloned().collect()
    }
}

fn flags(given: &[(&str, &str)]) -> Vec<String> {
    given.iter().map(|(name, value)| format!("--{name}={value}")).collect()
}
