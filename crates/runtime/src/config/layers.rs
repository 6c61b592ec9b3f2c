//! Merging one layer after another into one document, remembering where each value came from.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use super::{ConfigError, Settings, one_line};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    File(String),
    Environment(String),
    Flag,
    Set,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "config file {path}"),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::Flag => f.write_str("flags"),
            Self::Set => f.write_str("flag --set"),
        }
    }
}

/// The merged document.
#[derive(Debug, Clone)]
pub(super) struct Layers {
    document: Value,
    defaults: Value,
    origins: BTreeMap<String, Origin>,
}

impl Layers {
    pub(super) fn new(defaults: Value) -> Self {
        Self { document: defaults.clone(), defaults, origins: BTreeMap::new() }
    }

    /// Every key: the leaves of the defaults.
    pub(super) fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        leaves("", &self.defaults, &mut |path, _| keys.push(path.to_owned()));
        keys
    }

    /// Lays a document over what is there; nulls of flags say nothing.
    pub(super) fn merge<C: Settings>(
        &mut self,
        layer: Value,
        origin: &Origin,
    ) -> Result<(), ConfigError> {
        match layer {
            Value::Null => Ok(()),
            Value::Object(map) => {
                self.merge_object(C::SERVICE, "", map, origin)?;
                self.read::<C>().map(|_| ())
            }
            other => Err(ConfigError(format!(
                "{origin}: '{}' is not valid: expected a mapping of keys to values",
                one_line(&other.to_string())
            ))),
        }
    }

    fn merge_object(
        &mut self,
        service: &str,
        prefix: &str,
        map: Map<String, Value>,
        origin: &Origin,
    ) -> Result<(), ConfigError> {
        for (name, value) in map {
            let path = join(prefix, &name);
            let Some(known) = pointer(&self.defaults, &path) else {
                return Err(unknown_key(service, &path, prefix, &self.defaults, origin));
            };
            let is_section = known.as_object().is_some_and(|fields| !fields.is_empty());
            match value {
                Value::Null if *origin == Origin::Flag => {}
                Value::Object(inner) if is_section => {
                    self.merge_object(service, &path, inner, origin)?;
                }
                Value::Null if is_section => {}
                value if is_section => {
                    return Err(ConfigError(format!(
                        "{origin}: {path}: '{}' is not valid: expected a mapping of keys to values",
                        one_line(&value.to_string())
                    )));
                }
                value => self.put(&path, value, origin),
            }
        }
        Ok(())
    }

    /// Sets one key from text. Text is ambiguous (`7` may be a number or a name), so the readings
    /// are tried in order and the first that fits the key's type is taken.
    pub(super) fn set_text<C: Settings>(
        &mut self,
        key: &str,
        text: &str,
        origin: &Origin,
    ) -> Result<(), ConfigError> {
        let Some(default) = pointer(&self.defaults, key).filter(|v| !is_filled_object(v)) else {
            return Err(unknown_key(C::SERVICE, key, "", &self.defaults, origin));
        };
        let readings = readings(default, text);
        let mut first_error = None;
        for value in readings {
            let mut attempt = self.clone();
            attempt.put(key, value, origin);
            match attempt.read::<C>() {
                Ok(_) => {
                    *self = attempt;
                    return Ok(());
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.unwrap_or_else(|| ConfigError(format!("{origin}: {key}: no value"))))
    }

    fn put(&mut self, path: &str, value: Value, origin: &Origin) {
        let mut at = &mut self.document;
        for name in path.split('.') {
            let Value::Object(map) = at else { return };
            at = map.entry(name).or_insert(Value::Null);
        }
        *at = value;
        self.origins.insert(path.to_owned(), origin.clone());
    }

    /// Reads the document as it stands.
    pub(super) fn read<C: Settings>(&self) -> Result<C, ConfigError> {
        serde_path_to_error::deserialize(&self.document).map_err(|error| {
            let path = error.path().to_string();
            let found = pointer(&self.document, &path).map_or_else(
                || "nothing".to_owned(),
                |value| match value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                },
            );
            ConfigError(format!(
                "{}: '{}' is not valid: {}",
                self.describe(&path),
                one_line(&found),
                one_line(&error.inner().to_string())
            ))
        })
    }

    /// `origin: key`, or the origin of the nearest key above or below.
    pub(super) fn describe(&self, path: &str) -> String {
        match self.origin(path) {
            Origin::Flag => format!("flag --{}", path.replace(['_', '.'], "-")),
            origin => format!("{origin}: {path}"),
        }
    }

    fn origin(&self, path: &str) -> &Origin {
        let mut at = path;
        loop {
            if let Some(origin) = self.origins.get(at) {
                return origin;
            }
            // Elements of lists are named `key[0]`.
            match at.rfind(['.', '[']) {
                Some(end) => at = &at[..end],
                None => return &Origin::Default,
            }
        }
    }

    pub(super) fn print(&self) -> String {
        let mut text = String::new();
        self.print_object(&self.document, "", 0, &mut text);
        text
    }

    fn print_object(&self, value: &Value, prefix: &str, depth: usize, text: &mut String) {
        let Value::Object(map) = value else { return };
        for (name, value) in map {
            let path = join(prefix, name);
            let indent = "  ".repeat(depth);
            if is_filled_object(value) {
                text.push_str(&format!("{indent}{name}:\n"));
                self.print_object(value, &path, depth + 1, text);
            } else {
                // JSON is YAML, and stays on one line.
                text.push_str(&format!("{indent}{name}: {value} # {}\n", self.origin(&path)));
            }
        }
    }
}

fn readings(default: &Value, text: &str) -> Vec<Value> {
    let string = Value::String(text.to_owned());
    if default.is_string() {
        return vec![string];
    }
    let parsed = serde_yaml_ng::from_str::<Value>(text).ok();
    if default.is_array() {
        return match parsed {
            Some(list @ Value::Array(_)) => vec![list],
            _ => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                vec![Value::Array(items.map(|item| Value::String(item.to_owned())).collect())]
            }
        };
    }
    // The error of the first reading is reported, and it should be the one of the parsed value.
    parsed.into_iter().chain([string]).collect()
}

fn unknown_key(
    service: &str,
    path: &str,
    prefix: &str,
    defaults: &Value,
    origin: &Origin,
) -> ConfigError {
    let siblings = if prefix.is_empty() { Some(defaults) } else { pointer(defaults, prefix) };
    let names: Vec<&str> = siblings
        .and_then(Value::as_object)
        .map(|map| map.keys().map(String::as_str).collect())
        .unwrap_or_default();
    let last = path.rsplit('.').next().unwrap_or(path);
    let expected = match names.iter().find(|name| is_close(name, last)) {
        Some(close) => format!("did you mean '{}'?", join(prefix, close)),
        None => format!("expected one of {}", names.join(", ")),
    };
    ConfigError(format!("{origin}: unknown key '{path}' of {service}: {expected}"))
}

/// At most two letters apart.
fn is_close(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()] <= 2
}

fn is_filled_object(value: &Value) -> bool {
    value.as_object().is_some_and(|map| !map.is_empty())
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

fn pointer<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |at, name| at.get(name))
}

/// Visits the leaves; an empty object is one, a map that users fill.
pub(super) fn leaves(prefix: &str, value: &Value, visit: &mut dyn FnMut(&str, &Value)) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, inner) in map {
                leaves(&join(prefix, name), inner, visit);
            }
        }
        leaf => visit(prefix, leaf),
    }
}
