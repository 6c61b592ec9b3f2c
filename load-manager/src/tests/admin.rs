//! The admin service, asked as a client asks it: every refusal by its stable reason.

use evenkeel_model::Lifecycle;
use evenkeel_planner::Step;
use evenkeel_proto::admin::admin_server::Admin;
use evenkeel_proto::admin::*;
use evenkeel_proto::refusal::Reason;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tonic::{Request, Status};

use super::harness::Harness;
use super::stock::registration;
use crate::admin::AdminService;

fn service(harness: &Harness) -> AdminService {
    AdminService::new(harness.cluster.clone())
}

fn reason<T>(result: Result<T, Status>) -> Reason {
    Reason::of(&result.err().expect("it should have been refused")).unwrap().0
}

fn drain(broker: &str) -> Request<DrainBrokerRequest> {
    Request::new(DrainBrokerRequest { broker: broker.to_owned() })
}

fn activate(broker: &str) -> Request<ActivateBrokerRequest> {
    Request::new(ActivateBrokerRequest { broker: broker.to_owned() })
}

fn remove(broker: &str) -> Request<RemoveBrokerRequest> {
    Request::new(RemoveBrokerRequest { broker: broker.to_owned() })
}

fn farewell(broker: &str, incarnation: u64) -> Request<DeregisterBrokerRequest> {
    Request::new(DeregisterBrokerRequest { broker: broker.to_owned(), incarnation })
}

fn create(name: &str, shards: u32, factor: u32) -> Request<CreateStreamRequest> {
    Request::new(CreateStreamRequest {
        stream: Some(Stream {
            stream: format!("stream/d/{name}"),
            shards,
            replication_factor: factor,
            durable: true,
            created_at_ms: None,
            region: None,
        }),
    })
}

fn start_move(shard: &str, to: &str, validate_only: bool) -> Request<StartMoveRequest> {
    let (shard, to_broker) = (shard.to_owned(), to.to_owned());
    Request::new(StartMoveRequest { shard, to_broker, validate_only })
}

#[tokio::test]
async fn a_follower_names_the_leader_and_still_answers_reads() {
    let harness = Harness::start().await;
    let follower = Harness::beside(&harness).await;
    let admin = AdminService::new(follower);
    let status = admin.drain_broker(drain("b1")).await.unwrap_err();
    let (reason, metadata) = Reason::of(&status).unwrap();
    assert_eq!((reason, metadata["leader"].as_str()), (Reason::NotLeader, "lm-1:7100"));
    let status = admin.status(Request::new(StatusRequest {})).await.unwrap().into_inner();
    assert_eq!((status.leader.as_str(), status.leader_address.as_str()), ("lm-1", "lm-1:7100"));
    assert!(admin.list_brokers(Request::new(ListBrokersRequest {})).await.is_ok());
    let asked = admin.plan(Request::new(PlanRequest {})).await;
    assert_eq!(self::reason(asked), Reason::NotLeader);
    harness.election.resign().await;
    assert!(harness.cluster.seen(harness.etcd.revision()).await);
}

#[tokio::test]
async fn lifecycles_change_only_as_allowed() {
    let mut harness = Harness::start().await;
    harness.brokers(&["b1", "b2"]).await;
    let admin = service(&harness);
    assert_eq!(reason(admin.drain_broker(drain("b9")).await), Reason::NotFound);
    assert_eq!(reason(admin.drain_broker(drain("B 9")).await), Reason::InvalidArgument);

    let progress = admin.drain_broker(drain("b1")).await.unwrap().into_inner().progress.unwrap();
    assert_eq!((progress.lifecycle.as_str(), progress.replicas_left), ("draining", 0));
    let again = admin.drain_broker(drain("b1")).await;
    assert!(again.is_ok(), "draining twice is draining once");
    admin.activate_broker(activate("b1")).await.unwrap();
    assert_eq!(harness.node("b1").await.lifecycle, Lifecycle::Live);
    assert_eq!(reason(admin.remove_broker(remove("b1")).await), Reason::BrokerRunning);

    // A broker that was told to stop cannot be put back by hand.
    harness.put("/cluster/register/b1", registration("b1", 1, true)).await;
    let _ = harness.pass().await;
    assert_eq!(harness.node("b1").await.lifecycle, Lifecycle::Draining);
    assert_eq!(reason(admin.activate_broker(activate("b1")).await), Reason::WrongLifecycle);

    assert_eq!(reason(admin.deregister_broker(farewell("b1", 9)).await), Reason::Conflict);
    admin.deregister_broker(farewell("b1", 1)).await.unwrap();
    admin.deregister_broker(farewell("b1", 1)).await.unwrap();
    assert_eq!(harness.node("b1").await.lifecycle, Lifecycle::Left);
    assert_eq!(reason(admin.drain_broker(drain("b1")).await), Reason::WrongLifecycle);
    assert_eq!(reason(admin.activate_broker(activate("b1")).await), Reason::WrongLifecycle);
    // Its registration is still there.
    assert_eq!(reason(admin.remove_broker(remove("b1")).await), Reason::BrokerRunning);
    harness.outside.delete("/cluster/register/b1").await.unwrap();
    assert!(harness.cluster.seen(harness.etcd.revision()).await);
    let _ = harness.pass().await;
    assert!(harness.node("b1").await.last_seen_ms.is_some());
    admin.remove_broker(remove("b1")).await.unwrap();
    assert_eq!(reason(admin.remove_broker(remove("b1")).await), Reason::NotFound);
}

