//! The commands on a live cluster of real processes, as programs see them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// A cluster of three brokers; its processes end with it.
struct Cluster {
    admin: String,
    brokers: String,
    children: Vec<Child>,
    _dir: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn serve(service: &str, flags: &[&str], log: &Path) -> Child {
    let log = std::fs::File::create(log).unwrap();
    Command::new(env!("CARGO_BIN_EXE_keelctl"))
        .args(["serve", "--with-parent", service])
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

impl Cluster {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = |name: &str| dir.path().join(format!("{name}.log"));
        let (etcd, admin) = (free_address(), free_address());
        let url = format!("http://{etcd}");
        let mut children = vec![serve("etcd", &["--listen", &etcd], &log("etcd"))];
        wait_until("etcd listens", || std::net::TcpStream::connect(&etcd).is_ok());
        let flags = [
            "--etcd",
            &url,
            "--listen",
            &admin,
            "--set=policy.settle_ms=500",
            "--set=policy.reconcile_interval_ms=200",
            // However full the machine's disk is.
            "--set=policy.disk_full_percent=0",
        ];
        children.push(serve("load-manager", &flags, &log("load-manager")));
        let listen = free_address();
        let flags = ["--etcd", &url, "--listen", &listen, "--metrics-listen", "127.0.0.1:0"];
        children.push(serve("migrator", &flags, &log("migrator")));
        let mut brokers = Vec::new();
        for name in ["b1", "b2", "b3"] {
            let listen = free_address();
            let data = dir.path().join(name).display().to_string();
            let flags = [
                "--etcd",
                &url,
                "--listen",
                &listen,
                "--metrics-listen",
                "127.0.0.1:0",
                "--broker-id",
                name,
                "--data-dir",
                &data,
                "--zone",
                name,
            ];
            children.push(serve("broker-agent", &flags, &log(name)));
            brokers.push(listen);
        }
        let cluster = Self { admin, brokers: brokers.join(","), children, _dir: dir };
        wait_until("three brokers are live", || {
            let output = cluster.keelctl(&["brokers", "list", "-o", "json"], "");
            let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let live = |b: &&Value| b["lifecycle"] == "live" && b["registered"] == true;
            listed["brokers"].as_array().is_some_and(|b| b.iter().filter(live).count() == 3)
        });
        cluster
    }

    fn keelctl(&self, arguments: &[&str], stdin: &str) -> Output {
        use std::io::Write;
        let mut child = Command::new(env!("CARGO_BIN_EXE_keelctl"))
            .args(arguments)
            .env("EVENKEEL_ADMIN", &self.admin)
            .env("EVENKEEL_BROKERS", &self.brokers)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that reads no stdin may be gone already.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// The document of a command that answers.
    fn json(&self, arguments: &[&str], stdin: &str) -> Value {
        let output = self.keelctl(&[arguments, &["-o", "json"]].concat(), stdin);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {told}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn refused(&self, arguments: &[&str], code: i32, begins: &str) {
        let output = self.keelctl(arguments, "");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty());
        assert!(told.starts_with(begins), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }

    fn leader(&self, shard: &str) -> String {
        let shown = self.json(&["shards", "show", shard], "");
        shown["assignment"]["leader"].as_str().unwrap().to_owned()
    }

    fn until_whole(&self) {
        wait_until("every shard is whole", || {
            let status = self.json(&["status"], "");
            let zero = ["shards_under_replicated", "moves_in_flight", "moves_waiting"];
            status["shards"] == status["shards_serving"] && zero.iter().all(|f| status[f] == 0)
        });
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1200 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("waited in vain until {what}");
}

#[test]
fn every_verb_answers_on_a_live_cluster() {
    let cluster = Cluster::start();
    streams_and_data(&cluster);
    moves_and_plans(&cluster);
    settings(&cluster);
    silence(&cluster);
    drains(&cluster);
}

fn streams_and_data(cluster: &Cluster) {
    let create = ["streams", "create", "orders", "--shards", "4", "--rf", "2"];
    let stream = cluster.json(&create, "");
    assert_eq!(
        (&stream["stream"], &stream["shards"]),
        (&json!("stream/default/orders"), &json!(4))
    );
    assert_eq!(cluster.json(&create, ""), stream);
    let other = ["streams", "create", "orders", "--shards", "5", "--rf", "2"];
    cluster.refused(&other, 1, "error: cannot create stream stream/default/orders: ");
    cluster.until_whole();
    let shown = cluster.json(&["streams", "show", "orders"], "");
    assert_eq!(shown["assignments"].as_array().unwrap().len(), 4);
    assert_eq!(cluster.json(&["streams", "list"], "")["streams"][0], shown["stream"]);
    cluster.refused(&["streams", "show", "nothing"], 2, "error: cannot show stream");

    let lines: String = (0..1000).map(|n| format!("line {n}\n")).collect();
    let published = cluster.json(&["publish", "orders"], &lines);
    assert_eq!(
        (&published["records"], &published["bytes"]),
        (&json!(1000), &json!(lines.len() - 1000))
    );
    let keyed = cluster.json(&["publish", "orders", "--key-separator", ":"], "k:1\nk:2\nk:3\n");
    let counts: Vec<u64> =
        keyed["shards"].as_array().unwrap().iter().filter_map(|s| s["records"].as_u64()).collect();
    assert!(counts.contains(&3), "{counts:?}");
    let read = cluster.keelctl(&["subscribe", "orders", "--until-end"], "");
    let text = String::from_utf8(read.stdout).unwrap();
    let mut got: Vec<&str> = text.lines().collect();
    let mut expected: Vec<&str> = lines.lines().chain(["k:1", "k:2", "k:3"]).collect();
    got.sort_unstable();
    expected.sort_unstable();
    assert_eq!(got, expected);
    let one = ["subscribe", "orders/1", "--until-end", "--from", "3", "--limit", "2", "-o", "json"];
    let two = cluster.keelctl(&one, "");
    let offsets: Vec<Value> = String::from_utf8(two.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["offset"].take())
        .collect();
    assert_eq!(offsets, [3, 4]);
    cluster.refused(
        &["subscribe", "orders/9"],
        2,
        "error: there is no shard stream/default/orders/9",
    );
    cluster.refused(&["publish", "orders", "/nowhere"], 2, "error: cannot read /nowhere");
    // One record that is refused ends its shard's lane long before everything is read.
    let mut input = tempfile::NamedTempFile::new().unwrap();
    input.write_all(&vec![b'x'; 2 << 20]).unwrap();
    input.write_all(&b"\nshort".repeat(50_000)).unwrap();
    let file = input.path().to_str().unwrap();
    let failed = cluster.keelctl(&["publish", "orders", "--shard", "0", file], "");
    let told = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(2), "{told}");
    let why = "error: cannot publish to stream/default/orders/0: ";
    assert!(told.lines().last().unwrap().starts_with(why), "{told}");
}

fn moves_and_plans(cluster: &Cluster) {
    let leader = cluster.leader("orders/0");
    let other = ["b1", "b2", "b3"].into_iter().find(|b| *b != leader).unwrap();
    let dry = cluster.json(&["moves", "start", "orders/0", other, "--dry-run"], "");
    assert_eq!((&dry["dry_run"], &dry["assignment"]["successor"]), (&json!(true), &json!(other)));
    assert_eq!(cluster.leader("orders/0"), leader);
    let moved = cluster.json(&["moves", "start", "orders/0", other, "--wait"], "");
    assert_eq!(moved["assignment"]["leader"], other);
    let again = ["moves", "start", "orders/0", other];
    cluster.refused(&again, 1, "error: cannot move stream/default/orders/0");
    cluster.refused(&["moves", "cancel", "orders/0"], 1, "error: cannot cancel");
    cluster.refused(&["moves", "start", "orders/0", "b9"], 2, "error: cannot move");
    assert!(cluster.json(&["moves", "list"], "")["moves"].is_array());
    cluster.until_whole();
    assert_eq!(cluster.json(&["plan"], "")["decisions"], json!([]));
    assert_eq!(cluster.json(&["plan", "--until-stable"], "")["writes"], 0);
    let snapshot = cluster.json(&["snapshot"], "");
    let offline = cluster.json(&["balance", "--snapshot", "-"], &snapshot.to_string());
    assert_eq!(cluster.json(&["balance"], "")["streams"], offline["streams"]);
    assert_eq!(cluster.json(&["rank", "--strategy", "fair"], "")["strategy"], "fair");
    assert_eq!(cluster.json(&["explain", "orders/0"], "")["shard"], "stream/default/orders/0");
    let b1 = cluster.json(&["explain", "b1"], "");
    assert_eq!((&b1["broker"], &b1["safe_to_stop"]), (&json!("b1"), &json!(false)));
    let even = cluster.json(&["plan", "--objective", "load", "--tolerance", "100"], "");
    assert_eq!(even["moves"], json!([]));
    let drained = cluster.json(&["whatif", "--drain-broker", "b3"], "");
    let expected = json!([{ "broker": "b3", "named_by": 0, "safe_to_stop": true }]);
    assert_eq!((&drained["stable"], &drained["emptied"]), (&json!(true), &expected));
    cluster.refused(&["explain", "b9"], 2, "error: cannot explain b9");
    cluster.refused(&["explain", "orders/9"], 2, "error: cannot explain stream/default/orders/9");
}

fn settings(cluster: &Cluster) {
    assert_eq!(cluster.json(&["pause", "--reason", "a test"], "")["paused"], true);
    assert_eq!(cluster.json(&["status"], "")["paused"], true);
    assert_eq!(cluster.json(&["resume"], "")["paused"], false);
    let set = ["policy", "set", "restore_after_ms=60000", "rebalancing.cooldown_seconds=5"];
    cluster.json(&set, "");
    let policy = cluster.json(&["policy", "get"], "");
    assert_eq!(
        (&policy["restore_after_ms"], &policy["rebalancing"]["cooldown_seconds"]),
        (&json!(60_000), &json!(5))
    );
    let misspelt = ["policy", "set", "restore_after=1"];
    cluster.refused(&misspelt, 2, "error: policy field 'restore_after': there is no such setting");
    let capped = ["migrations", "set-limit", "b1", "1MB/s"];
    assert_eq!(cluster.json(&capped, "")["bytes_per_second"], 1_000_000);
    let word = ["migrations", "set-limit", "b1", "1MB"];
    cluster.refused(&word, 2, "error: invalid value '1MB' for '<RATE>': expected whole bytes per");
    let low = ["migrations", "set-limit", "b1", "1"];
    cluster.refused(
        &low,
        2,
        "error: cannot limit broker b1: bytes_per_second: 1 is too low: expected",
    );
    let absent = ["migrations", "pause", "--reason", "r", "--shard", "orders/999"];
    cluster.refused(&absent, 2, "error: cannot pause copies: there is no shard stream/default/ord");
    wait_until("the cap is told", || {
        let limits = cluster.json(&["migrations", "limits"], "");
        let b1 = limits["limits"].as_array().and_then(|l| l.iter().find(|l| l["broker"] == "b1"));
        b1.is_some_and(|b1| b1["cap_bytes_per_second"] == 1_000_000)
    });
    cluster.json(&["migrations", "set-limit", "b1", "0"], "");
    assert!(cluster.json(&["migrations", "list"], "")["migrations"].is_array());
    pauses_of_copies(cluster);
}

fn pauses_of_copies(cluster: &Cluster) {
    let paused = ["migrations", "pause", "--reason", "a test", "--by", "ann", "--for", "1h"];
    let paused = cluster.json(&paused, "");
    let scopes: Vec<&Value> =
        paused["pauses"].as_array().unwrap().iter().map(|pause| &pause["scope"]).collect();
    let routine = ["class/drain", "class/spread", "class/balance", "class/maintenance"];
    assert_eq!(scopes, routine, "no repair by default");
    wait_until("the pauses are told by the migrator and by the load manager", || {
        let told = cluster.json(&["migrations", "list"], "")["pauses"].as_array().map(Vec::len);
        let status = cluster.json(&["status"], "");
        let named = status["checks"].as_array().unwrap().iter().any(|check| {
            let summary = check["summary"].as_str().unwrap_or_default();
            check["name"] == "COPIES_PAUSED" && summary.contains("by ann")
        });
        told == Some(4) && named
    });
    let ended = cluster.json(&["migrations", "resume", "--class", "drain"], "");
    assert_eq!(ended["ended"].as_array().map(Vec::len), Some(1));
    cluster.json(&["migrations", "resume"], "");
    wait_until("nothing is paused", || {
        cluster.json(&["migrations", "list"], "")["pauses"] == json!([])
    });
    let nothing = ["migrations", "show", "orders/0"];
    let line = "error: cannot show the copy of stream/default/orders/0: nothing of stream/default";
    cluster.refused(&nothing, 2, line);
}

/// A frozen process still accepts connections; whoever comes next is asked, also for what cannot be
/// sent twice.
fn silence(cluster: &Cluster) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let both = format!("{},{}", silent.local_addr().unwrap(), cluster.admin);
    cluster.json(&["status", "--admin", &both], "");
    let cancel = ["moves", "cancel", "orders/0", "--admin", &both];
    cluster.refused(&cancel, 1, "error: cannot cancel the move of stream/default/orders/0: ");
}

fn drains(cluster: &Cluster) {
    let dry = cluster.json(&["drain", "b2", "--dry-run"], "");
    assert_eq!(
        (&dry["emptied"][0]["broker"], &dry["changes"]),
        (&json!("b2"), &json!(["drain b2"]))
    );
    cluster.refused(&["drain", "b9", "--dry-run"], 2, "error: there is no broker b9");
    let drained = cluster.keelctl(&["drain", "b2", "--wait", "-o", "json"], "");
    let told = String::from_utf8_lossy(&drained.stderr);
    assert_eq!(drained.status.code(), Some(0), "{told}");
    let progress: Value = serde_json::from_slice(&drained.stdout).unwrap();
    assert_eq!(
        (&progress["lifecycle"], &progress["replicas_left"]),
        (&json!("draining"), &json!(0))
    );
    let shown = cluster.json(&["brokers", "show", "b2"], "");
    assert_eq!((&shown["broker"]["leaders"], &shown["shards"]), (&json!(0), &json!([])));
    assert_eq!(cluster.json(&["activate", "b2"], "")["lifecycle"], "live");
    assert_eq!(cluster.json(&["drain", "b2", "--cancel"], "")["lifecycle"], "live");
    cluster.refused(&["drain", "b9"], 2, "error: cannot drain broker b9");
    cluster.refused(&["brokers", "show", "b9"], 2, "error: there is no broker 'b9'");
    cluster.refused(&["brokers", "remove", "b1"], 1, "error: cannot remove broker b1");
}
