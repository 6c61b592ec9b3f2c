//! etcdctl, which knows nothing of us, works on the embedded server: whoever wants to look into a
//! running demo can do it with the tool they know. Skipped where etcdctl is not installed.

#![expect(clippy::unwrap_used, reason = "a failed command should end its test")]

use std::io::Write as _;
use std::process::{Output, Stdio};
use std::time::Duration;

use evenkeel_embedded_etcd::EmbeddedEtcd;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdout, Command};

struct Ctl {
    endpoint: String,
    _etcd: EmbeddedEtcd,
}

impl Ctl {
    /// `None`, with a line that says so, where there is no etcdctl.
    async fn start() -> Option<Self> {
        let mut version = Command::new("etcdctl");
        version.arg("version").env("ETCDCTL_API", "3");
        if version.stdout(Stdio::null()).stderr(Stdio::null()).status().await.is_err() {
            let _ = std::io::stderr().write_all(b"skipped: no etcdctl on the PATH\n");
            return None;
        }
        let (etcd, endpoint) = EmbeddedEtcd::listen("127.0.0.1:0", 1).await.unwrap();
        Some(Self { endpoint, _etcd: etcd })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", &self.endpoint);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    async fn output(&self, arguments: &[&str]) -> Output {
        let running = self.command(arguments).output();
        tokio::time::timeout(Duration::from_secs(20), running).await.expect("an end").unwrap()
    }

    /// What the command printed; it must succeed.
    async fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the command said when it failed, as it must.
    async fn refused(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments).await;
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    async fn run_with_input(&self, arguments: &[&str], input: &str) -> String {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

async fn lines(output: &mut Lines<BufReader<ChildStdout>>, count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    while lines.len() < count {
        let line = tokio::time::timeout(Duration::from_secs(20), output.next_line()).await;
        lines.push(line.expect("a line in time").unwrap().expect("a line, not the end"));
    }
    lines
}

#[tokio::test]
async fn keys_are_put_listed_and_deleted() {
    let Some(ctl) = Ctl::start().await else { return };
    assert_eq!(ctl.run(&["put", "/cluster/brokers/b1", "{}"]).await, "OK\n");
    ctl.run(&["put", "/cluster/brokers/b2", "{\"zone\":\"z1\"}"]).await;
    ctl.run(&["put", "/elsewhere", "x"]).await;
    let listed = ctl.run(&["get", "--prefix", "/cluster/"]).await;
    assert_eq!(listed, "/cluster/brokers/b1\n{}\n/cluster/brokers/b2\n{\"zone\":\"z1\"}\n");
    let keys = ctl.run(&["get", "--prefix", "--keys-only", "--limit", "1", ""]).await;
    assert_eq!(keys.trim(), "/cluster/brokers/b1");
    let descending =
        ctl.run(&["get", "--from-key", "/", "--order", "DESCEND", "--print-value-only"]).await;
    assert_eq!(descending, "x\n{\"zone\":\"z1\"}\n{}\n");
    let past = ctl.run(&["get", "/cluster/brokers/b1", "--rev", "2", "-w", "json"]).await;
    assert!(past.contains(r#""create_revision":2"#), "{past}");
    assert_eq!(ctl.run(&["del", "--prefix", "/cluster/"]).await, "2\n");
    assert_eq!(ctl.run(&["get", "--prefix", "/cluster/"]).await, "");
    assert!(ctl.run(&["compaction", "5"]).await.contains("compacted revision 5"));
    assert!(ctl.refused(&["compaction", "99"]).await.contains("future revision"));
}

#[tokio::test]
async fn a_watch_shows_changes_as_they_happen() {
    let Some(ctl) = Ctl::start().await else { return };
    ctl.run(&["put", "/a/old", "0"]).await;
    let mut command = ctl.command(&["watch", "--prefix", "/a/", "--rev", "2"]);
    let mut watching = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(watching.stdout.take().unwrap()).lines();
    assert_eq!(lines(&mut output, 3).await, ["PUT", "/a/old", "0"]);
    ctl.run(&["put", "/a/new", "1"]).await;
    assert_eq!(lines(&mut output, 3).await, ["PUT", "/a/new", "1"]);
    ctl.run(&["del", "/a/old"]).await;
    assert_eq!(lines(&mut output, 3).await, ["DELETE", "/a/old", ""]);
    watching.kill().await.unwrap();
}

#[tokio::test]
async fn leases_are_granted_kept_and_revoked() {
    let Some(ctl) = Ctl::start().await else { return };
    let granted = ctl.run(&["lease", "grant", "60"]).await;
    let id = granted.split_whitespace().nth(1).unwrap();
    assert!(granted.ends_with("granted with TTL(60s)\n"), "{granted}");
    ctl.run(&["put", "--lease", id, "/a", "x"]).await;
    assert!(ctl.run(&["lease", "list"]).await.contains(id));
    let left = ctl.run(&["lease", "timetolive", id, "--keys"]).await;
    assert!(left.contains("granted with TTL(60s)") && left.contains("attached keys([/a])"));
    let kept = ctl.run(&["lease", "keep-alive", "--once", id]).await;
    assert!(kept.contains("keepalived with TTL(60)"), "{kept}");
    assert!(ctl.run(&["lease", "revoke", id]).await.contains("revoked"));
    assert_eq!(ctl.run(&["get", "/a"]).await, "");
    let refused = ctl.refused(&["put", "--lease", id, "/a", "x"]).await;
    assert!(refused.contains("requested lease not found"), "{refused}");
}

#[tokio::test]
async fn a_transaction_takes_one_branch() {
    let Some(ctl) = Ctl::start().await else { return };
    let script = "create(\"/a\") = \"0\"\n\nput /a first\n\nget /a\n\n";
    assert_eq!(ctl.run_with_input(&["txn"], script).await, "SUCCESS\n\nOK\n");
    assert_eq!(ctl.run_with_input(&["txn"], script).await, "FAILURE\n\n/a\nfirst\n");
}

#[tokio::test]
async fn the_server_tells_of_itself() {
    let Some(ctl) = Ctl::start().await else { return };
    ctl.run(&["put", "/a", "x"]).await;
    let status = ctl.run(&["endpoint", "status", "-w", "table"]).await;
    assert!(status.contains(&ctl.endpoint) && status.contains("evenkeel"), "{status}");
    let status = ctl.run(&["endpoint", "status", "-w", "json"]).await;
    assert!(status.contains(r#""revision":2"#), "{status}");
    let health = ctl.output(&["endpoint", "health"]).await;
    assert!(health.status.success());
    assert!(ctl.run(&["member", "list"]).await.contains(&ctl.endpoint));
    assert_eq!(ctl.run(&["alarm", "list"]).await, "");
    assert!(ctl.run(&["defrag"]).await.contains("Finished defragmenting"));
    let refused = ctl.refused(&["member", "remove", "1"]).await;
    assert!(refused.contains("does not offer"), "{refused}");
    let refused = ctl.refused(&["user", "list"]).await;
    assert!(!refused.is_empty());
}
