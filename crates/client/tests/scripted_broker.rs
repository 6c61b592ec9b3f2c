//! The client against brokers that follow a script: every way in which a call can go wrong.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_client::{Client, ClientConfig, ClientError, Delivery, Fate};
use evenkeel_model::StreamKey;
use evenkeel_proto::data::shards_server::{Shards, ShardsServer};
use evenkeel_proto::data::subscribe_response::Event;
use evenkeel_proto::data::*;
use evenkeel_proto::refusal::{Reason, refuse, refuse_for};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// What a broker does with the next publish.
enum Act {
    Accept,
    Refuse(Status),
    /// Stores it and loses the answer.
    StoreAndFail,
}

#[derive(Default)]
struct Script {
    acts: VecDeque<Act>,
    /// Events of one subscription each; after them the stream ends.
    reads: VecDeque<Vec<Result<Event, Status>>>,
    asked: Vec<SubscribeRequest>,
    published: u32,
    routes: Vec<ShardRoute>,
    log: Vec<Record>,
}

#[derive(Clone, Default)]
struct Broker(Arc<Mutex<Script>>);

impl Broker {
    fn edit(&self) -> std::sync::MutexGuard<'_, Script> {
        self.0.lock().unwrap()
    }

    fn store(script: &mut Script, request: &PublishRequest) -> PublishResponse {
        let offsets = request.records.iter().map(|record| {
            let same = |r: &Record| {
                record.producer_id != 0
                    && (r.producer_id, r.sequence) == (record.producer_id, record.sequence)
            };
            let at = script.log.iter().position(same).unwrap_or_else(|| {
                script.log.push(record.clone());
                script.log.len() - 1
            });
            at as u64
        });
        let offsets = offsets.collect();
        PublishResponse { offsets, leader: "b1".into(), generation: 1 }
    }
}

#[tonic::async_trait]
impl Shards for Broker {
    async fn publish(
        &self,
        request: Request<PublishRequest>,
    ) -> Result<Response<PublishResponse>, Status> {
        let request = request.into_inner();
        let mut script = self.edit();
        script.published += 1;
        match script.acts.pop_front().unwrap_or(Act::Accept) {
            Act::Accept => Ok(Response::new(Self::store(&mut script, &request))),
            Act::Refuse(status) => Err(status),
            Act::StoreAndFail => {
                Self::store(&mut script, &request);
                Err(Status::unknown("connection reset"))
            }
        }
    }

    type SubscribeStream =
        Pin<Box<dyn futures_util::Stream<Item = Result<SubscribeResponse, Status>> + Send>>;

    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let mut script = self.edit();
        script.asked.push(request.into_inner());
        let events = script.reads.pop_front().ok_or_else(|| Status::unavailable("no more"))?;
        let events = events
            .into_iter()
            .map(|event| event.map(|event| SubscribeResponse { event: Some(event) }));
        Ok(Response::new(Box::pin(tokio_stream::iter(events.collect::<Vec<_>>()))))
    }

    async fn describe(
        &self,
        _: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(DescribeResponse { shards: self.edit().routes.clone() }))
    }
}

async fn serve() -> (Broker, String) {
    let broker = Broker::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tonic::transport::Server::builder().add_service(ShardsServer::new(broker.clone()));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (broker, address)
}

fn stream() -> StreamKey {
    "stream/d/s".parse().unwrap()
}

fn client(addresses: &[&String]) -> Client {
    let mut config = ClientConfig::new(addresses.iter().map(|a| (*a).clone()).collect());
    config.patience = Duration::from_millis(400);
    config.backoff_base = Duration::from_millis(1);
    config.backoff_max = Duration::from_millis(5);
    Client::new(config).unwrap()
}

