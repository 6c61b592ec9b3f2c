//! What was measured: figures with their aims, as a table or as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::machine::Machine;

/// What a figure should come to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Aim {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Debug)]
struct Figure {
    part: &'static str,
    name: String,
    value: f64,
    unit: &'static str,
    aim: Option<Aim>,
}

/// The figures of a run, in the order they were measured.
#[derive(Debug, Default)]
pub(crate) struct Figures(Vec<Figure>);

impl Figures {
    pub(crate) fn add(&mut self, part: &'static str, name: &str, value: f64, unit: &'static str) {
        self.0.push(Figure { part, name: name.to_owned(), value, unit, aim: None });
    }

    /// Sets the aim of the figure added last.
    pub(crate) fn aim(&mut self, aim: Aim) {
        if let Some(last) = self.0.last_mut() {
            last.aim = Some(aim);
        }
    }

    /// Median, 99th percentile and maximum, in milliseconds; the aim is for the 99th percentile.
    pub(crate) fn spread(
        &mut self,
        part: &'static str,
        name: &str,
        sample: &Sample,
        aim: Option<Aim>,
    ) {
        self.add(part, &format!("{name}, p50"), sample.quantile(0.5), "ms");
        self.add(part, &format!("{name}, p99"), sample.quantile(0.99), "ms");
        if let Some(aim) = aim {
            self.aim(aim);
        }
        self.add(part, &format!("{name}, longest"), sample.quantile(1.0), "ms");
    }

    pub(crate) fn json(&self, machine: &Machine) -> Value {
        let figures: Vec<Value> = self.0.iter().map(Figure::json).collect();
        json!({ "machine": machine.json(), "figures": figures })
    }

    pub(crate) fn table(&self, machine: &Machine) -> String {
        let mut text = format!("{machine}\n\n| bench | figure | value | unit | aim |\n");
        text.push_str("| --- | --- | ---: | --- | --- |\n");
        for figure in &self.0 {
            let Figure { part, name, unit, .. } = figure;
            let value = rounded(figure.value);
            text.push_str(&format!(
                "| {part} | {name} | {value} | {unit} | {} |\n",
                figure.verdict()
            ));
        }
        text
    }
}

impl Figure {
    fn met(&self) -> Option<bool> {
        self.aim.map(|aim| match aim {
            Aim::AtLeast(least) => self.value >= least,
            Aim::AtMost(most) => self.value <= most,
        })
    }

    fn verdict(&self) -> String {
        let Some(aim) = self.aim else { return String::new() };
        let aim = match aim {
            Aim::AtLeast(least) => format!("at least {least}"),
            Aim::AtMost(most) => format!("at most {most}"),
        };
        let met = if self.met() == Some(true) { "met" } else { "missed" };
        format!("{aim}: {met}")
    }

    fn json(&self) -> Value {
        let aim = self.aim.map(|aim| match aim {
            Aim::AtLeast(least) => json!({ "at_least": least }),
            Aim::AtMost(most) => json!({ "at_most": most }),
        });
        json!({
            "bench": self.part, "figure": self.name, "value": self.value, "unit": self.unit,
            "aim": aim, "met": self.met(),
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

/// Measurements of one thing, in milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn add(&mut self, ms: f64) {
        self.0.push(ms);
    }

    /// The value that a share of the measurements does not exceed (nearest rank); NaN if there
    /// are none.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<Duration> for Sample {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        Self(times.into_iter().map(|t| t.as_secs_f64() * 1000.0).collect())
    }
}
