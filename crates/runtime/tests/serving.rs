//! gRPC with health, and HTTP with readiness, over simulated links and over TCP.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use evenkeel_runtime::{Clock, Health, MetricsHandle, Network, Shutdown, SimNetwork, grpc, http};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

async fn status(
    client: &mut HealthClient<tonic::transport::Channel>,
) -> Result<i32, tonic::Status> {
    let request = HealthCheckRequest { service: String::new() };
    client.check(request).await.map(|answer| answer.into_inner().status)
}

#[tokio::test(start_paused = true)]
async fn health_follows_over_links_and_survives_a_reset() {
    let network = SimNetwork::new(3);
    network.set_latency_ms(1..=3);
    let (server, client) = (network.host("s"), network.host("c"));
    let incoming = server.listen("s:0").await.unwrap();
    let address = incoming.address().to_owned();
    let (health, shutdown) = (Health::new(), Shutdown::new());
    health.not_ready("etcd", "no session yet");
    let serving =
        tokio::spawn(grpc::Server::new(tonic_health::pb::FILE_DESCRIPTOR_SET).unwrap().serve(
            incoming,
            health.clone(),
            shutdown.clone(),
        ));
    let mut client = HealthClient::new(client.channel(&address));
    assert_eq!(status(&mut client).await.unwrap(), ServingStatus::NotServing as i32);
    health.ready("etcd");
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(status(&mut client).await.unwrap(), ServingStatus::Serving as i32);

    network.reset_all();
    let clock = Clock::simulated(0);
    while status(&mut client).await.is_err() {
        assert!(clock.now_ms() < 10_000, "the channel does not come back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    network.isolate("s");
    assert!(status(&mut client).await.is_err(), "a cut link ends in an error, by keep-alive");
    assert!(clock.now_ms() < 12_000, "noticed after {} ms", clock.now_ms());

    shutdown.trigger();
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn readiness_and_metrics_are_served_over_http() {
    let network = Network::tcp();
    let incoming = network.listen("127.0.0.1:0").await.unwrap();
    let address = incoming.address().to_owned();
    let (health, shutdown) = (Health::new(), Shutdown::new());
    let router = http::routes(MetricsHandle::none(), health.clone());
    let serving = tokio::spawn(http::serve(incoming, router, shutdown.clone()));

    let get = |path: &'static str| {
        let (network, address) = (network.clone(), address.clone());
        async move {
            let mut connection = network.connect(&address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            connection.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            connection.read_to_string(&mut answer).await.unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head.lines().next().unwrap().to_owned(), body.to_owned())
        }
    };
    let ok = "HTTP/1.1 200 OK".to_owned();
    assert_eq!(get("/readyz").await, (ok.clone(), "ready\n".to_owned()));
    assert_eq!(get("/healthz").await, (ok.clone(), "ok\n".to_owned()));
    assert_eq!(get("/metrics").await.0, ok);
    health.not_ready("view", "not listed yet");
    let not_ready = "HTTP/1.1 503 Service Unavailable".to_owned();
    assert_eq!(get("/readyz").await, (not_ready, "view: not listed yet\n".to_owned()));
    assert_eq!(get("/healthz").await.0, ok);
    shutdown.trigger();
    serving.await.unwrap().unwrap();
}