#[tokio::test]
async fn a_broker_that_shards_name_cannot_be_removed() {
    let mut harness = Harness::start().await;
    harness.brokers(&["b1"]).await;
    let admin = service(&harness);
    admin.create_stream(create("s", 2, 1)).await.unwrap();
    let _ = harness.pass().await;
    admin.deregister_broker(farewell("b1", 1)).await.unwrap();
    harness.outside.delete("/cluster/register/b1").await.unwrap();
    assert!(harness.cluster.seen(harness.etcd.revision()).await);
    let status = admin.remove_broker(remove("b1")).await.unwrap_err();
    let (reason, metadata) = Reason::of(&status).unwrap();
    assert_eq!((reason, metadata["shards"].as_str()), (Reason::BrokerNamedByShards, "2"));
}

#[tokio::test]
async fn streams_are_created_once_with_a_marker_for_each_shard() {
    let mut harness = Harness::start().await;
    let admin = service(&harness);
    let made = admin.create_stream(create("big", 300, 1)).await.unwrap().into_inner();
    assert!(made.stream.unwrap().created_at_ms.is_some());
    assert_eq!(harness.keys("/cluster/unassigned/").await.len(), 300);
    let again = admin.create_stream(create("big", 300, 1)).await;
    assert!(again.is_ok(), "the same stream again is the same stream");
    let other = admin.create_stream(create("big", 200, 1)).await;
    assert_eq!(reason(other), Reason::AlreadyExists);
    for bad in [create("big", 0, 1), create("big", 1, 99), create("b/g", 1, 1)] {
        assert_eq!(reason(admin.create_stream(bad).await), Reason::InvalidArgument);
    }

    harness.brokers(&["b1", "b2"]).await;
    let _ = harness.pass().await;
    assert_eq!(harness.keys("/cluster/unassigned/").await.len(), 0);
    let mut pages = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListShardsRequest {
            stream: Some("stream/d/big".to_owned()),
            page_size: 128,
            page_token,
            ..ListShardsRequest::default()
        };
        let page = admin.list_shards(Request::new(request)).await.unwrap().into_inner();
        pages.push(page.assignments.len());
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(pages, [128, 128, 44]);
    let request = ListShardsRequest { page_token: "?".to_owned(), ..Default::default() };
    assert_eq!(reason(admin.list_shards(Request::new(request)).await), Reason::InvalidArgument);
    let led = ListShardsRequest { leader: Some("b1".to_owned()), ..Default::default() };
    let led = admin.list_shards(Request::new(led)).await.unwrap().into_inner();
    assert_eq!(led.assignments.len(), 150);
    let stream = GetStreamRequest { stream: "stream/d/big".to_owned() };
    let stream = admin.get_stream(Request::new(stream)).await.unwrap().into_inner();
    assert_eq!(stream.assignments.len(), 300);
    let missing = GetStreamRequest { stream: "cache/d/big".to_owned() };
    assert_eq!(reason(admin.get_stream(Request::new(missing)).await), Reason::NotFound);
}

