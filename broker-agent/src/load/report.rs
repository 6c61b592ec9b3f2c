//! The load report as it is stored: the machine's use and each led shard's rates.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_model::{LoadReport, Millis, RECORD_VERSION, ShardKey, ShardLoad};

use super::machine::{MachineLoad, Reading};
use super::smoothing::Rate;
use crate::gateway::activity::Connected;
use crate::host::ShardCounters;

/// Smoothed load of this broker.
#[derive(Debug)]
pub struct LoadMeter {
    time_constant: Duration,
    machine: MachineLoad,
    shards: BTreeMap<ShardKey, ShardMeter>,
}

#[derive(Debug, Default)]
struct ShardMeter {
    messages: Rate,
    bytes: Rate,
    latest: Option<ShardCounters>,
}

impl LoadMeter {
    /// `time_constant`: how long a change takes to show by two thirds.
    pub fn new(time_constant: Duration) -> Self {
        Self { time_constant, machine: MachineLoad::default(), shards: BTreeMap::new() }
    }

    /// Takes in readings made `elapsed` after the last ones. Shards that are led no more are
    /// forgotten, so that a shard that comes back does not start from its old rates.
    pub fn add(&mut self, machine: &Reading, shards: Vec<ShardCounters>, elapsed: Duration) {
        self.machine.add(machine, elapsed, self.time_constant);
        let mut before = std::mem::take(&mut self.shards);
        for counters in shards.into_iter().filter(|c| c.leads) {
            let mut meter = before.remove(&counters.shard).unwrap_or_default();
            let bytes = counters.bytes_in + counters.bytes_out;
            meter.messages.read(Some(counters.records_in), elapsed, self.time_constant);
            meter.bytes.read(Some(bytes), elapsed, self.time_constant);
            let shard = counters.shard.clone();
            meter.latest = Some(counters);
            self.shards.insert(shard, meter);
        }
    }

    /// The report at a moment. `disk_used` is the used part of the disk, 0 to 1.
    pub fn report(
        &self,
        at_ms: Millis,
        incarnation: u64,
        connected: &BTreeMap<ShardKey, Connected>,
        disk_used: Option<f64>,
    ) -> LoadReport {
        let shards = self.shards.iter().filter_map(|(shard, meter)| {
            let latest = meter.latest.as_ref()?;
            let connected = connected.get(shard).copied().unwrap_or_default();
            Some(ShardLoad {
                shard: shard.clone(),
                messages_per_second: meter.messages.per_second().unwrap_or(0.0),
                bytes_per_second: meter.bytes.per_second().unwrap_or(0.0),
                producers: connected.producers,
                consumers: connected.consumers,
                subscriptions: connected.consumers,
                backlog: connected
                    .slowest_position
                    .map_or(0, |position| latest.log_end.saturating_sub(position)),
                size_bytes: latest.size_bytes,
                log_end: latest.log_end,
            })
        });
        LoadReport {
            v: RECORD_VERSION,
            reported_at_ms: at_ms,
            incarnation,
            cpu_percent: self.machine.cpu_percent(),
            memory_percent: self.machine.memory_percent(),
            disk_used_percent: disk_used.map(|used| used * 100.0),
            disk_io_bytes_per_second: self.machine.disk_bytes_per_second(),
            network_io_bytes_per_second: self.machine.network_bytes_per_second(),
            shards: shards.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(shard: &str, leads: bool, records_in: u64) -> ShardCounters {
        ShardCounters {
            shard: shard.parse().unwrap(),
            leads,
            records_in,
            bytes_in: records_in * 100,
            bytes_out: records_in * 50,
            size_bytes: 7,
            log_end: records_in + 1,
            follower_lag: Vec::new(),
        }
    }

    #[test]
    fn a_report_lists_led_shards_with_rates_since_they_are_led() {
        let mut meter = LoadMeter::new(Duration::ZERO);
        let second = Duration::from_secs(1);
        let (led, followed) = ("stream/d/s/0", "stream/d/s/1");
        let idle = Reading::default();
        meter.add(&idle, vec![counters(led, true, 0), counters(followed, false, 0)], second);
        meter.add(&idle, vec![counters(led, true, 10), counters(followed, false, 10)], second);
        let slow = Connected { producers: 2, consumers: 1, slowest_position: Some(4) };
        let connected = BTreeMap::from([(led.parse().unwrap(), slow)]);
        let report = meter.report(5, 3, &connected, Some(0.5));
        let expected = ShardLoad {
            shard: led.parse().unwrap(),
            messages_per_second: 10.0,
            bytes_per_second: 1500.0,
            producers: 2,
            consumers: 1,
            subscriptions: 1,
            backlog: 7,
            size_bytes: 7,
            log_end: 11,
        };
        assert_eq!(report.shards, vec![expected]);
        assert_eq!((report.reported_at_ms, report.incarnation), (5, 3));
        assert_eq!(report.cpu_percent, None, "unknown is not idle");
        assert_eq!(report.disk_used_percent, Some(50.0));

        meter.add(&idle, vec![counters(led, false, 20)], second);
        assert!(meter.report(6, 3, &connected, None).shards.is_empty());
        meter.add(&idle, vec![counters(led, true, 30)], second);
        let again = meter.report(7, 3, &BTreeMap::new(), None);
        assert_eq!(again.shards[0].messages_per_second, 0.0);
    }
}
