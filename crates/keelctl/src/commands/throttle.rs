//! `keelctl throttle`: the copy throttle over a series of latencies.

use clap::Args;
use evenkeel_throttle::Plain;
use serde_json::{Value, json};

use crate::cli::Global;
use crate::failure::input;
use crate::output::{Format, cells, emit, print_text, table};
use crate::{Failure, input as files};

/// The node and its latencies.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The node's link.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    link_bytes_per_second: u64,
    /// The p99 that the node's requests shall keep, milliseconds.
    #[arg(long, value_name = "X", value_parser = parse_target)]
    target_ms: f64,
    /// A file with one p99 in milliseconds a line; `-` is stdin.
    #[arg(long, default_value = "-", value_name = "FILE")]
    samples: String,
}

fn parse_target(text: &str) -> Result<f64, String> {
    let target: f64 = text.parse().map_err(|e| format!("{e}: expected milliseconds"))?;
    if target.is_finite() && target > 0.0 {
        return Ok(target);
    }
    Err("expected a number of milliseconds above 0".to_owned())
}

/// Runs the law over the samples.
pub(crate) fn run(global: &Global, options: &Options) -> Result<(), Failure> {
    let mut law = Plain::new(options.target_ms).map_err(input)?;
    let lines = files::read_lines(&options.samples)?;
    let rows: Vec<Value> =
        lines.iter().map(|line| row(&mut law, options.link_bytes_per_second, line)).collect();
    if global.output == Format::Json {
        let text: Vec<String> = rows.iter().map(Value::to_string).collect();
        return print_text(&text.join("\n"));
    }
    emit(global.output, &Value::Array(rows), |d| {
        let fields = ["p99_ms", "share", "bytes_per_second"];
        table(fields, cells(d, fields))
    })
}

/// What the plain law makes of one line.
fn row(law: &mut Plain, link_bytes_per_second: u64, line: &str) -> Value {
    let sample = line.trim().parse::<f64>().ok().filter(|p| p.is_finite() && *p >= 0.0);
    law.observe(sample);
    let mut row = json!({
        "p99_ms": sample,
        "share": law.share(),
        "bytes_per_second": law.bytes_per_second(link_bytes_per_second),
    });
    if sample.is_none() {
        row["ignored"] = Value::Bool(true);
    }
    row
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rates(samples: &[&str]) -> Vec<u64> {
        let mut law = Plain::new(100.0).unwrap();
        let rate = |s: &&str| row(&mut law, 1_000_000_000, s)["bytes_per_second"].as_u64().unwrap();
        samples.iter().map(rate).collect()
    }

    #[test]
    fn a_sample_above_the_band_cuts_and_one_at_its_edge_does_not() {
        assert_eq!(rates(&["130"]), [140_000_000]);
        assert_eq!(rates(&["120.0"]), [200_000_000]);
        assert_eq!(rates(&["120.0001"]), [140_000_000]);
        assert_eq!(rates(&["100", "100", "100"]), [200_000_000; 3]);
        let cuts = [140_000_000, 97_999_999, 68_600_000, 50_000_000, 50_000_000, 50_000_000];
        assert_eq!(rates(&["130"; 6]), cuts);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_line_is_a_row_within_the_share(lines in prop::collection::vec(".*|[-0-9.eE+]*", 0..20)) {
            let mut law = Plain::new(100.0).unwrap();
            for line in lines {
                let row = row(&mut law, u64::MAX, &line);
                let share = row["share"].as_f64().unwrap();
                prop_assert!((0.05..=0.5).contains(&share));
                prop_assert_eq!(row["p99_ms"].is_null(), row.get("ignored").is_some());
            }
        }
    }

    #[test]
    fn what_is_no_latency_changes_nothing_and_is_marked() {
        let mut law = Plain::new(100.0).unwrap();
        for line in ["", "NaN", "inf", "-1", "fast", "1e400"] {
            let expected = json!({
                "p99_ms": null, "share": 0.2, "bytes_per_second": 200_000_000, "ignored": true
            });
            assert_eq!(row(&mut law, 1_000_000_000, line), expected, "{line}");
        }
    }
}