#[tokio::test]
async fn an_operators_move_is_validated_started_listed_and_cancelled() {
    let mut harness = Harness::start().await;
    harness.brokers(&["b1", "b2"]).await;
    let admin = service(&harness);
    admin.create_stream(create("s", 1, 1)).await.unwrap();
    let _ = harness.pass().await;
    let shard = "stream/d/s/0";
    let leader = harness.assignment(shard).await.assignment.leader.unwrap().to_string();
    let other = if leader == "b1" { "b2" } else { "b1" };
    harness.report(&leader, shard, json!({ "generation": 1, "phase": "serving" })).await;

    let refusals = [
        ("stream/d/s/9", other, Reason::NotFound),
        ("stream/d/s", other, Reason::InvalidArgument),
        (shard, "b9", Reason::NotFound),
        (shard, leader.as_str(), Reason::AlreadyLeader),
    ];
    for (shard, to, expected) in refusals {
        assert_eq!(reason(admin.start_move(start_move(shard, to, false)).await), expected);
    }
    let before = harness.etcd.revision();
    let dry = admin.start_move(start_move(shard, other, true)).await.unwrap().into_inner();
    assert_eq!(dry.assignment.unwrap().successor.as_deref(), Some(other));
    assert_eq!(harness.etcd.revision(), before, "validating writes nothing");
    let cancel = || Request::new(CancelMoveRequest { shard: shard.to_owned() });
    assert_eq!(reason(admin.cancel_move(cancel()).await), Reason::NotMoving);

    admin.start_move(start_move(shard, other, false)).await.unwrap();
    assert_eq!(harness.keys("/cluster/brokers/").await.len(), 2);
    let moves = admin.list_moves(Request::new(ListMovesRequest {})).await.unwrap().into_inner();
    assert_eq!((moves.moves.len(), moves.moves[0].stage.as_str()), (1, "staged"));
    assert_eq!(moves.moves[0].waiting, "copy_behind");
    for (total, told) in [(9, Some(9)), (0, None)] {
        let copy = json!({
            "shard": shard, "generation": 2, "class": "balance", "source": null,
            "destination": other, "bytes_done": 5, "bytes_total": total, "bytes_per_second": 1,
            "at_ms": 1,
        });
        harness.put(&format!("/cluster/copies/{shard}"), copy).await;
        let moves = admin.list_moves(Request::new(ListMovesRequest {})).await.unwrap().into_inner();
        assert_eq!((moves.moves[0].bytes_done, moves.moves[0].bytes_total), (Some(5), told));
    }
    let again = admin.start_move(start_move(shard, other, false)).await;
    assert_eq!(reason(again), Reason::AlreadyMoving);

    admin.cancel_move(cancel()).await.unwrap();
    let assignment = harness.assignment(shard).await.assignment;
    assert_eq!((assignment.successor, assignment.generation), (None, 3));
    assert_eq!(harness.keys("/cluster/brokers/").await.len(), 1);
    let told = format!("/cluster/brokers/{leader}/{shard}");
    assert_eq!(harness.keys("/cluster/brokers/").await, [told]);
}

#[tokio::test]
async fn a_pause_holds_drains_until_it_is_lifted() {
    let mut harness = Harness::start().await;
    harness.brokers(&["b1"]).await;
    let admin = service(&harness);
    let pause = |by: &str, for_ms| {
        Request::new(PauseRequest { by: by.to_owned(), reason: "upgrade".to_owned(), for_ms })
    };
    assert_eq!(reason(admin.pause(pause("", None)).await), Reason::InvalidArgument);
    assert_eq!(reason(admin.pause(pause("eve", Some(0))).await), Reason::InvalidArgument);
    admin.create_stream(create("s", 1, 1)).await.unwrap();
    let _ = harness.pass().await;
    harness.report("b1", "stream/d/s/0", json!({ "generation": 1, "phase": "serving" })).await;
    admin.pause(pause("eve", None)).await.unwrap();
    harness.brokers(&["b2"]).await;
    admin.drain_broker(drain("b1")).await.unwrap();
    assert!(harness.pass().await.written.is_empty());
    let status = admin.status(Request::new(StatusRequest {})).await.unwrap().into_inner();
    assert_eq!((status.paused, status.paused_by.as_str()), (true, "eve"));
    let names: Vec<&str> = status.checks.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["PLACEMENT_PAUSED", "BROKER_DRAINING", "NO_MIGRATOR"]);

    let watched = WatchDrainRequest { broker: "b1".to_owned() };
    let mut progress = admin.watch_drain(Request::new(watched)).await.unwrap().into_inner();
    let now = progress.next().await.unwrap().unwrap();
    assert_eq!((now.leaders_left, now.shards[0].blocker.as_str()), (1, "paused"));

    admin.resume(Request::new(ResumeRequest { by: "eve".to_owned() })).await.unwrap();
    let report = harness.pass().await;
    assert_eq!(report.written, [("stream/d/s/0".parse().unwrap(), Step::Stage)]);
    let now = progress.next().await.unwrap().unwrap();
    assert_eq!((now.leaders_left, now.shards[0].blocker.as_str()), (1, "copy_behind"));

    let hold = json!({ "scope": "class/drain", "by": "ann", "reason": "rack", "at_ms": 1 });
    harness.put("/cluster/copy_pauses/class/drain", hold).await;
    let now = progress.next().await.unwrap().unwrap();
    assert_eq!(now.shards[0].blocker, "copy_paused");
    let whose = "; ann paused copies of class/drain (rack) until it is resumed";
    assert!(now.shards[0].detail.ends_with(whose), "{}", now.shards[0].detail);
    let at_ms = harness.cluster.clock.now_ms();
    let load = json!({ "reported_at_ms": at_ms, "incarnation": 1, "disk_used_percent": 95.5 });
    harness.put("/cluster/load/b2", load).await;
    let status = admin.status(Request::new(StatusRequest {})).await.unwrap().into_inner();
    let said = |name: &str| status.checks.iter().find(|c| c.name == name).map(|c| &c.summary);
    let full = "broker b2 has a full disk (95.5 % used, the mark is 95 %): it gets no copies";
    assert_eq!(said("DISK_FULL").map(String::as_str), Some(full), "{:?}", status.checks);

    // Of a report that is older than any clock nothing is known.
    let load = json!({ "reported_at_ms": i64::MIN, "incarnation": 1, "disk_used_percent": 95.5 });
    harness.put("/cluster/load/b2", load).await;
    let status = admin.status(Request::new(StatusRequest {})).await.unwrap().into_inner();
    assert!(status.checks.iter().all(|c| c.name != "DISK_FULL"), "{:?}", status.checks);
}

