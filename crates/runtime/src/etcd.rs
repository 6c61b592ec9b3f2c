//! Which etcd a service uses, and the door to it.

mod embedded;
mod spawned;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use evenkeel_coordination::{ErrorClass, Store, StoreConfig, StoreError};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Environment;
use crate::network::ListenError;

/// Where the embedded server listens unless told otherwise; the port is etcd's own.
pub const EMBEDDED_LISTEN: &str = "127.0.0.1:2379";

/// How long a start waits for etcd to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// `embedded[:host:port]`, `spawn[:path]`, or URLs separated by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdOption {
    /// A server inside this process that listens at the address. Neither durable nor replicated.
    Embedded(String),
    /// An etcd process started for this one; the program is looked up in `PATH` if none is given.
    Spawn(Option<PathBuf>),
    /// A running cluster.
    Urls(Vec<String>),
}

impl Default for EtcdOption {
    fn default() -> Self {
        Self::Urls(vec![format!("http://{EMBEDDED_LISTEN}")])
    }
}

impl FromStr for EtcdOption {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let refused = |why: &str| {
            Err(format!("{why}: expected embedded[:host:port], spawn[:path] or http://host:port,…"))
        };
        if let Some(rest) = s.strip_prefix("embedded") {
            return match rest.strip_prefix(':') {
                None if rest.is_empty() => Ok(Self::Embedded(EMBEDDED_LISTEN.to_owned())),
                Some(listen) if listen.contains(':') => Ok(Self::Embedded(listen.to_owned())),
                _ => refused("no host:port after embedded"),
            };
        }
        if let Some(rest) = s.strip_prefix("spawn") {
            return match rest.strip_prefix(':') {
                None if rest.is_empty() => Ok(Self::Spawn(None)),
                Some(path) if !path.is_empty() => Ok(Self::Spawn(Some(path.into()))),
                _ => refused("no path after spawn"),
            };
        }
        let urls: Vec<String> =
            s.split(',').map(|url| url.trim().trim_end_matches('/').to_owned()).collect();
        for url in &urls {
            let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            match host {
                Some(host) if host.contains(':') && !host.contains('/') => {}
                Some(_) => return refused(&format!("'{url}' lacks a port")),
                None => return refused(&format!("'{url}' is no http URL")),
            }
        }
        Ok(Self::Urls(urls))
    }
}

impl fmt::Display for EtcdOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded(listen) => write!(f, "embedded:{listen}"),
            Self::Spawn(None) => f.write_str("spawn"),
            Self::Spawn(Some(path)) => write!(f, "spawn:{}", path.display()),
            Self::Urls(urls) => f.write_str(&urls.join(",")),
        }
    }
}

impl Serialize for EtcdOption {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EtcdOption {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// Why a service has no store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// etcd does not answer, or refuses.
    #[error("cannot reach etcd: {}", .0.detail)]
    Unreachable(StoreError),
    /// The embedded server's address is taken.
    #[error("cannot start the embedded etcd: {0}")]
    Embedded(#[from] ListenError),
    /// The process did not start.
    #[error("cannot start {program}: {detail}")]
    Spawn {
        /// The program.
        program: String,
        /// What went wrong.
        detail: String,
    },
}

/// Keeps alive what was started for the store: drop it last.
#[derive(Debug, Default)]
pub struct EtcdGuard {
    urls: Vec<String>,
    server: Option<embedded::Server>,
    process: Option<spawned::Process>,
}

impl EtcdGuard {
    /// Where other processes reach the same etcd; empty in a simulation.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Stops what was started, if anything.
    pub async fn stop(self) {
        drop(self.server);
        if let Some(process) = self.process {
            process.stop().await;
        }
    }
}

/// Starts what the option asks for, opens the store and waits until it answers. In a simulation
/// the environment's store is taken instead, whatever the option.
pub async fn open(option: &EtcdOption, env: &Environment) -> Result<(Store, EtcdGuard), OpenError> {
    if let Some(factory) = &env.store {
        return Ok((factory.open(), EtcdGuard::default()));
    }
    let guard = match option {
        EtcdOption::Embedded(listen) => {
            let server = embedded::Server::start(listen, env).await?;
            EtcdGuard { urls: vec![server.url()], server: Some(server), process: None }
        }
        EtcdOption::Spawn(program) => {
            let process = spawned::Process::start(program.as_deref()).await?;
            EtcdGuard { urls: vec![process.url()], server: None, process: Some(process) }
        }
        EtcdOption::Urls(urls) => EtcdGuard { urls: urls.clone(), ..EtcdGuard::default() },
    };
    let mut config = StoreConfig::urls(guard.urls.clone());
    config.seed = env.seed;
    let store = Store::open(config).map_err(OpenError::Unreachable)?;
    store.probe(PATIENCE).await.map_err(OpenError::Unreachable)?;
    Ok((store, guard))
}

/// Serves an embedded etcd and nothing else until shutdown is requested.
pub async fn serve_embedded(listen: &str, env: &Environment) -> Result<(), OpenError> {
    let server = embedded::Server::start(listen, env).await?;
    env.shutdown.requested().await;
    drop(server);
    Ok(())
}

impl OpenError {
    /// Whether nobody answered, rather than that something was asked for that cannot be.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(error) if error.class != ErrorClass::Fatal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_round_trip_and_bad_ones_say_what_is_expected() {
        for text in [
            "embedded:127.0.0.1:2379",
            "embedded:0.0.0.0:0",
            "spawn",
            "spawn:/usr/bin/etcd",
            "http://a:1,https://b:2",
        ] {
            assert_eq!(text.parse::<EtcdOption>().unwrap().to_string(), text);
        }
        assert_eq!(
            "embedded".parse::<EtcdOption>(),
            Ok(EtcdOption::Embedded(EMBEDDED_LISTEN.to_owned()))
        );
        assert_eq!(
            "http://a:1/, http://b:2".parse::<EtcdOption>().unwrap().to_string(),
            "http://a:1,http://b:2"
        );
        for (bad, why) in [
            ("", "'' is no http URL"),
            ("embeded", "'embeded' is no http URL"),
            ("embedded:", "no host:port after embedded"),
            ("spawn:", "no path after spawn"),
            ("http://a", "'http://a' lacks a port"),
        ] {
            let error = bad.parse::<EtcdOption>().unwrap_err();
            assert!(error.starts_with(why), "{error}");
            assert!(error.ends_with("spawn[:path] or http://host:port,…"), "{error}");
        }
    }
}
