//! Copies, limits and pauses for people.

use evenkeel_model::decimal;
use serde_json::Value;

use crate::output::{cell, table};

fn rows(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn amount(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), decimal)
}

fn rate(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |rate| format!("{}/s", decimal(rate)))
}

/// Seconds for people.
fn span(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s:02}s"),
        (h, m, _) => format!("{h}h{m:02}m"),
    }
}

/// A range of time, or nothing where none can be told.
fn eta(value: &Value) -> String {
    let of = |field: &str| value[field].as_u64();
    match (of("least_seconds"), of("most_seconds")) {
        (Some(least), Some(most)) if least == most => span(least),
        (Some(least), Some(most)) => format!("{} to {}", span(least), span(most)),
        _ => "-".to_owned(),
    }
}

/// What goes on with a copy that does not simply run.
fn trouble(copy: &Value) -> String {
    match copy["stalled"].as_str() {
        Some(why) => format!("stalled: {}", why.trim_start_matches("stalled: ")),
        None => cell(&copy["limited_by"]),
    }
}

/// The pauses that are on, a line for each class, and the copies.
pub(super) fn list(d: &Value) -> String {
    let mut parts = Vec::new();
    if !rows(&d["pauses"]).is_empty() {
        parts.push(format!("PAUSED BY OPERATORS\n{}", pauses(&d["pauses"])));
    }
    if rows(&d["classes"]).is_empty() {
        parts.push("nothing is being copied".to_owned());
    } else {
        let lines = rows(&d["classes"]).iter().map(|c| {
            [
                cell(&c["class"]),
                cell(&c["running"]),
                cell(&c["queued"]),
                match (c["unknown_size"].as_u64(), c["bytes_left"].as_u64()) {
                    (Some(0) | None, _) => amount(&c["bytes_left"]),
                    (Some(n), Some(0)) => format!("- ({n} of unknown size)"),
                    (Some(n), _) => format!("{} and {n} of unknown size", amount(&c["bytes_left"])),
                },
                rate(&c["bytes_per_second"]),
                eta(&c["eta"]),
            ]
        });
        let head = ["class", "running", "queued", "left", "rate", "ends in"];
        parts.push(table(head, lines.collect()));
    }
    if !rows(&d["migrations"]).is_empty() {
        let lines = rows(&d["migrations"]).iter().map(|m| {
            let place = m["place"].as_u64().filter(|place| *place > 0);
            let state = cell(&m["state"]);
            [
                cell(&m["shard"]),
                cell(&m["class"]),
                cell(&m["source"]),
                cell(&m["destination"]),
                place.map_or_else(|| state.clone(), |place| format!("{state} #{place}")),
                format!("{} of {}", amount(&m["bytes_done"]), amount(&m["bytes_total"])),
                rate(&m["bytes_per_second"]),
                eta(&m["eta"]),
                trouble(m),
            ]
        });
        let head =
            ["shard", "class", "from", "to", "state", "done", "rate", "ends in", "limited by"];
        parts.push(table(head, lines.collect()));
    }
    parts.join("\n\n")
}

