//! Servers to run a case against, and the small things that most cases need.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use std::sync::Arc;
use std::time::Duration;

use evenkeel_coordination::{
    Election, ElectionConfig, Endpoint, Entry, Lease, Session, SessionConfig, Store, StoreConfig,
    Token, View,
};
use evenkeel_embedded_etcd::EmbeddedEtcd;
use evenkeel_testkit::{Etcd, EtcdOptions, EtcdVersion, wait_for};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;

/// Long enough for a laden machine; nothing waits for it unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub const SECOND: Duration = Duration::from_secs(1);

/// A server of either kind.
pub enum Server {
    Embedded { server: EmbeddedEtcd, url: String },
    Real(Box<Etcd>),
}

impl Server {
    pub async fn embedded() -> Self {
        let (server, address) = EmbeddedEtcd::listen("127.0.0.1:0", 1).await.unwrap();
        Self::Embedded { server, url: format!("http://{address}") }
    }

    /// `None`, with a line that says so, if this machine lacks the version.
    pub async fn real(version: EtcdVersion) -> Option<Self> {
        Some(Self::Real(Box::new(etcd(version, &[]).await?)))
    }

    pub fn url(&self) -> String {
        match self {
            Self::Embedded { url, .. } => url.clone(),
            Self::Real(etcd) => etcd.url(),
        }
    }

    pub fn store(&self) -> Store {
        open(&self.url())
    }
}

/// A real etcd with these flags; `None`, with a line that says so, if this machine lacks it.
pub async fn etcd(version: EtcdVersion, flags: &[&str]) -> Option<Etcd> {
    let Ok(options) = EtcdOptions::of(version) else {
        eprintln!("skipped: no {version} here; set {}", version.variable());
        return None;
    };
    Some(Etcd::start_with(options.flags(flags.iter().copied())).await.unwrap())
}

pub fn open(url: &str) -> Store {
    Store::open(StoreConfig::urls([url])).unwrap()
}

/// An embedded server behind in-memory links; no socket, so that the paused clock rules.
pub fn in_memory(server: &EmbeddedEtcd) -> Endpoint {
    let (links, accepted) = tokio::sync::mpsc::unbounded_channel();
    let incoming = UnboundedReceiverStream::new(accepted);
    tokio::spawn(server.serve(incoming, std::future::pending()));
    Endpoint::Channel(Arc::new(move || {
        let links = links.clone();
        let connect = move |_| {
            let links = links.clone();
            async move {
                let (ours, theirs) = tokio::io::duplex(1 << 16);
                let refused = |_| std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
                links.send(Ok::<_, std::io::Error>(theirs)).map_err(refused)?;
                Ok::<_, std::io::Error>(TokioIo::new(ours))
            }
        };
        Channel::from_static("http://in-memory")
            .connect_with_connector_lazy(tower::service_fn(connect))
    }))
}

pub fn session(store: &Store, ttl_s: u64) -> Session {
    Session::start(store.clone(), SessionConfig::new("test", Duration::from_secs(ttl_s)))
}

pub async fn held(session: &Session) -> Lease {
    timeout(PATIENCE, session.held()).await.expect("no lease").expect("session ended")
}

pub async fn lost(session: &Session) {
    let mut held = session.watch();
    let lost = held.wait_for(Option::is_none);
    timeout(PATIENCE, lost).await.expect("lease not lost").expect("session ended");
}

pub fn candidate(store: &Store, session: &Session, name: &str) -> Election {
    let config = ElectionConfig::new("test", "/cluster/leader/test", name.as_bytes().to_vec());
    Election::start(store.clone(), session.clone(), config)
}

pub async fn elected(election: &Election) -> Token {
    timeout(PATIENCE, election.elected()).await.expect("not elected").expect("election ended")
}

pub async fn not_leading(election: &Election) {
    wait_for("the end of the leadership", PATIENCE, || async { !election.is_leading() }).await;
}

pub async fn ready(view: &View) {
    timeout(PATIENCE, view.ready()).await.expect("view is not ready");
}

/// Waits until the view shows exactly what the store holds under the prefix.
pub async fn level(view: &View, store: &Store, prefix: &str) {
    wait_for("the view to be level with the store", PATIENCE, || async {
        match store.list(prefix).await {
            Ok(listing) => listing.entries == shown(view, prefix),
            Err(_) => false,
        }
    })
    .await;
}

pub fn shown(view: &View, prefix: &str) -> Vec<Entry> {
    view.read(|state| state.range(prefix).cloned().collect())
}

/// The keys and values a view shows, as text.
pub fn texts(view: &View, prefix: &str) -> Vec<(String, String)> {
    let text = |entry: Entry| (entry.key, String::from_utf8(entry.value).unwrap());
    shown(view, prefix).into_iter().map(text).collect()
}
