//! An axis: where a value lies, and which values are named.

/// See the module.
pub(super) struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
    /// Named values.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Seconds from 0.
    pub(super) fn time(end_s: f64, from: f64, to: f64) -> Self {
        let steps = [10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0];
        let step = steps.into_iter().find(|step| end_s / step <= 12.0).unwrap_or(14_400.0);
        let name = |at: f64| {
            if end_s <= 300.0 { format!("{at:.0} s") } else { format!("{} min", at / 60.0) }
        };
        let ticks = evenly(step, end_s).map(|at| (at, name(at))).collect();
        Self { low: 0.0, high: end_s, from, to, logarithmic: false, ticks }
    }

    /// Milliseconds, by decades.
    pub(super) fn latency(least: f64, most: f64, from: f64, to: f64) -> Self {
        let decade = |value: f64| value.max(1e-3).log10();
        let (low, high) = (decade(least.min(most)).floor(), decade(most).ceil());
        let high = high.max(low + 1.0);
        let ticks = (low as i32..=high as i32)
            .map(|power| {
                let ms = 10_f64.powi(power);
                (ms, if ms >= 1000.0 { format!("{} s", ms / 1000.0) } else { format!("{ms} ms") })
            })
            .collect();
        Self { low, high, from, to, logarithmic: true, ticks }
    }

    /// Bytes per second from 0.
    pub(super) fn rate(most: f64, from: f64, to: f64) -> Self {
        let units = [(1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")];
        let (unit, name) =
            units.into_iter().find(|(unit, _)| most >= *unit).unwrap_or((1.0, "B/s"));
        Self::linear(most, from, to, |at| format!("{} {name}", (at / unit * 1e3).round() / 1e3))
    }

    /// A number from 0.
    pub(super) fn count(most: f64, from: f64, to: f64) -> Self {
        Self::linear(most, from, to, |at| format!("{at:.0}"))
    }

    fn linear(most: f64, from: f64, to: f64, name: impl Fn(f64) -> String) -> Self {
        let most = most.max(1.0);
        let power = 10_f64.powf((most / 4.0).log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|n| n * power);
        let step = steps.into_iter().find(|step| most / step <= 4.5).unwrap_or(power * 10.0);
        let high = (most / step).ceil() * step;
        let ticks = evenly(step, high).map(|at| (at, name(at))).collect();
        Self { low: 0.0, high, from, to, logarithmic: false, ticks }
    }

    /// Where a value lies; what is off the axis lies at its end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(1e-3).log10() } else { value };
        let part = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + part * (self.to - self.from)
    }
}

fn evenly(step: f64, end: f64) -> impl Iterator<Item = f64> {
    (0..=(end / step + 1e-9) as u32).map(move |n| f64::from(n) * step)
}
