//! The demo as a user runs it: real processes, real input, an end that tells the truth.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Long enough for a slow machine that does other things too.
const LIMIT: Duration = Duration::from_secs(240);

fn demo(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keelctl"));
    command.arg("demo").arg("--dir").arg(dir).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Processes whose command line names `dir`, which those of one demo's brokers do.
fn processes_of(dir: &Path) -> Vec<u32> {
    let needle = dir.to_str().unwrap();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        let command_line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let text = String::from_utf8_lossy(&command_line).replace('\0', " ");
        text.contains("serve") && text.contains(needle)
    })
    .collect()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = now();
    while !holds() {
        assert!(began.elapsed() < LIMIT, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[expect(clippy::disallowed_methods, reason = "a test of real processes waits in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Starts a demo and returns when its brokers run.
fn started(dir: &Path) -> Child {
    let child = demo(dir, &[]).spawn().unwrap();
    wait_until("brokers to run", || processes_of(dir).len() >= 4);
    child
}

#[test]
fn the_story_is_told_on_a_files_lines_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("input.txt");
    let lines: Vec<String> = (0..30_000).map(|n| format!("{n} {}", "x".repeat(n % 97))).collect();
    std::fs::write(&input, lines.join("\n")).unwrap();
    let arguments = ["--input", input.to_str().unwrap(), "-o", "json"];
    let output = demo(&dir.path().join("run"), &arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ok"], true, "{told}");
    // Every line, and one of forty once more in a small stream.
    assert_eq!(report["records"]["acknowledged"], 30_000 + 30_000 / 40);
    assert_eq!(report["records"]["read"], report["records"]["acknowledged"]);
    for count in ["lost", "changed", "duplicated", "out_of_order", "unacknowledged"] {
        assert_eq!(report["records"][count], 0, "{count}");
    }
    let leaders = &report["leaders_after"]["stream/demo/lines"];
    let of = |broker: &str| leaders[broker].as_u64();
    assert_eq!(["b1", "b2", "b4", "b5"].map(of), [Some(3); 4], "{leaders}");
    assert_eq!(of("b3"), None);
    assert!(report["repairs"].as_u64().unwrap() > 0);
    assert_eq!(processes_of(dir.path()), [] as [u32; 0]);
}

#[test]
fn killed_without_warning_it_leaves_no_process_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = started(dir.path());
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("its brokers to end", || processes_of(dir.path()).is_empty());
}

#[test]
fn an_interrupted_demo_says_so_and_leaves_no_process_behind() {
    let dir = tempfile::tempdir().unwrap();
    let child = started(dir.path());
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.ends_with("error: the demo was ended; its processes are stopped\n"), "{told}");
    wait_until("its brokers to end", || processes_of(dir.path()).is_empty());
}

#[test]
fn input_that_is_not_there_is_said_before_anything_is_started() {
    let dir = tempfile::tempdir().unwrap();
    let output = demo(dir.path(), &["--input", "/nowhere/text"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.starts_with("error: cannot read /nowhere/text: "), "{told}");
}
