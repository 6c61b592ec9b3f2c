//! The whole load plan on four clusters: `cargo bench -p evenkeel-planner --bench race`, with
//! `-- --json` for JSON, `--only 10000x100` for one of them, `--runs N` and `--seed N`. Each is planned
//! in a process of its own, so that its peak of memory is its own. `--write DIR` writes the clusters
//! as snapshot files instead, to time the whole command on.
#![expect(clippy::disallowed_methods, reason = "a bench looks at the time")]

mod bounds;
#[path = "../instance/mod.rs"]
mod instance;

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use evenkeel_planner::{LoadAim, apply_load_plan, even_load};
use serde_json::{Value, json};

use bounds::{Carried, narrowed};
use instance::Instance;

const RACE: [Instance; 4] = [
    Instance { name: "10000x100", shards: 10_000, factor: 1, brokers: 100, zones: 0, empty: 1 },
    Instance { name: "75000x1000", shards: 75_000, factor: 1, brokers: 1000, zones: 0, empty: 1 },
    Instance { name: "33334x3x300", shards: 33_334, factor: 3, brokers: 300, zones: 3, empty: 30 },
    Instance {
        name: "1000000x2000",
        shards: 1_000_000,
        factor: 1,
        brokers: 2000,
        zones: 0,
        empty: 1,
    },
];

const TOLERANCE_PERCENT: f64 = 5.0;

struct Args {
    json: bool,
    only: Option<String>,
    runs: usize,
    seed: u64,
    write: Option<String>,
    /// Plan this one here.
    one: Option<String>,
    fewest: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = arguments()?;
    let chosen = |i: &&Instance| args.only.as_ref().is_none_or(|only| only == i.name);
    if let Some(name) = &args.one {
        let instance = RACE.iter().find(|i| i.name == name).ok_or("no such instance")?;
        return emit(&measure(instance, &args).to_string());
    }
    if let Some(directory) = &args.write {
        return RACE.iter().filter(chosen).try_for_each(|i| write(i, &args, directory));
    }
    let mut rows = Vec::new();
    for instance in RACE.iter().filter(chosen) {
        for fewest in [true, false] {
            rows.push(in_a_process(instance, &args, fewest)?);
            if !args.json {
                emit(&line(&rows[rows.len() - 1], rows.len() == 1))?;
            }
        }
    }
    if args.json { emit(&format!("{:#}", Value::from(rows))) } else { Ok(()) }
}

fn arguments() -> Result<Args, Box<dyn Error>> {
    let mut args =
        Args { json: false, only: None, runs: 5, seed: 42, write: None, one: None, fewest: false };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        let mut value = || given.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--json" => args.json = true,
            "--only" => args.only = Some(value()?),
            "--runs" => args.runs = value()?.parse::<usize>()?.max(1),
            "--seed" => args.seed = value()?.parse()?,
            "--write" => args.write = Some(value()?),
            "--one" => args.one = Some(value()?),
            "--fewest-moves" => args.fewest = true,
            // Cargo says so to every bench.
            "--bench" => {}
            other => return Err(format!("unexpected argument '{other}'").into()),
        }
    }
    Ok(args)
}

fn emit(text: &str) -> Result<(), Box<dyn Error>> {
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}

fn write(instance: &Instance, args: &Args, directory: &str) -> Result<(), Box<dyn Error>> {
    let path = Path::new(directory).join(format!("{}.json", instance.name));
    let mut file = BufWriter::new(File::create(&path)?);
    serde_json::to_writer(&mut file, &instance.make(args.seed))?;
    file.flush()?;
    emit(&path.display().to_string())
}

fn in_a_process(instance: &Instance, args: &Args, fewest: bool) -> Result<Value, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--one", instance.name, "--runs", &args.runs.to_string()]);
    command.args(["--seed", &args.seed.to_string()]).stderr(Stdio::inherit());
    if fewest {
        command.arg("--fewest-moves");
    }
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{} failed: {}", instance.name, output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Plans it some times over, and does the moves once.
fn measure(instance: &Instance, args: &Args) -> Value {
    let aim = if args.fewest { LoadAim::FewestMoves } else { LoadAim::BothSides };
    let mut snapshot = instance.make(args.seed);
    let mut times = Vec::new();
    let mut plan = timed(&mut times, || even_load(&snapshot, TOLERANCE_PERCENT, aim));
    for _ in 1..args.runs {
        plan = timed(&mut times, || even_load(&snapshot, TOLERANCE_PERCENT, aim));
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    timed(&mut times, || apply_load_plan(&mut snapshot, &plan));
    let applying = times[times.len() - 1];
    let peak = peak_mib();

    let after = snapshot;
    let before = instance.make(args.seed);
    let (was, is) = (Carried::of(&before), Carried::of(&after));
    let (least_moves, least_load) = was.least(TOLERANCE_PERCENT / 100.0, aim);
    json!({
        "instance": instance.name,
        "aim": if args.fewest { "fewest moves" } else { "both sides" },
        "planning_ms": median + applying,
        "of_that_moves_done_ms": applying,
        "moves": plan.moves.len(),
        "moves_at_least": least_moves,
        "load_moved_percent": 100.0 * plan.load_moved / was.total,
        "load_moved_percent_at_least": 100.0 * least_load / was.total,
        "max_over_mean": is.highest_over_mean(),
        "min_over_mean": is.lowest_over_mean(),
        "joined_min_over_mean": is.lowest_joined_over_mean(&was),
        "zones_narrowed": narrowed(&before, &after),
        "peak_mib": peak,
    })
}

fn timed<T>(times: &mut Vec<f64>, run: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = run();
    times.push(began.elapsed().as_secs_f64() * 1000.0);
    done
}

/// The most memory that this process ever had, MiB; none where the kernel does not tell.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib / 1024)
}

fn line(row: &Value, first: bool) -> String {
    let columns = [
        ("instance", 13),
        ("aim", 13),
        ("planning_ms", 12),
        ("moves", 6),
        ("moves_at_least", 15),
        ("load_moved_percent", 19),
        ("load_moved_percent_at_least", 28),
        ("max_over_mean", 14),
        ("min_over_mean", 14),
        ("joined_min_over_mean", 21),
        ("zones_narrowed", 15),
        ("peak_mib", 9),
    ];
    let cell = |(name, width): (&str, usize)| match &row[name] {
        Value::String(text) => format!("{text:<width$}"),
        Value::Number(n) if n.is_f64() => format!("{:>width$.3}", n.as_f64().unwrap_or_default()),
        other => format!("{:>width$}", other.to_string()),
    };
    let text = columns.map(cell).join(" ");
    if !first {
        return text;
    }
    let head = |(name, width): (&str, usize)| match &row[name] {
        Value::String(_) => format!("{name:<width$}"),
        _ => format!("{name:>width$}"),
    };
    format!("{}\n{text}", columns.map(head).join(" "))
}
