//! A disk whose syncs take as long as the test wants.

use std::sync::{Condvar, Mutex};

use super::altered::{Altered, Meddling};
use super::*;
use crate::host::Published;

const SHARDS: usize = 20;
const AT_ONCE: usize = 16;

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Default)]
struct State {
    is_shut: bool,
    syncing: usize,
    /// Syncs since the gate was shut.
    syncs: usize,
    most: usize,
}

impl Meddling for Gate {
    fn on_sync(&self, name: &str) {
        if !name.ends_with(".log") {
            return;
        }
        let mut state = self.state.lock().unwrap();
        state.syncing += 1;
        state.syncs += 1;
        state.most = state.most.max(state.syncing);
        let mut state = self.opened.wait_while(state, |state| state.is_shut).unwrap();
        state.syncing -= 1;
    }

    fn is_blocking(&self) -> bool {
        true
    }
}

impl Gate {
    fn shut(&self) {
        *self.state.lock().unwrap() = State { is_shut: true, ..State::default() };
    }

    fn open(&self) {
        self.state.lock().unwrap().is_shut = false;
        self.opened.notify_all();
    }
}

/// Asks for so many records of a shard's one producer, one by one, and waits until the log has
/// them.
async fn written(
    host: &Arc<dyn ShardHost>,
    shard: &ShardKey,
    sequences: std::ops::Range<u64>,
) -> Vec<tokio::task::JoinHandle<Result<Published, PublishError>>> {
    let mut status = host.watch(shard).unwrap();
    let end = status.borrow().log_end + (sequences.end - sequences.start);
    let publish = |sequence| {
        let (host, shard) = (host.clone(), shard.clone());
        tokio::spawn(async move { host.publish(&shard, vec![record(0, sequence)]).await })
    };
    let asked = sequences.map(publish).collect();
    timeout(LIMIT, status.wait_for(|status| status.log_end == end)).await.unwrap().unwrap();
    asked
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_syncs_at_once_and_what_comes_meanwhile_goes_with_the_next() {
    let gate = Arc::new(Gate::default());
    let disks = Arc::new(Altered::by(gate.clone()));
    let addresses = BTreeMap::from([(id("a"), "127.0.0.1:0".to_owned())]);
    let member = host_on(&id("a"), disks, Network::tcp(), &addresses).await;
    let shards: Vec<ShardKey> =
        (0..SHARDS).map(|n| format!("stream/default/orders/{n}").parse().unwrap()).collect();
    for shard in &shards {
        let assignment = Assignment::new(shard.clone(), id("a"), Vec::new());
        let role = Role::Leader;
        member.host.apply(BrokerShard { v: RECORD_VERSION, role, assignment, token: 1 }).await;
        let mut status = member.host.watch(shard).unwrap();
        let serving = status.wait_for(|status| status.phase == Phase::Serving);
        timeout(LIMIT, serving).await.unwrap().unwrap();
    }
    gate.shut();
    let mut asked = Vec::new();
    for sequences in [0..1, 1..4] {
        for shard in &shards {
            asked.extend(written(&member.host, shard, sequences.clone()).await);
        }
    }
    gate.open();
    for asked in asked {
        timeout(LIMIT, asked).await.unwrap().unwrap().unwrap();
    }
    let state = gate.state.lock().unwrap();
    assert_eq!(state.most, AT_ONCE);
    // Those that were under way cover one record each, and every shard's next one the rest.
    assert_eq!(state.syncs, AT_ONCE + SHARDS);
}