#[tokio::test]
async fn policy_is_laid_over_and_its_faults_are_named() {
    let harness = Harness::start().await;
    let admin = service(&harness);
    let set = |json: &str| Request::new(SetPolicyRequest { json: json.to_owned() });
    let bad = [
        ("{", "json: not a JSON document"),
        (r#"{"moves":1}"#, "policy field 'moves': there is no such setting"),
        (r#"{"settle_ms":-1}"#, "policy field 'settle_ms': -1 is out of range"),
    ];
    for (json, expected) in bad {
        let status = admin.set_policy(set(json)).await.unwrap_err();
        assert!(status.message().starts_with(expected), "{}", status.message());
        assert_eq!(Reason::of(&status).unwrap().0, Reason::InvalidArgument);
    }
    admin.set_policy(set(r#"{"moves_max_concurrent":9}"#)).await.unwrap();
    admin.set_policy(set(r#"{"rebalancing":{"enabled":true}}"#)).await.unwrap();
    let policy = admin.get_policy(Request::new(GetPolicyRequest {})).await.unwrap().into_inner();
    let policy: Value = serde_json::from_str(&policy.json).unwrap();
    assert_eq!(policy["moves_max_concurrent"], json!(9));
    assert_eq!(
        (&policy["rebalancing"]["enabled"], &policy["settle_ms"]),
        (&json!(true), &json!(0))
    );
}

#[tokio::test]
async fn the_planners_documents_are_those_of_the_command_line() {
    let mut harness = Harness::start().await;
    harness.brokers(&["b1", "b2"]).await;
    let admin = service(&harness);
    admin.create_stream(create("s", 2, 1)).await.unwrap();
    let parsed = |document: tonic::Response<JsonDocument>| -> Value {
        serde_json::from_str(&document.into_inner().json).unwrap()
    };
    let plan = parsed(admin.plan(Request::new(PlanRequest {})).await.unwrap());
    assert_eq!(plan["decisions"].as_array().unwrap().len(), 2);
    assert_eq!(plan["decisions"][0]["step"], json!("place"));
    assert!(plan["balance"]["brokers"].is_array() && plan["as_of_ms"].is_number());
    let snapshot = admin.snapshot(Request::new(SnapshotRequest {})).await.unwrap().into_inner();
    evenkeel_model::Snapshot::parse(snapshot.json.as_bytes()).unwrap();
    let rank = |strategy: &str| Request::new(RankRequest { strategy: Some(strategy.to_owned()) });
    let ranking = parsed(admin.rank(rank("fair")).await.unwrap());
    assert_eq!(ranking["rankings"].as_array().unwrap().len(), 2);
    assert_eq!(reason(admin.rank(rank("best")).await), Reason::InvalidArgument);
    let explain = |subject: &str| Request::new(ExplainRequest { subject: subject.to_owned() });
    let shard = parsed(admin.explain(explain("stream/d/s/0")).await.unwrap());
    assert_eq!(shard["candidates"].as_array().unwrap().len(), 2);
    let broker = parsed(admin.explain(explain("b1")).await.unwrap());
    assert_eq!(broker["target"], json!(true));
    assert_eq!(reason(admin.explain(explain("b9")).await), Reason::NotFound);
    assert_eq!(reason(admin.explain(explain("stream/d/s/7")).await), Reason::NotFound);
}
