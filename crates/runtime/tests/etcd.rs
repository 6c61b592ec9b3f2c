//! The etcd option against what it starts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use evenkeel_runtime::etcd::{self, OpenError};
use evenkeel_runtime::{Clock, Environment, EtcdOption, MetricsHandle, Network, Shutdown};

fn environment() -> Environment {
    Environment {
        clock: Clock::system(),
        network: Network::tcp(),
        shutdown: Shutdown::new(),
        seed: 7,
        store: None,
        metrics: MetricsHandle::none(),
    }
}

#[tokio::test]
async fn an_embedded_etcd_is_shared_by_its_url_and_its_port_is_taken_once() {
    let env = environment();
    let option = EtcdOption::Embedded("127.0.0.1:0".to_owned());
    let (store, guard) = etcd::open(&option, &env).await.unwrap();
    let written = store.put("/cluster/x", b"1".to_vec(), None).await.unwrap();
    let urls = guard.urls().join(",");
    let (other, _guard) = etcd::open(&urls.parse().unwrap(), &env).await.unwrap();
    assert_eq!(other.get("/cluster/x").await.unwrap().unwrap().mod_revision, written);

    let taken = urls.trim_start_matches("http://").to_owned();
    let error = etcd::open(&EtcdOption::Embedded(taken.clone()), &env).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "cannot start the embedded etcd: cannot listen on {taken}: the port is in use by \
             another process"
        )
    );
    assert!(!error.is_unreachable());
}

#[tokio::test]
async fn a_spawned_etcd_answers_and_a_missing_program_is_named() {
    let env = environment();
    let missing = EtcdOption::Spawn(Some("/no/such/etcd".into()));
    let error = etcd::open(&missing, &env).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "cannot start /no/such/etcd: no such program: expected etcd in PATH, spawn:/path/to/etcd \
         or embedded"
    );
    if std::process::Command::new("etcd").arg("--version").output().is_err() {
        eprintln!("skipped: no etcd in PATH");
        return;
    }
    let (store, guard) = etcd::open(&EtcdOption::Spawn(None), &env).await.unwrap();
    store.put("/cluster/x", b"1".to_vec(), None).await.unwrap();
    guard.stop().await;
}

#[tokio::test]
async fn an_etcd_that_is_not_there_is_named() {
    let env = environment();
    let error = etcd::open(&"http://127.0.0.1:1".parse().unwrap(), &env).await.err().unwrap();
    assert!(matches!(error, OpenError::Unreachable(_)));
    assert!(error.is_unreachable());
    let text = error.to_string();
    assert!(
        text.starts_with("cannot reach etcd: ") && text.contains("http://127.0.0.1:1: "),
        "{text}"
    );
}
