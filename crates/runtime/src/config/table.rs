//! The documented table of a service's keys.

use std::fmt::Write as _;

use serde_json::Value;

use super::layers::leaves;
use super::{Settings, variable};

/// A Markdown table of every key: name, variable, default, unit, meaning, meaning of zero.
pub fn table<C: Settings>() -> String {
    let mut text = String::from(
        "| key | environment | default | unit | meaning | 0, empty or absent |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    let defaults = defaults::<C>();
    for key in C::KEYS {
        let default = defaults.iter().find(|(name, _)| name == key.name);
        let default = match default.map(|(_, value)| value) {
            None | Some(Value::Null) => "none".to_owned(),
            Some(Value::String(text)) if text.is_empty() => "empty".to_owned(),
            Some(Value::String(text)) => format!("`{text}`"),
            Some(other) => format!("`{other}`"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | `{}` | {default} | {} | {} | {} |",
            key.name,
            variable(key.name),
            key.unit,
            key.about,
            key.zero
        );
    }
    text
}

/// What is wrong with a table: keys without a row, rows without a key, cells left empty.
pub fn check_table<C: Settings>() -> Vec<String> {
    let defaults = defaults::<C>();
    let mut wrong = Vec::new();
    for (name, _) in &defaults {
        if !C::KEYS.iter().any(|key| key.name == name) {
            wrong.push(format!("{name} is not in the table"));
        }
    }
    for key in C::KEYS {
        if !defaults.iter().any(|(name, _)| name == key.name) {
            wrong.push(format!("{} is in the table and is no key", key.name));
        }
        if [key.unit, key.about, key.zero].iter().any(|cell| cell.is_empty()) {
            wrong.push(format!("{} has an empty cell", key.name));
        }
    }
    wrong
}

fn defaults<C: Settings>() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    if let Ok(value) = serde_json::to_value(C::default()) {
        leaves("", &value, &mut |path, leaf| found.push((path.to_owned(), leaf.clone())));
    }
    found
}
