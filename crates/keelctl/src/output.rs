//! Data on stdout: tables for people, JSON and YAML for programs. Messages go to stderr.

use std::io::{BufWriter, ErrorKind, Write};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

use crate::Failure;

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// The same document as YAML.
    Yaml,
    /// Of `plan` only: what `kafka-reassign-partitions` takes.
    KafkaReassignment,
}

/// What a command other than `plan` says to that format.
pub(crate) const NOT_A_PLAN: &str =
    "-o kafka-reassignment is a form of plans: expected table, json or yaml here";

/// Writes `document` in the asked form; `table` makes the form for people.
pub fn emit(
    format: Format,
    document: &Value,
    table: impl FnOnce(&Value) -> String,
) -> Result<(), Failure> {
    emit_whole(format, document, || table(document))
}

/// Writes `document` in the asked form, piece by piece; `table` makes the form for people.
pub fn emit_whole(
    format: Format,
    document: &impl Serialize,
    table: impl FnOnce() -> String,
) -> Result<(), Failure> {
    match format {
        Format::Table => print_text(&table()),
        Format::Json => {
            stream(|out| serde_json::to_writer_pretty(out, document).map_err(Into::into))
        }
        Format::Yaml => {
            let text = serde_yaml_ng::to_string(document)
                .map_err(|e| Failure::Input(format!("cannot write the answer as YAML: {e}")))?;
            print_text(&text)
        }
        Format::KafkaReassignment => Err(Failure::Input(NOT_A_PLAN.to_owned())),
    }
}

/// As [`emit_whole`], JSON on one line: for documents that hold a whole snapshot.
pub fn emit_large(
    format: Format,
    document: &impl Serialize,
    table: impl FnOnce() -> String,
) -> Result<(), Failure> {
    match format {
        Format::Json => stream(|out| serde_json::to_writer(out, document).map_err(Into::into)),
        format => emit_whole(format, document, table),
    }
}

fn stream(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), Failure> {
    let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    written(write(&mut out).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()))
}

/// Writes text to stdout, with a line end unless it has one.
pub fn print_text(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    written(write!(out, "{text}{end}").and_then(|()| out.flush()))
}

/// The failure of a write to stdout, if it failed.
pub fn written(result: std::io::Result<()>) -> Result<(), Failure> {
    result.map_err(|e| match e.kind() {
        ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::Input(format!("cannot write to stdout: {e}")),
    })
}

/// A message for people, on stderr.
pub fn note(text: impl std::fmt::Display) {
    // Nobody is left to be told that stderr is gone.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Rows under a header, columns aligned, nothing drawn.
pub fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut lines = vec![header.map(str::to_uppercase)];
    lines.extend(rows);
    let width = |column: usize| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let aligned = lines.iter().map(|line| {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    aligned.collect::<Vec<_>>().join("\n")
}

/// One cell: text without quotes, nothing for null.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(n) if number.is_f64() => format!("{n:.2}"),
            _ => number.to_string(),
        },
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(","),
        Value::Object(map) => {
            map.iter().map(|(k, v)| format!("{k}={}", cell(v))).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

/// The named fields of each object in `rows` as cells.
pub fn cells<const N: usize>(rows: &Value, fields: [&str; N]) -> Vec<[String; N]> {
    let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().map(|row| fields.map(|field| cell(&row[field]))).collect()
}

/// Bytes for people.
pub fn bytes(count: f64) -> String {
    let mut value = count;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value.abs() < 1024.0 {
            return if unit == "B" {
                format!("{value:.0} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_are_aligned_and_bare() {
        let rows = cells(&json!([{"a": "x", "b": 1}, {"a": "long", "b": null}]), ["a", "b"]);
        assert_eq!(table(["a", "b"], rows), "A     B\nx     1\nlong  -");
    }

    #[test]
    fn quantities_are_readable() {
        assert_eq!((bytes(12.0), bytes(1536.0)), ("12 B".into(), "1.5 KiB".into()));
        assert_eq!(cell(&json!({"b1": 4, "b2": [1.5, "x"]})), "b1=4 b2=1.50,x");
    }
}
