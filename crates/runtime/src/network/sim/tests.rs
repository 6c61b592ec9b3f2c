use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::SimNetwork;
use crate::network::{Connection, Incoming, Network};

async fn pair(network: &SimNetwork) -> (Network, Incoming, Connection, Connection) {
    let a = network.host("a");
    let mut incoming = network.host("b").listen("0.0.0.0:0").await.unwrap();
    let client = a.connect(incoming.address()).await.unwrap();
    let server = incoming.accept().await.unwrap();
    (a, incoming, client, server)
}

async fn read_some(connection: &mut Connection) -> std::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 64];
    let n = connection.read(&mut buffer).await?;
    buffer.truncate(n);
    Ok(buffer)
}

#[tokio::test(start_paused = true)]
async fn bytes_arrive_in_order_after_the_latency() {
    let network = SimNetwork::new(1);
    network.set_link_latency_ms("a", "b", 5..=5);
    let (_a, _incoming, mut client, mut server) = pair(&network).await;
    let sent = Instant::now();
    client.write_all(b"one").await.unwrap();
    client.write_all(b"two").await.unwrap();
    let mut six = [0; 6];
    server.read_exact(&mut six).await.unwrap();
    assert_eq!((&six, sent.elapsed()), (b"onetwo", Duration::from_millis(5)));
    drop(client);
    assert_eq!(read_some(&mut server).await.unwrap(), b"");
    assert_eq!(server.peer(), "a");
}

#[tokio::test(start_paused = true)]
async fn a_cut_is_silent_and_heals_without_loss() {
    let network = SimNetwork::new(1);
    let (a, incoming, mut client, mut server) = pair(&network).await;
    network.cut("b", "a");
    client.write_all(b"held").await.unwrap();
    assert!(timeout(Duration::from_secs(60), read_some(&mut server)).await.is_err());
    assert!(a.connect(incoming.address()).await.is_err());
    // The other end goes while cut: what it sent still arrives.
    drop(client);
    network.heal("a", "b");
    assert_eq!(read_some(&mut server).await.unwrap(), b"held");
    assert_eq!(read_some(&mut server).await.unwrap(), b"");
    drop(server);
    assert_eq!(network.open_links(), 0);

    network.isolate("a");
    let connecting = tokio::spawn({
        let address = incoming.address().to_owned();
        async move { a.connect(&address).await.map(|_| ()) }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    network.rejoin("a");
    connecting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn refused_reset_and_crashed_are_told_apart() {
    let network = SimNetwork::new(1);
    let (a, incoming, mut client, mut server) = pair(&network).await;
    let address = incoming.address().to_owned();

    network.refuse("b");
    let error = a.connect(&address).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    network.accept("b");

    network.reset_all();
    let error = read_some(&mut server).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(client.write_all(b"x").await.is_err());

    network.crash("a");
    assert_eq!(a.connect(&address).await.unwrap_err().to_string(), "host a is down");
    let again = network.host("a");
    again.connect(&address).await.unwrap();
    assert!(a.connect(&address).await.is_err(), "a handle of an earlier life stays dead");

    network.crash("b");
    assert!(network.listening().is_empty());
    let error = again.connect(&address).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test(start_paused = true)]
async fn bandwidth_is_shared_by_all_links_of_a_sender() {
    let network = SimNetwork::new(1);
    network.set_bandwidth("a", 1000);
    let (a, mut incoming, mut first, mut first_far) = pair(&network).await;
    let mut second = a.connect(incoming.address()).await.unwrap();
    let mut second_far = incoming.accept().await.unwrap();
    let started = Instant::now();
    first.write_all(&[1; 500]).await.unwrap();
    second.write_all(&[2; 500]).await.unwrap();
    let mut half = [0; 500];
    first_far.read_exact(&mut half).await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_millis(500));
    second_far.read_exact(&mut half).await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_millis(1000));
}

#[test]
fn one_seed_gives_one_run() {
    let run = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async move {
            let network = SimNetwork::new(seed);
            network.set_latency_ms(1..=50);
            let (_a, _incoming, mut client, mut server) = pair(&network).await;
            let started = Instant::now();
            let mut arrivals = Vec::new();
            for _ in 0..10 {
                client.write_all(b"x").await.unwrap();
                read_some(&mut server).await.unwrap();
                arrivals.push(started.elapsed());
            }
            arrivals
        })
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
