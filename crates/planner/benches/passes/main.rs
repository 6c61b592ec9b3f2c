//! What a pass costs on large clusters. `cargo bench -p evenkeel-planner --bench passes [-- NAME]`
//!
//! Every case runs in a process of its own, so that its peak of memory is its own.
#![allow(clippy::unwrap_used, reason = "a bench ends where it unwraps")]
#![expect(clippy::disallowed_methods, reason = "a bench looks at the time")]

mod clusters;

use std::process::Command;
use std::time::{Duration, Instant};

use clusters::Shape;
use evenkeel_model::{Lifecycle, Snapshot};
use evenkeel_planner::{Planner, Step, plan};

type Case = (&'static str, &'static str, fn() -> Figures);

const CASES: &[Case] = &[
    ("settled", "≤ 20 ms", settled),
    ("settled-kept", "≤ 20 ms", settled_kept),
    ("load-changed", "≤ 5 ms", load_changed),
    ("assignment-changed", "≤ 5 ms", assignment_changed),
    ("failover", "≤ 30 ms", failover),
    ("failover-kept", "≤ 30 ms", failover_kept),
    ("place-rf1", "≤ 10 s", || place(Shape { replicas: 1, ..MILLION })),
    ("place-rf3", "≤ 10 s", || place(Shape { replicas: 3, ..MILLION })),
    ("place-rf1-streams-of-10", "≤ 10 s", || place(Shape { per_stream: 10, ..MILLION })),
    ("place-rf1-one-stream", "≤ 10 s", || place(Shape { per_stream: 1_000_000, ..MILLION })),
    ("memory-rf1", "≤ 1 KiB", || memory(1)),
    ("memory-rf3", "≤ 1 KiB", || memory(3)),
];

const SETTLED: Shape =
    Shape { shards: 75_000, per_stream: 12, replicas: 1, brokers: 1000, zones: 3, loads: true };
const MILLION: Shape = Shape {
    shards: 1_000_000,
    per_stream: 100,
    replicas: 1,
    brokers: 2000,
    zones: 3,
    loads: false,
};

/// What a case found.
struct Figures {
    /// Of several runs.
    times: Vec<Duration>,
    what: String,
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    if let Ok(name) = std::env::var("PASSES_CASE") {
        return one(&name);
    }
    println!("| case | aim | median | longest | peak memory | |");
    println!("| --- | --- | ---: | ---: | ---: | --- |");
    for (name, _, _) in CASES {
        if wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str())) {
            let this = std::env::current_exe().unwrap();
            let status = Command::new(this).env("PASSES_CASE", name).status().unwrap();
            assert!(status.success(), "{name} failed");
        }
    }
}

fn one(name: &str) {
    let (_, aim, case) = CASES.iter().find(|(n, _, _)| *n == name).unwrap();
    let Figures { mut times, what } = case();
    times.sort();
    let ms = |d: Duration| format!("{:.1} ms", d.as_secs_f64() * 1000.0);
    let (median, longest) = match times.as_slice() {
        [] => ("-".to_owned(), "-".to_owned()),
        times => (ms(times[times.len() / 2]), ms(times[times.len() - 1])),
    };
    let peak = clusters::memory("VmHWM") / 1024;
    println!("| {name} | {aim} | {median} | {longest} | {peak} MiB | {what} |");
}

fn timed<T>(times: &mut Vec<Duration>, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    times.push(start.elapsed());
    result
}

const ROUNDS: usize = 15;

fn settled() -> Figures {
    let snapshot = clusters::settled(SETTLED);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let plan = timed(&mut times, || plan(&snapshot));
        assert!(plan.decisions.is_empty());
    }
    Figures { times, what: "from a snapshot, nothing to do".to_owned() }
}

fn settled_kept() -> Figures {
    let planner = Planner::new(clusters::settled(SETTLED));
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let plan = timed(&mut times, || planner.plan());
        assert!(plan.decisions.is_empty());
    }
    Figures { times, what: "kept planner, nothing changed".to_owned() }
}

fn load_changed() -> Figures {
    let mut planner = Planner::new(clusters::settled(SETTLED));
    let ids: Vec<_> = planner.snapshot().brokers.keys().cloned().collect();
    let mut times = Vec::new();
    for id in ids.iter().take(ROUNDS) {
        let mut load = planner.snapshot().brokers[id].load.clone().unwrap();
        load.cpu_percent = Some(41.0);
        load.shards[0].backlog += 1;
        let plan = timed(&mut times, || {
            planner.set_load(id, Some(load));
            planner.plan()
        });
        assert!(plan.decisions.is_empty());
    }
    Figures { times, what: "kept planner, one load report anew".to_owned() }
}

fn assignment_changed() -> Figures {
    let mut planner = Planner::new(clusters::settled(SETTLED));
    let shards: Vec<_> = planner.snapshot().assignments.keys().step_by(997).cloned().collect();
    let mut times = Vec::new();
    for shard in shards.iter().take(ROUNDS) {
        let mut next = planner.snapshot().assignments[shard].clone();
        next.generation += 1;
        let _ = timed(&mut times, || {
            planner.set_assignment(shard, Some(next));
            planner.plan()
        });
    }
    Figures { times, what: "kept planner, one assignment anew".to_owned() }
}

const DEAD: Shape =
    Shape { shards: 100_000, per_stream: 12, replicas: 3, brokers: 1000, zones: 3, loads: true };

/// One broker of a settled cluster is gone.
fn one_dead() -> Snapshot {
    let mut snapshot = clusters::settled(DEAD);
    clusters::lead_at_least(&mut snapshot, 300);
    clusters::report_all(&mut snapshot);
    let dead = snapshot.brokers.values_mut().next().unwrap();
    dead.lifecycle = Lifecycle::Down;
    dead.registered = false;
    dead.since_ms = snapshot.as_of_ms - 1000;
    snapshot
}

fn failover() -> Figures {
    let snapshot = one_dead();
    let mut times = Vec::new();
    let mut promoted = 0;
    for _ in 0..ROUNDS {
        let plan = timed(&mut times, || plan(&snapshot));
        promoted = plan.report.steps[&Step::Promote];
    }
    Figures { times, what: format!("from a snapshot, {promoted} failovers") }
}

fn failover_kept() -> Figures {
    let planner = Planner::new(one_dead());
    let mut times = Vec::new();
    let mut promoted = 0;
    for _ in 0..ROUNDS {
        let plan = timed(&mut times, || planner.plan());
        promoted = plan.report.steps[&Step::Promote];
    }
    Figures { times, what: format!("kept planner, {promoted} failovers") }
}

fn place(shape: Shape) -> Figures {
    let snapshot = clusters::unplaced(shape);
    let mut times = Vec::new();
    let plan = timed(&mut times, || plan(&snapshot));
    assert_eq!(plan.report.steps[&Step::Place], shape.shards);
    Figures { times, what: format!("{} placed", plan.report.steps[&Step::Place]) }
}

fn memory(replicas: usize) -> Figures {
    let before = clusters::memory("VmRSS");
    let shape = Shape { shards: 1_000_000, replicas, brokers: 2000, loads: true, ..SETTLED };
    let planner = Planner::new(clusters::settled(shape));
    let used = clusters::memory("VmRSS").saturating_sub(before) * 1024;
    let shards = planner.snapshot().assignments.len();
    let each = used / shards;
    Figures { times: Vec::new(), what: format!("{each} bytes a shard, snapshot and facts") }
}
