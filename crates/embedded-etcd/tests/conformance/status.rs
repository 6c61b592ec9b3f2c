//! What the server says about itself.

use etcd_client::{AlarmAction, AlarmType};

use crate::server::Server;

async fn the_status_names_a_version_a_leader_and_a_size(etcd: Server) {
    let mut client = etcd.client().await;
    client.put(etcd.key("a"), vec![b'x'; 1000], None).await.unwrap();
    let status = client.status().await.unwrap();
    assert!(status.version().starts_with("3."), "{}", status.version());
    assert_eq!(status.leader(), status.header().unwrap().member_id());
    assert!(status.db_size() >= 1000 && status.raft_index() > 0 && status.raft_term() > 0);
    assert!(!status.is_learner() && status.errors().is_empty());
}

async fn every_answer_names_the_same_cluster_and_member(etcd: Server) {
    let mut client = etcd.client().await;
    let get = client.get(etcd.key("a"), None).await.unwrap();
    let header = get.header().unwrap();
    assert!(header.cluster_id() != 0 && header.member_id() != 0 && header.raft_term() > 0);
    let put = client.put(etcd.key("a"), "", None).await.unwrap();
    let lease = client.lease_grant(60, None).await.unwrap();
    let status = client.status().await.unwrap();
    let other = etcd.client().await.get(etcd.key("a"), None).await.unwrap();
    for next in [put.header(), lease.header(), status.header(), other.header()] {
        let next = next.unwrap();
        assert_eq!(next.cluster_id(), header.cluster_id());
        assert_eq!(next.member_id(), header.member_id());
    }
}

async fn one_member_is_listed_with_its_url(etcd: Server) {
    let mut client = etcd.client().await;
    let listed = client.member_list().await.unwrap();
    let [member] = listed.members() else { panic!("{listed:?}") };
    assert_eq!(member.id(), listed.header().unwrap().member_id());
    assert_eq!(member.client_urls(), [etcd.url.as_str()]);
    assert!(!member.name().is_empty() && !member.is_learner());
}

async fn there_is_no_alarm_and_defragmenting_is_harmless(etcd: Server) {
    let mut client = etcd.client().await;
    client.put(etcd.key("a"), "kept", None).await.unwrap();
    let alarms = client.alarm(AlarmAction::Get, AlarmType::None, None).await.unwrap();
    assert!(alarms.alarms().is_empty());
    client.defragment().await.unwrap();
    let got = client.get(etcd.key("a"), None).await.unwrap();
    assert_eq!(got.kvs()[0].value(), b"kept");
}

cases! {
    shared {
        the_status_names_a_version_a_leader_and_a_size
        every_answer_names_the_same_cluster_and_member
        one_member_is_listed_with_its_url
    }
    own {
        there_is_no_alarm_and_defragmenting_is_harmless
    }
}
