//! The etcd fixture against a real server: faults do what they say, and nothing stays behind.

#![expect(clippy::unwrap_used, reason = "a fixture that fails should end its test")]

use std::io;
use std::time::Duration;

use evenkeel_testkit::{Etcd, EtcdCluster, EtcdVersion, Proxy, wait_for};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(10);

/// Asks for `/version`, which every member answers by itself.
async fn version(address: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = "GET /version HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

async fn answers(address: &str) -> bool {
    let asked = tokio::time::timeout(Duration::from_millis(300), version(address)).await;
    asked.is_ok_and(|answer| answer.is_ok_and(|text| text.contains("etcdserver")))
}

fn available() -> bool {
    let found = EtcdVersion::V3_4.find().is_some();
    if !found {
        println!("skipped: no {} on this machine", EtcdVersion::V3_4);
    }
    found
}

#[tokio::test]
async fn a_member_survives_kill_stop_and_restart_and_leaves_nothing_behind() {
    if !available() {
        return;
    }
    let mut etcd = Etcd::start(EtcdVersion::V3_4).await.unwrap();
    let address = etcd.address();
    assert!(answers(&address).await);

    etcd.stop().unwrap();
    assert!(!answers(&address).await);
    etcd.cont().unwrap();
    wait_for("an answer after the stop", PATIENCE, || answers(&address)).await;

    etcd.kill9();
    assert!(!answers(&address).await && !etcd.is_running());
    etcd.restart().await.unwrap();
    assert!(answers(&address).await);
    etcd.wipe_and_restart().await.unwrap();
    assert!(answers(&address).await);

    etcd.stop().unwrap();
    let folder = etcd.folder().to_owned();
    drop(etcd);
    assert!(!folder.exists() && !answers(&address).await);
}

#[tokio::test]
async fn a_cluster_serves_without_one_of_its_members() {
    if !available() {
        return;
    }
    let mut cluster = EtcdCluster::start(EtcdVersion::V3_4, 3).await.unwrap();
    cluster.members[0].kill9();
    for member in &mut cluster.members[1..] {
        member.ready().await.unwrap();
    }
    cluster.members[0].restart().await.unwrap();
}

#[tokio::test]
async fn a_refused_flag_is_told_with_the_log() {
    if !available() {
        return;
    }
    let options = evenkeel_testkit::EtcdOptions::of(EtcdVersion::V3_4).unwrap();
    let error = Etcd::start_with(options.flags(["--no-such-flag"])).await.unwrap_err();
    assert!(error.to_string().contains("no-such-flag"), "{error}");
}

async fn echo_server() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    address
}

async fn echo(stream: &mut TcpStream, text: &str) -> io::Result<String> {
    stream.write_all(text.as_bytes()).await?;
    let mut answer = vec![0; text.len()];
    let read = tokio::time::timeout(Duration::from_millis(200), stream.read_exact(&mut answer));
    read.await??;
    String::from_utf8(answer).map_err(io::Error::other)
}

#[tokio::test]
async fn a_cut_holds_everything_back_and_a_heal_delivers_it() {
    let proxy = Proxy::start(echo_server().await).await.unwrap();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(echo(&mut stream, "one").await.unwrap(), "one");

    proxy.cut();
    assert_eq!(echo(&mut stream, "two").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    let mut second = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(echo(&mut second, "new").await.unwrap_err().kind(), io::ErrorKind::TimedOut);

    proxy.heal();
    let mut answer = [0; 3];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"two");
    second.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"new");
}

#[tokio::test]
async fn a_reset_ends_open_connections_only() {
    let proxy = Proxy::start(echo_server().await).await.unwrap();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(echo(&mut stream, "one").await.unwrap(), "one");
    proxy.reset();
    let error = stream.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let mut next = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(echo(&mut next, "two").await.unwrap(), "two");
}

#[tokio::test]
async fn a_delay_holds_back_each_direction() {
    let proxy = Proxy::start(echo_server().await).await.unwrap();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(echo(&mut stream, "one").await.unwrap(), "one");
    proxy.delay(Duration::from_millis(30));
    let sent = tokio::time::Instant::now();
    assert_eq!(echo(&mut stream, "two").await.unwrap(), "two");
    assert!(sent.elapsed() >= Duration::from_millis(60));
}
