//! The servers a case runs against.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::{Client, Error, Event, WatchOptions, WatchResponse, WatchStream};
use evenkeel_embedded_etcd::EmbeddedEtcd;
use evenkeel_testkit::{Etcd, EtcdOptions, EtcdVersion};
use tokio::sync::OnceCell;
use tonic::Code;

/// Longest wait for something that does come. Real servers on a laden machine take their time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How long nothing must come before a case believes that nothing will.
pub(crate) const SILENCE: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Embedded,
    V3_4,
    V3_5,
}

#[derive(Debug)]
enum Process {
    Embedded(EmbeddedEtcd),
    Own(Etcd),
    Shared,
}

/// A server of one kind, and the keys that belong to one case.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) kind: Kind,
    pub(crate) url: String,
    process: Process,
    prefix: String,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Server {
    /// One that other cases use at the same time, or `None` when this machine has none.
    pub(crate) async fn shared(kind: Kind) -> Option<Self> {
        static V3_4: OnceCell<Option<Etcd>> = OnceCell::const_new();
        static V3_5: OnceCell<Option<Etcd>> = OnceCell::const_new();
        let cell = match kind {
            Kind::Embedded => return Self::own(kind, &[]).await,
            Kind::V3_4 => &V3_4,
            Kind::V3_5 => &V3_5,
        };
        let etcd = cell.get_or_init(|| start(kind, &[])).await;
        etcd.as_ref().map(|etcd| Self::new(kind, etcd.url(), Process::Shared))
    }

    /// A fresh one for this case alone. The flags are for the real servers.
    pub(crate) async fn own(kind: Kind, flags: &[&str]) -> Option<Self> {
        if kind == Kind::Embedded {
            let seed = NEXT.fetch_add(1, Ordering::Relaxed);
            let (etcd, address) = EmbeddedEtcd::listen("127.0.0.1:0", seed).await.unwrap();
            return Some(Self::new(kind, format!("http://{address}"), Process::Embedded(etcd)));
        }
        let etcd = start(kind, flags).await?;
        Some(Self::new(kind, etcd.url(), Process::Own(etcd)))
    }

    fn new(kind: Kind, url: String, process: Process) -> Self {
        let prefix = format!("/case-{}/", NEXT.fetch_add(1, Ordering::Relaxed));
        Self { kind, url, process, prefix }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect([&self.url], None).await.unwrap()
    }

    /// A key of this case; an empty name is the prefix of all of them.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// A watch of all this case's keys, created, with the revision it was created at.
    pub(crate) async fn watch_all(&self, options: WatchOptions) -> (WatchStream, i64) {
        let mut client = self.client().await;
        let mut stream = client.watch(self.key(""), Some(options.with_prefix())).await.unwrap();
        let created = next(&mut stream).await;
        assert!(created.created() && !created.canceled(), "{created:?}");
        let revision = created.header().unwrap().revision();
        (stream, revision)
    }

    /// Stops answering; connections stay open.
    pub(crate) fn pause(&self) {
        match &self.process {
            Process::Embedded(etcd) => etcd.pause(),
            Process::Own(etcd) => etcd.stop().unwrap(),
            Process::Shared => panic!("a shared server is not for faults"),
        }
    }

    pub(crate) fn resume(&self) {
        match &self.process {
            Process::Embedded(etcd) => etcd.resume(),
            Process::Own(etcd) => etcd.cont().unwrap(),
            Process::Shared => panic!("a shared server is not for faults"),
        }
    }

    /// On the embedded server's clock; real ones are told by a flag to make less of it.
    pub(crate) async fn let_ten_minutes_pass(&self) {
        if self.kind == Kind::Embedded {
            tokio::time::pause();
            tokio::time::sleep(Duration::from_secs(605)).await;
            tokio::time::resume();
        }
    }

    /// Crashes and comes back with its data.
    pub(crate) async fn restart(&mut self) {
        match &mut self.process {
            Process::Embedded(etcd) => etcd.restart(),
            Process::Own(etcd) => etcd.restart().await.unwrap(),
            Process::Shared => panic!("a shared server is not for faults"),
        }
    }

    /// Crashes and comes back without its data.
    pub(crate) async fn wipe(&mut self) {
        match &mut self.process {
            Process::Embedded(etcd) => etcd.wipe(NEXT.fetch_add(1, Ordering::Relaxed)),
            Process::Own(etcd) => etcd.wipe_and_restart().await.unwrap(),
            Process::Shared => panic!("a shared server is not for faults"),
        }
    }
}