/// One copy, every fact on its line.
pub(super) fn show(d: &Value) -> String {
    let m = &d["migration"];
    let place = match m["place"].as_u64() {
        Some(place) if place > 0 => format!(", number {place} of those that wait"),
        _ => String::new(),
    };
    let mut lines = vec![
        format!("copy        {} generation {}", cell(&m["shard"]), cell(&m["generation"])),
        format!("class       {}: {}", cell(&m["class"]), cell(&d["class_reason"])),
        format!(
            "state       {}{place}, for {}",
            cell(&m["state"]),
            span(m["age_seconds"].as_u64().unwrap_or(0))
        ),
        format!("from        {}: {}", cell(&m["source"]), cell(&d["source_reason"])),
        format!("to          {}", cell(&m["destination"])),
        format!("source      {}", limit_line(&d["source_limit"])),
        format!("destination {}", limit_line(&d["destination_limit"])),
        format!(
            "bytes       {} of {} at {}",
            amount(&m["bytes_done"]),
            amount(&m["bytes_total"]),
            rate(&m["bytes_per_second"])
        ),
        match m["stalled"].as_str() {
            Some(_) => format!("ends in     {}", trouble(m)),
            None => format!("ends in     {}", eta(&m["eta"])),
        },
        format!("limited by  {}", cell(&m["limited_by"])),
    ];
    if m["reserved"].as_bool() == Some(true) {
        lines
            .push("reserved    it waited too long: a tenth of both ends is kept for it".to_owned());
    }
    if m["failures"].as_u64().unwrap_or(0) > 0 || !cell(&m["last_failure"]).is_empty() {
        lines.push(format!("failures    {}: {}", cell(&m["failures"]), cell(&m["last_failure"])));
    }
    for pause in rows(&d["pauses"]) {
        lines.push(format!("paused      {}", pause_line(pause)));
    }
    let candidates = rows(&d["candidates"]).iter().map(|c| {
        [
            cell(&c["broker"]),
            cell(&c["role"]),
            span(c["expected_seconds"].as_u64().unwrap_or(0)),
            if c["failed"].as_bool() == Some(true) { "failed".into() } else { "-".into() },
        ]
    });
    let head = ["could be read from", "role", "through in", "last try"];
    format!("{}\n\n{}", lines.join("\n"), table(head, candidates.collect()))
}

fn limit_line(limit: &Value) -> String {
    if limit.is_null() {
        return "not known".to_owned();
    }
    let p99 = match (limit["p99_ms"].as_f64(), limit["target_p99_ms"].as_f64()) {
        (Some(p99), Some(target)) => format!(", p99 {p99:.1} ms of {target:.0}"),
        (Some(p99), None) => format!(", p99 {p99:.1} ms"),
        _ => String::new(),
    };
    let out =
        if limit["out_of_capacity"].as_bool() == Some(true) { ", OUT OF CAPACITY" } else { "" };
    format!("{} {}{p99}{out}", cell(&limit["broker"]), cell(&limit["reason"]))
}

/// What each broker's copies may use, and how its requests fare.
pub(super) fn limits(d: &Value) -> String {
    let lines = rows(&d["limits"]).iter().map(|l| {
        let milliseconds =
            |field: &str| l[field].as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
        let health = match (l["out_of_capacity"].as_bool(), l["recovering"].as_bool()) {
            (Some(true), _) => {
                format!("OUT OF CAPACITY for {}", span(l["floor_seconds"].as_u64().unwrap_or(0)))
            }
            (_, Some(true)) => "recovering".to_owned(),
            _ => "-".to_owned(),
        };
        [
            cell(&l["broker"]),
            cell(&l["state"]),
            cell(&l["share"]),
            cell(&l["reason"]),
            rate(&l["egress_bytes_per_second"]),
            rate(&l["ingress_bytes_per_second"]),
            milliseconds("p99_ms"),
            milliseconds("target_p99_ms"),
            cell(&l["p99_ratio"]),
            cell(&l["queue_depth"]),
            amount(&l["maintenance_backlog_bytes"]),
            health,
        ]
    });
    let head = [
        "broker",
        "state",
        "share",
        "limit",
        "out",
        "in",
        "p99 ms",
        "target",
        "over usual",
        "queue",
        "backlog",
        "health",
    ];
    table(head, lines.collect())
}

/// What is paused.
pub(super) fn pauses(value: &Value) -> String {
    let lines: Vec<String> = rows(value).iter().map(pause_line).collect();
    lines.join("\n")
}

fn pause_line(pause: &Value) -> String {
    let until = match pause["until_ms"].as_i64() {
        Some(until) => format!("until {}", utc(until)),
        None => "until it is resumed".to_owned(),
    };
    let [scope, by, reason] = ["scope", "by", "reason"].map(|field| cell(&pause[field]));
    format!("{scope} by {by} {until}: {reason}")
}

