//! What was measured: figures with their bars, as a table or as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::machine::Machine;

/// What a figure should come to.
#[derive(Debug, Clone, Copy)]
pub enum Aim {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Aim {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }

    fn verdict(self, value: f64) -> String {
        let aim = match self {
            Self::AtLeast(least) => format!("at least {least}"),
            Self::AtMost(most) => format!("at most {most}"),
        };
        format!("{aim}: {}", if self.is_met(value) { "met" } else { "missed" })
    }

    fn json(self) -> Value {
        match self {
            Self::AtLeast(least) => json!({ "at_least": least }),
            Self::AtMost(most) => json!({ "at_most": most }),
        }
    }
}

#[derive(Debug)]
struct Figure {
    part: &'static str,
    name: String,
    value: f64,
    /// Of several runs, the least and the most.
    range: Option<(f64, f64)>,
    unit: &'static str,
    /// What it must come to.
    aim: Option<Aim>,
    /// What would be good.
    good: Option<Aim>,
}

/// The figures of a run, in the order they were measured.
#[derive(Debug, Default)]
pub struct Figures(Vec<Figure>);

impl Figures {
    /// Notes one.
    pub fn add(&mut self, part: &'static str, name: &str, value: f64, unit: &'static str) {
        let name = name.to_owned();
        self.0.push(Figure { part, name, value, range: None, unit, aim: None, good: None });
    }

    /// Notes the median of several runs, and between which two values they lay.
    pub fn median(&mut self, part: &'static str, name: &str, runs: &Sample, unit: &'static str) {
        self.add(part, name, runs.quantile(0.5), unit);
        if let Some(last) = self.0.last_mut() {
            last.range = Some((runs.quantile(0.0), runs.quantile(1.0)));
        }
    }

    /// Sets the aim of the figure added last.
    pub fn aim(&mut self, aim: Aim) {
        if let Some(last) = self.0.last_mut() {
            last.aim = Some(aim);
        }
    }

    /// Sets what the figure added last must come to, and what would be good.
    pub fn bars(&mut self, must: Aim, good: Aim) {
        if let Some(last) = self.0.last_mut() {
            (last.aim, last.good) = (Some(must), Some(good));
        }
    }

    /// Median, 99th percentile and maximum, in milliseconds; the aim is for the 99th percentile.
    pub fn spread(&mut self, part: &'static str, name: &str, sample: &Sample, aim: Option<Aim>) {
        self.add(part, &format!("{name}, p50"), sample.quantile(0.5), "ms");
        self.add(part, &format!("{name}, p99"), sample.quantile(0.99), "ms");
        if let Some(aim) = aim {
            self.aim(aim);
        }
        self.add(part, &format!("{name}, longest"), sample.quantile(1.0), "ms");
    }

    /// With where it ran.
    pub fn json(&self, machine: &Machine) -> Value {
        let figures: Vec<Value> = self.0.iter().map(Figure::json).collect();
        json!({ "machine": machine.json(), "figures": figures })
    }

    /// With where it ran.
    pub fn table(&self, machine: &Machine) -> String {
        format!("{machine}\n\n{}", self.rows())
    }

    /// The Markdown table alone.
    pub fn rows(&self) -> String {
        let mut text = "| bench | figure | value | unit | aim |\n".to_owned();
        text.push_str("| --- | --- | ---: | --- | --- |\n");
        for figure in &self.0 {
            let Figure { part, name, unit, .. } = figure;
            let (value, verdict) = (figure.shown(), figure.verdict());
            text.push_str(&format!("| {part} | {name} | {value} | {unit} | {verdict} |\n"));
        }
        text
    }
}

impl Figure {
    fn shown(&self) -> String {
        let value = rounded(self.value);
        match self.range {
            Some((least, most)) => format!("{value} ({} to {})", rounded(least), rounded(most)),
            None => value,
        }
    }

    fn verdict(&self) -> String {
        let must = self.aim.map(|aim| aim.verdict(self.value));
        let good = self.good.map(|aim| format!("good {}", aim.verdict(self.value)));
        must.into_iter().chain(good).collect::<Vec<_>>().join("; ")
    }

    fn json(&self) -> Value {
        json!({
            "bench": self.part, "figure": self.name, "value": self.value, "unit": self.unit,
            "range": self.range, "aim": self.aim.map(Aim::json),
            "met": self.aim.map(|aim| aim.is_met(self.value)),
            "good": self.good.map(Aim::json),
            "good_met": self.good.map(|aim| aim.is_met(self.value)),
        })
    }
}

fn rounded(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// Measurements of one thing; times are in milliseconds.
#[derive(Debug, Default, Clone)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Takes one.
    pub fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The value that a share of the measurements does not exceed (nearest rank); NaN if there
    /// are none.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl FromIterator<Duration> for Sample {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        times.into_iter().map(|t| t.as_secs_f64() * 1000.0).collect()
    }
}