async fn start(kind: Kind, flags: &[&str]) -> Option<Etcd> {
    let version = match kind {
        Kind::Embedded => return None,
        Kind::V3_4 => EtcdVersion::V3_4,
        Kind::V3_5 => EtcdVersion::V3_5,
    };
    if version.find().is_none() {
        say_once(version);
        return None;
    }
    let options = EtcdOptions::of(version).unwrap().flags(flags.iter().copied());
    Some(Etcd::start_with(options).await.unwrap())
}

/// Past the test harness's capture: a skipped case should not look like one that ran.
fn say_once(version: EtcdVersion) {
    static SAID: [std::sync::Once; 2] = [const { std::sync::Once::new() }; 2];
    SAID[usize::from(version == EtcdVersion::V3_5)].call_once(|| {
        let line = format!("skipped: no {version} here (set {})\n", version.variable());
        let _ = std::io::stderr().write_all(line.as_bytes());
    });
}

/// The next message of a watch.
pub(crate) async fn next(stream: &mut WatchStream) -> WatchResponse {
    let message = tokio::time::timeout(PATIENCE, stream.message()).await;
    message.expect("a message in time").unwrap().expect("a message, not the end")
}

/// The next `count` events of a watch, however many messages they take.
pub(crate) async fn next_events(stream: &mut WatchStream, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(next(stream).await.events().iter().cloned());
    }
    events
}

/// That nothing comes.
pub(crate) async fn assert_silent(stream: &mut WatchStream) {
    let message = tokio::time::timeout(SILENCE, stream.message()).await;
    assert!(message.is_err(), "{message:?}");
}

/// That a call was refused with this code and a message that ends so.
#[track_caller]
pub(crate) fn assert_refused<T: std::fmt::Debug>(
    outcome: Result<T, Error>,
    code: Code,
    message: &str,
) {
    match outcome {
        Err(Error::GRpcStatus(status)) => {
            assert_eq!((status.code(), status.message()), (code, message));
        }
        other => panic!("wanted {code:?} {message:?}, got {other:?}"),
    }
}

/// Three tests for each case: one per kind of server.
macro_rules! cases {
    (shared { $($shared:ident)* } $(own { $($own:ident)* })? $(with $flags:tt { $($flagged:ident)* })*) => {
        $(cases!(@test $shared, shared(kind));)*
        $($(cases!(@test $own, own(kind, &[]));)*)?
        $(cases!(@flagged $flags $($flagged)*);)*
    };
    (@flagged $flags:tt $($flagged:ident)*) => {
        $(cases!(@test $flagged, own(kind, &$flags));)*
    };
    (@test $case:ident, $start:ident($kind:ident $(, $flags:expr)?)) => {
        mod $case {
            use crate::server::{Kind, Server};

            async fn run($kind: Kind) {
                if let Some(server) = Server::$start($kind $(, $flags)?).await {
                    super::$case(server).await;
                }
            }

            #[tokio::test]
            async fn embedded() {
                run(Kind::Embedded).await;
            }

            #[tokio::test]
            async fn etcd_3_4() {
                run(Kind::V3_4).await;
            }

            #[tokio::test]
            async fn etcd_3_5() {
                run(Kind::V3_5).await;
            }
        }
    };
}