/// A time for people, in UTC: milliseconds since 1970, as a proleptic Gregorian date.
fn utc(ms: i64) -> String {
    let (days, second) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000) / 1000);
    // Years that begin in March have their leap day last; an era is 400 of them.
    let since = days + 719_468;
    let (era, day) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_list_shows_pauses_first_then_classes_then_copies() {
        assert_eq!(list(&json!({})), "nothing is being copied");
        let document = json!({
            "pauses": [{ "scope": "class/drain", "by": "ann", "reason": "rack work", "at_ms": 1 }],
            "classes": [{
                "class": "drain", "running": 1, "queued": 2, "bytes_left": 3000000,
                "bytes_per_second": 1000000, "eta": { "least_seconds": 3, "most_seconds": 65 },
                "unknown_size": 0
            }],
            "migrations": [
                {
                    "shard": "stream/d/s/0", "class": "drain", "source": "b1", "destination": "b2",
                    "state": "queued", "place": 4, "bytes_done": 0, "bytes_total": 1000,
                    "bytes_per_second": 0, "limited_by": "no free slot into b2"
                },
                {
                    "shard": "stream/d/s/1", "class": "drain", "source": null, "destination": "b2",
                    "state": "failed", "place": 0, "bytes_done": null, "bytes_total": null,
                    "bytes_per_second": 0, "limited_by": "x", "stalled": "stalled: no byte"
                },
            ],
        });
        let expected = "\
PAUSED BY OPERATORS
class/drain by ann until it is resumed: rack work

CLASS  RUNNING  QUEUED  LEFT    RATE      ENDS IN
drain  1        2       3.0 MB  1.0 MB/s  3s to 1m05s

SHARD         CLASS  FROM  TO  STATE      DONE           RATE   ENDS IN  LIMITED BY
stream/d/s/0  drain  b1    b2  queued #4  0 B of 1.0 kB  0 B/s  -        no free slot into b2
stream/d/s/1  drain  -     b2  failed     - of -         0 B/s  -        stalled: no byte";
        assert_eq!(list(&document), expected);
    }

    #[test]
    fn the_end_of_a_pause_is_a_date() {
        for (ms, date) in [
            (0_i64, "1970-01-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_700_000_000_999, "2023-11-14 22:13:20 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
        ] {
            let pause =
                json!({ "scope": "class/drain", "by": "ann", "reason": "r", "until_ms": ms });
            assert_eq!(pauses(&json!([pause])), format!("class/drain by ann until {date}: r"));
        }
    }

    #[test]
    fn one_copy_is_explained_line_by_line() {
        let document = json!({
            "migration": {
                "shard": "stream/d/s/0", "generation": 4, "class": "last_copy", "source": "b1",
                "destination": "b2", "state": "running", "place": 0, "age_seconds": 61,
                "bytes_done": 1000, "bytes_total": 2000, "bytes_per_second": 512,
                "eta": { "least_seconds": 2, "most_seconds": 2 }, "limited_by": "egress b1",
                "failures": 0, "last_failure": "",
            },
            "class_reason": "1 of 3 replicas is live",
            "source_reason": "a caught-up follower; there is no other",
            "candidates": [{ "broker": "b1", "role": "follower", "expected_seconds": 9 }],
            "source_limit": {
                "broker": "b1", "reason": "4.0 MB/s, latency", "p99_ms": 130.0,
                "target_p99_ms": 100.0, "out_of_capacity": true
            },
            "destination_limit": null,
            "pauses": [],
        });
        let expected = "\
copy        stream/d/s/0 generation 4
class       last_copy: 1 of 3 replicas is live
state       running, for 1m01s
from        b1: a caught-up follower; there is no other
to          b2
source      b1 4.0 MB/s, latency, p99 130.0 ms of 100, OUT OF CAPACITY
destination not known
bytes       1.0 kB of 2.0 kB at 512 B/s
ends in     2s
limited by  egress b1

COULD BE READ FROM  ROLE      THROUGH IN  LAST TRY
b1                  follower  9s          -";
        assert_eq!(show(&document), expected);
    }
}
