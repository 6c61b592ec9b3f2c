//! The answer for people.

use std::fmt::Write as _;

use evenkeel_model::BrokerId;
use evenkeel_planner::{Duration, Effort, Movement, Outlook, WhatIf, span};
use serde_json::json;

use crate::output::{bytes, cell, table};

/// The whole screen.
pub(super) fn of(a: &WhatIf) -> String {
    let mut text = String::new();
    writeln!(text, "If you {}:\n", a.changes.join(", ")).ok();
    if !a.steps.is_empty() {
        writeln!(text, "{}\n", moves(&a.steps)).ok();
    }
    writeln!(text, "{}", effort(&a.effort)).ok();
    writeln!(text, "without the change: {}", effort(&a.without)).ok();
    writeln!(text, "{}\n", time(&a.time, &a.effort)).ok();
    writeln!(text, "{}\n", outlooks(&a.before, &a.after)).ok();
    if a.narrowed > 0 {
        let narrowed = many(a.narrowed, "shard spans", "shards span");
        writeln!(text, "{narrowed} fewer zones than now").ok();
    }
    for one in &a.emptied {
        match one.safe_to_stop {
            true => writeln!(text, "{} is then named by no shard: safe to stop", one.broker),
            false => {
                let shards = many(one.named_by, "shard", "shards");
                writeln!(text, "{} is still named by {shards}", one.broker)
            }
        }
        .ok();
    }
    for u in &a.unresolved {
        let shards = match u.kind {
            "wait" => many(u.shards, "shard waits for", "shards wait for"),
            _ => many(u.shards, "shard is refused:", "shards are refused:"),
        };
        writeln!(text, "{shards} {}: {}: {}", u.word, u.first, u.detail).ok();
    }
    let end = if a.effort.stable { "at rest" } else { "not at rest yet" };
    writeln!(text, "{end} after {}", many(a.passes, "pass", "passes")).ok();
    text
}

fn many(count: u32, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

fn effort(e: &Effort) -> String {
    let mut text = format!(
        "{}, {}, {} copied",
        many(e.leader_moves, "leader moves", "leaders move"),
        many(e.copies, "copy", "copies"),
        bytes(e.bytes_copied as f64)
    );
    if e.copies_of_unknown_size > 0 {
        let unknown = many(e.copies_of_unknown_size, "copy", "copies");
        write!(text, " and {unknown} of unknown size").ok();
    }
    if e.placed > 0 {
        write!(text, "; {} placed", e.placed).ok();
    }
    if e.promoted > 0 {
        write!(text, "; {} failed over", e.promoted).ok();
    }
    text
}

fn time(t: &Duration, e: &Effort) -> String {
    if e.copies > 0 && e.copies == e.copies_of_unknown_size {
        return "how long it takes is not known: no leader reports the size of such a shard".into();
    }
    let rate = match (t.rate_bytes_per_second, t.link_share) {
        (Some(rate), _) => format!("{}/s into and out of each broker", bytes(rate as f64)),
        (None, Some(share)) => format!("{:.0} % of each broker's link", share * 100.0),
        (None, None) => "any rate".to_owned(),
    };
    let at = t.limited_at.as_ref().map_or(String::new(), |b| format!(" of {b}"));
    let bound = match t.limited_by {
        "nothing" => String::new(),
        word => format!(", bounded by {}{at}", word.replace('_', " ")),
    };
    let delays = match t.delays_seconds {
        delays if delays > 0.0 => format!(", {} of it waiting", seconds(delays)),
        _ => String::new(),
    };
    let unknown = if e.copies_of_unknown_size > 0 { ", unknown sizes left out" } else { "" };
    format!(
        "at {rate}: at least {}{bound}; {} one copy after another{delays}{unknown}",
        seconds(t.at_least_seconds),
        seconds(t.one_by_one_seconds)
    )
}

fn seconds(seconds: f64) -> String {
    // Far beyond any plan the number itself says nothing.
    span((seconds * 1000.0).min(9e15) as i64)
}

fn outlooks(before: &Outlook, after: &Outlook) -> String {
    let rows = [
        ("active brokers", pair(before, after, |o| o.active_brokers.to_string())),
        ("leaders a broker", pair(before, after, |o| range(o.leaders_min, o.leaders_max))),
        ("replicas a broker", pair(before, after, |o| range(o.replicas_min, o.replicas_max))),
        ("uneven streams", pair(before, after, |o| o.uneven_streams.to_string())),
        (
            "load CV",
            pair(before, after, |o| format!("{:.1} % {}", o.cv_percent, cell(&json!(o.status)))),
        ),
        (
            "under-replicated",
            pair(before, after, |o| {
                format!("{} ({})", o.under_replicated, many(o.replicas_missing, "copy", "copies"))
            }),
        ),
        (
            "zones spanned",
            pair(before, after, |o| {
                let spans =
                    o.zones_spanned.iter().map(|(zones, shards)| format!("{zones}: {shards}"));
                let spans = spans.collect::<Vec<_>>().join(", ");
                if spans.is_empty() { "no zones".to_owned() } else { spans }
            }),
        ),
        ("crowded", pair(before, after, |o| o.crowded.to_string())),
        ("limited by zones", pair(before, after, |o| o.zone_limited.to_string())),
    ];
    let rows = rows.map(|(what, [before, after])| [what.to_owned(), before, after]);
    table(["", "now", "then"], rows.to_vec())
}

fn pair(before: &Outlook, after: &Outlook, show: impl Fn(&Outlook) -> String) -> [String; 2] {
    [show(before), show(after)]
}

fn range(min: u32, max: u32) -> String {
    format!("{min} to {max}")
}

fn moves(steps: &[Movement]) -> String {
    let name = |b: &Option<BrokerId>| b.as_ref().map_or("-".to_owned(), ToString::to_string);
    let row = |m: &Movement| {
        let copy = match (m.copies, m.bytes) {
            (false, _) => "-".to_owned(),
            (true, Some(size)) => bytes(size as f64),
            (true, None) => "unknown".to_owned(),
        };
        [
            m.write.pass.to_string(),
            m.write.shard.to_string(),
            m.write.step.to_string(),
            name(&m.write.from),
            name(&m.write.to),
            m.write.reason.to_string(),
            copy,
        ]
    };
    let header = ["pass", "shard", "step", "from", "to", "reason", "copies"];
    table(header, steps.iter().map(row).collect())
}
