//! A scenario's runs side by side, for people.

use crate::run::{Outcome, Storm};
use crate::units::{latency, size, span};

type Cell = fn(&Outcome) -> String;

/// Rows: what, and each variant's figure.
const ROWS: [(&str, Cell); 26] = [
    ("time to repair", |o| time(o.summary.repair_s)),
    ("least possible", |o| time(o.summary.bound_s)),
    ("until no shard has one replica left", |o| time(o.summary.one_left_s)),
    ("shard-seconds short of replicas", |o| count(o.summary.short_shard_s)),
    ("  with one replica left", |o| count(o.summary.one_left_shard_s)),
    ("  with none left", |o| count(o.summary.none_left_shard_s)),
    ("p99 before", |o| latency(o.summary.p99_before_ms)),
    ("p99 target", |o| latency(o.target_ms)),
    ("worst p99 during", |o| latency(o.summary.p99_during_ms)),
    ("  over before", |o| times(o.summary.p99_during_ms / o.summary.p99_before_ms)),
    ("worst p99 in the minute after", |o| o.summary.p99_after_ms.map_or_else(none, latency)),
    ("seconds within 1.2 x target", |o| percent(o.summary.within_target)),
    ("peaks of latency", |o| o.summary.peaks.to_string()),
    ("second peak after the copies", |o| yes(o.summary.second_peak)),
    ("requests per operation", |o| times(o.summary.retry_factor)),
    ("  in the worst second", |o| times(o.summary.retry_factor_worst)),
    ("goodput", |o| percent(o.summary.goodput)),
    ("  in the worst ten seconds", |o| percent(o.summary.goodput_worst)),
    ("requests refused at once", |o| percent(o.summary.shed)),
    ("bytes copied", |o| size(o.summary.copied_bytes)),
    ("balance moves by counts / latency", |o| {
        format!("{} / {}", o.summary.moves_by_counts, o.summary.moves_by_latency)
    }),
    ("maintenance done after", |o| time(o.summary.maintained_s)),
    ("share of the link: least / mean", |o| {
        format!("{} / {}", percent(o.summary.share_min), percent(o.summary.share_mean))
    }),
    ("  variation / reversals per hour", |o| {
        let s = &o.summary;
        if s.states.is_empty() {
            return none();
        }
        format!("{} / {:.0}", percent(s.share_variation), s.reversals_per_hour)
    }),
    ("back to target after a step of load", |o| match o.summary.settled_s {
        Some(s) => format!("{s:.0}s, least {}", times(o.summary.undershoot.unwrap_or(1.0))),
        None => none(),
    }),
    ("out of capacity", |o| yes(o.summary.out_of_capacity)),
];

/// The table.
pub fn table(storm: &Storm) -> String {
    let mut lines = vec![Vec::from([String::new()])];
    lines[0].extend(storm.variants.iter().map(|o| o.variant.to_uppercase()));
    for (what, cell) in ROWS {
        let cells: Vec<String> = storm.variants.iter().map(cell).collect();
        // What no variant has is no row.
        if cells.iter().any(|text| *text != none()) {
            lines.push(std::iter::once(what.to_owned()).chain(cells).collect());
        }
    }
    lines.push(std::iter::once("time in states".to_owned()).chain(states(storm)).collect());
    let columns = storm.variants.len() + 1;
    let width = |c: usize| lines.iter().map(|l| l[c].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = format!("{}\n\n", storm.title);
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The states that laws were in for at least one percent of the time.
fn states(storm: &Storm) -> impl Iterator<Item = String> {
    storm.variants.iter().map(|o| {
        let known = o.summary.states.iter().filter(|(_, part)| *part >= 0.01);
        let words: Vec<String> =
            known.map(|(state, part)| format!("{state} {:.0}%", part * 100.0)).collect();
        if words.is_empty() { none() } else { words.join(" ") }
    })
}

fn none() -> String {
    "-".to_owned()
}

fn time(seconds: Option<f64>) -> String {
    seconds.map_or_else(none, span)
}

fn count(n: f64) -> String {
    if n > 0.0 { format!("{n:.0}") } else { none() }
}

fn times(n: f64) -> String {
    format!("x{n:.2}")
}

fn percent(part: f64) -> String {
    format!("{:.1}%", part * 100.0)
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}