fn payloads(words: &[&'static str]) -> Vec<Bytes> {
    words.iter().map(|w| Bytes::from_static(w.as_bytes())).collect()
}

fn route(address: &str, generation: u64) -> ShardRoute {
    let (shard, leader) = ("stream/d/s/0".into(), Some("b1".into()));
    ShardRoute { shard, leader, address: Some(address.into()), generation }
}

fn records(offsets: &[u64]) -> Result<Event, Status> {
    let record = |&offset| StoredRecord {
        offset,
        payload: Bytes::from(format!("r{offset}")),
        ..Default::default()
    };
    Ok(Event::Records(Records { records: offsets.iter().map(record).collect() }))
}

fn moved(address: Option<&str>, resume_offset: u64) -> Result<Event, Status> {
    let leader = address.map(|_| "b2".to_owned());
    Ok(Event::ShardMoved(ShardMoved { leader, address: address.map(Into::into), resume_offset }))
}

#[tokio::test]
async fn refusals_without_effect_are_retried_and_the_wait_asked_for_is_kept() {
    let (broker, address) = serve().await;
    let wait = Duration::from_millis(60);
    broker.edit().acts = VecDeque::from([
        Act::Refuse(refuse(Reason::Moving, "moving")),
        Act::Refuse(refuse(Reason::ShardUnavailable, "no leader")),
        Act::Refuse(refuse_for(Reason::Overloaded, "busy", wait)),
    ]);
    let began = tokio::time::Instant::now();
    let producer = client(&[&address]).producer(stream(), 7);
    let published = producer.publish(0, payloads(&["a", "b"])).await.unwrap();
    assert_eq!((published.offsets.as_slice(), published.attempts), (&[0, 1][..], 4));
    assert!(began.elapsed() >= wait);
}

#[tokio::test]
async fn a_lost_answer_is_retried_without_storing_anything_twice() {
    let (broker, address) = serve().await;
    broker.edit().acts = VecDeque::from([Act::StoreAndFail, Act::StoreAndFail]);
    let producer = client(&[&address]).producer(stream(), 7);
    let first = producer.publish(0, payloads(&["a", "b"])).await.unwrap();
    let second = producer.publish(0, payloads(&["c"])).await.unwrap();
    assert_eq!((first.offsets, second.offsets), (vec![0, 1], vec![2]));
    let log: Vec<u64> = broker.edit().log.iter().map(|r| r.sequence).collect();
    assert_eq!(log, [1, 2, 3]);
}

#[tokio::test]
async fn without_a_producer_id_a_lost_answer_is_told_and_not_retried() {
    let (broker, address) = serve().await;
    broker.edit().acts = VecDeque::from([Act::StoreAndFail]);
    let producer = client(&[&address]).producer(stream(), 0);
    let error = producer.publish(0, payloads(&["a"])).await.unwrap_err();
    assert_eq!((error.fate(), broker.edit().published), (Fate::Unknown, 1));
}

#[tokio::test]
async fn a_refused_batch_never_gives_its_sequence_to_another_one() {
    let (broker, address) = serve().await;
    broker.edit().acts = VecDeque::from([Act::Refuse(refuse(Reason::DiskFull, "disk is full"))]);
    let producer = client(&[&address]).producer(stream(), 7);
    let error = producer.publish(0, payloads(&["a"])).await.unwrap_err();
    let text = "cannot publish to stream/d/s/0: disk is full (nothing was written)";
    assert_eq!((error.to_string().as_str(), error.reason()), (text, Some(Reason::DiskFull)));
    producer.publish(0, payloads(&["b"])).await.unwrap();
    assert_eq!(broker.edit().log[0].sequence, 2);
}

#[tokio::test]
async fn a_long_batch_is_sent_in_parts_that_brokers_can_recognise() {
    let (broker, address) = serve().await;
    broker.edit().acts = VecDeque::from([Act::Accept, Act::StoreAndFail]);
    let producer = client(&[&address]).producer(stream(), 7);
    let published = producer.publish(0, vec![Bytes::from_static(b"x"); 600]).await.unwrap();
    assert_eq!(published.offsets, (0..600).collect::<Vec<u64>>());
    assert_eq!((published.attempts, broker.edit().published), (2, 4));
    // The second part of three is refused: the first stays written, and that is said.
    let full = refuse(Reason::DiskFull, "disk is full");
    broker.edit().acts = VecDeque::from([Act::Accept, Act::Refuse(full)]);
    let failed = producer.publish(0, vec![Bytes::from_static(b"x"); 600]).await.unwrap_err();
    assert_eq!((failed.fate(), broker.edit().log.len()), (Fate::Unknown, 856));
}

#[tokio::test]
async fn patience_ends_with_the_last_answer() {
    let (broker, address) = serve().await;
    broker.edit().acts =
        (0..10_000).map(|_| Act::Refuse(refuse(Reason::Moving, "on the move"))).collect();
    let producer = client(&[&address]).producer(stream(), 7);
    let error = producer.publish(0, payloads(&["a"])).await.unwrap_err();
    let ClientError::GaveUp { detail, fate: Some(Fate::NotWritten), .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(detail, "on the move");
}

#[tokio::test]
async fn a_dead_leader_is_gone_around() {
    let (broker, address) = serve().await;
    // A port that nobody listens on.
    let dead = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = dead.local_addr().unwrap().to_string();
    drop(dead);
    broker.edit().routes = vec![route(&gone, 1)];
    let producer = client(&[&address]).producer(stream(), 7);
    let published = producer.publish(0, payloads(&["a"])).await.unwrap();
    assert_eq!((published.attempts, published.leader.as_str()), (2, "b1"));
}

#[tokio::test]
async fn a_subscription_follows_moves_and_failures_without_repeating_or_skipping() {
    let (first, first_address) = serve().await;
    let (second, second_address) = serve().await;
    for broker in [&first, &second] {
        broker.edit().routes = vec![route(&first_address, 1)];
    }
    first.edit().reads = VecDeque::from([
        vec![records(&[1, 2]), records(&[2, 3]), Err(Status::unavailable("reset"))],
        vec![records(&[2, 3, 4, 6]), moved(Some(&second_address), 7)],
    ]);
    second.edit().reads = VecDeque::from([vec![
        records(&[7]),
        records(&[8, 9]),
        Ok(Event::End(End { end_offset: 10 })),
    ]]);
    // Only the first is known from the start: the second is learned from the move.
    let mut reader = client(&[&first_address]).read(stream().shard(0), 0);
    let mut offsets = Vec::new();
    let end = loop {
        match reader.next().await.unwrap() {
            Delivery::Records(batch) => offsets.extend(batch.iter().map(|r| r.offset)),
            Delivery::End { end_offset } => break end_offset,
        }
    };
    assert_eq!((offsets, end), (vec![1, 2, 3, 4, 6, 7, 8, 9], 10));
    let asked = |b: &Broker| b.edit().asked.iter().map(|r| r.from_offset).collect::<Vec<_>>();
    assert_eq!((asked(&first), asked(&second)), (vec![0, 4], vec![7]));
    assert_eq!(reader.next().await.unwrap(), Delivery::End { end_offset: 10 });
}

#[tokio::test]
async fn a_move_to_nowhere_yet_is_waited_for() {
    let (broker, address) = serve().await;
    broker.edit().routes = vec![route(&address, 1)];
    broker.edit().reads = VecDeque::from([
        vec![moved(None, 0)],
        vec![moved(Some(&address), 0)],
        vec![moved(Some(&address), 0)],
        vec![records(&[0]), Ok(Event::End(End { end_offset: 1 }))],
    ]);
    let mut reader = client(&[&address]).read(stream().shard(0), 0);
    let Delivery::Records(batch) = reader.next().await.unwrap() else { panic!("no records") };
    assert_eq!(batch[0].payload, "r0");
}

#[tokio::test]
async fn bad_addresses_and_no_brokers_are_named() {
    let text = |addresses: Vec<String>| {
        Client::new(ClientConfig::new(addresses)).err().map(|e| e.to_string()).unwrap()
    };
    assert!(text(vec![]).starts_with("no broker address was given"));
    assert_eq!(
        text(vec!["http://a:1".into()]),
        "broker address 'http://a:1' is not valid: expected host:port"
    );
    let error = client(&[&"127.0.0.1:1".to_owned()]).describe(&stream()).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn many_shards_publish_at_once_and_each_keeps_its_order() {
    let (broker, address) = serve().await;
    let producer = Arc::new(client(&[&address]).producer(stream(), 7));
    let mut tasks = Vec::new();
    for n in 0..40_u32 {
        let producer = Arc::clone(&producer);
        let batch = payloads(&["x", "y", "z"]);
        tasks.push(tokio::spawn(async move { producer.publish(n % 4, batch).await }));
    }
    let mut offsets = BTreeMap::new();
    for task in tasks {
        for offset in task.await.unwrap().unwrap().offsets {
            *offsets.entry(offset).or_insert(0) += 1;
        }
    }
    // The script keeps one log: each of the four shards' 30 sequences appears in it once.
    assert_eq!(offsets.len(), broker.edit().log.len());
    let sequences: Vec<u64> = broker.edit().log.iter().map(|r| r.sequence).collect();
    assert_eq!(sequences.iter().max(), Some(&30));
}
