//! What each key sets, and what it may be.

use super::{LawChoice, Order, Settings, Signal};
use crate::units;

/// One key.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// The section it stands in; a variant may set any.
    pub(super) section: &'static str,
    /// Sets it, or answers what was expected.
    pub(super) set: fn(&mut Settings, &str) -> Result<(), String>,
}

macro_rules! keys {
    ($($section:literal { $($name:literal => $($field:ident).+ = $read:expr;)+ })+) => {
        /// Every key but `title`.
        pub(super) const KEYS: &[Key] = &[$($(Key {
            name: $name,
            section: $section,
            set: |s, text| { s.$($field).+ = $read(text)?; Ok(()) },
        },)+)+];
    };
}

keys! {
    "" {
        "run" => run_ms = positive_time;
    }
    "cluster" {
        "nodes" => cluster.nodes = |t| whole(t, 1, 1000);
        "zones" => cluster.zones = |t| whole(t, 1, 1000);
        "shards" => cluster.shards = |t| whole(t, 1, 100_000).map(|n| n as u32);
        "replicas" => cluster.replicas = |t| whole(t, 1, 9).map(|n| n as u32);
        "data" => cluster.data_bytes = units::bytes;
        "link" => cluster.link = units::rate;
        "detection" => cluster.detection_ms = units::millis;
        "restore_delay" => cluster.restore_delay_ms = units::millis;
    }
    "traffic" {
        "utilisation" => traffic.utilisation = units::percent;
        "capacity" => traffic.capacity = |t| whole(t, 1, 10_000_000).map(|n| n as f64);
        "p99_idle" => traffic.p99_idle_ms = positive_time;
        "knee" => traffic.knee = |t| part(t, 0.95);
        "contention" => traffic.contention = |t| part(t, 1.0);
        "queue" => traffic.queue_ms = |t| time(t, 1.0, 600_000.0);
        "timeout" => traffic.timeout_ms = |t| maybe(t, |t| time(t, 1.0, 120_000.0));
        "retries" => traffic.retries = |t| whole(t, 0, 7);
        "backoff" => traffic.backoff_ms = |t| time(t, 0.0, 10_000.0);
        "think" => traffic.think_ms = |t| time(t, 0.0, 600_000.0);
        "noise" => traffic.noise = |t| part(t, 1.0);
    }
    "controls" {
        "law" => controls.law = |t| word(t, &[
            ("steady", LawChoice::Steady), ("plain", LawChoice::Plain), ("off", LawChoice::Off),
        ]);
        "target" => controls.target_ms = positive_time;
        "window" => controls.window_s = seconds;
        "off_share" => controls.off_share = |t| part(t, 1.0);
        "order" => controls.order = |t| word(t, &[
            ("priority", Order::Priority), ("fifo", Order::Fifo), ("all-at-once", Order::AllAtOnce),
        ]);
        "at_once" => controls.at_once = |t| whole(t, 0, 1_000_000);
        "per_node" => controls.per_node = |t| whole(t, 0, 1_000_000);
        "shedding" => controls.shedding = switch;
        "shed_latency" => controls.shed_latency_ms = |t| time(t, 1.0, 60_000.0);
        "retry_after" => controls.retry_after_ms = |t| time(t, 0.0, 60_000.0);
        "retry_budget" => controls.retry_budget = |t| maybe(t, units::percent);
        "rebalance" => controls.rebalance = |t| word(t, &[
            ("counts", Signal::Counts), ("latency", Signal::Latency),
        ]);
        "rebalance_at_once" => controls.rebalance_at_once = |t| whole(t, 0, 1_000_000);
        "maintenance" => controls.maintenance = units::percent;
        "maintenance_ramp" => controls.maintenance_ramp = switch;
        "maintenance_wait" => controls.maintenance_wait_ms = units::millis;
        "maintenance_share" => controls.maintenance_share = |t| part(t, 1.0);
    }
}

fn whole(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let found = text.parse().ok().filter(|n| (least..=most).contains(n));
    found.ok_or_else(|| format!("a whole number from {least} to {most}"))
}

fn seconds(text: &str) -> Result<usize, String> {
    let found = units::millis(text).ok().map(|ms| ms / 1000.0);
    let found = found.filter(|s| s.fract() == 0.0 && (1.0..=60.0).contains(s));
    found.map(|s| s as usize).ok_or_else(|| "whole seconds from 1s to 60s".to_owned())
}

fn positive_time(text: &str) -> Result<f64, String> {
    let found = units::millis(text)?;
    if found > 0.0 { Ok(found) } else { Err("a time above 0".to_owned()) }
}

/// Clients remember what they wait for, step by step: no longer than makes sense.
fn time(text: &str, least_ms: f64, most_ms: f64) -> Result<f64, String> {
    let found = units::millis(text).ok().filter(|ms| (least_ms..=most_ms).contains(ms));
    found.ok_or_else(|| format!("a time from {least_ms}ms to {}s", most_ms / 1000.0))
}

fn part(text: &str, most: f64) -> Result<f64, String> {
    let found = units::percent(text).ok().filter(|p| *p <= most);
    found.ok_or_else(|| format!("percent from 0% to {}%", most * 100.0))
}

fn switch(text: &str) -> Result<bool, String> {
    word(text, &[("on", true), ("off", false)])
}

fn maybe<T>(text: &str, read: fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == "none" {
        return Ok(None);
    }
    read(text).map(Some).map_err(|expected| format!("none, or {expected}"))
}

fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    words.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        format!("one of {}", names.join(", "))
    })
}
