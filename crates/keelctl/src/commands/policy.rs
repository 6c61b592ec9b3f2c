//! `keelctl policy`: get, set.

use clap::Subcommand;
use evenkeel_model::Policy;
use evenkeel_proto::admin::{GetPolicyRequest, SetPolicyRequest};
use serde_json::{Map, Value};

use crate::Failure;
use crate::admin::Admin;
use crate::cli::Global;
use crate::failure::input;
use crate::output::{cell, emit, table};

/// What to do with the policy.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// The policy that holds now.
    Get,
    /// Change settings; the others stay as they are.
    Set {
        /// Settings as name=value, such as `settle_ms=0` or `rebalancing.enabled=true`.
        #[arg(required_unless_present = "file", value_name = "NAME=VALUE")]
        settings: Vec<String>,
        /// A JSON file of settings; `-` is stdin.
        #[arg(long, conflicts_with = "settings")]
        file: Option<String>,
    },
}

/// Runs the verb.
pub(crate) async fn run(global: &Global, verb: Verb) -> Result<(), Failure> {
    let admin = global.admin()?;
    let document = match verb {
        Verb::Get => {
            admin
                .document("show the policy", |mut c| async move {
                    c.get_policy(GetPolicyRequest {}).await
                })
                .await?
        }
        Verb::Set { settings, file } => {
            let patch = match file {
                Some(file) => crate::input::json(&file)?,
                None => patch_of(&settings)?,
            };
            // Faults are found here with their names, before anything is sent.
            Policy::default().merged(&patch).map_err(input)?;
            set(&admin, &patch).await?
        }
    };
    emit(global.output, &document, |d| {
        let mut rows = Vec::new();
        flatten(d, "", &mut rows);
        table(["setting", "value"], rows)
    })
}

/// Lays `patch` over the policy.
pub(crate) async fn set(admin: &Admin, patch: &Value) -> Result<Value, Failure> {
    let request = SetPolicyRequest { json: patch.to_string() };
    admin
        .document("change the policy", |mut c| {
            let request = request.clone();
            async move { c.set_policy(request).await }
        })
        .await
}

/// `a.b=1` as `{"a": {"b": 1}}`; what is no JSON is text.
fn patch_of(settings: &[String]) -> Result<Value, Failure> {
    let mut patch = Map::new();
    for setting in settings {
        let Some((name, value)) = setting.split_once('=') else {
            return Err(Failure::Input(format!(
                "setting '{setting}' is not valid: expected name=value"
            )));
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        let mut into = &mut patch;
        let (path, last) = name.rsplit_once('.').map_or(("", name), |(path, last)| (path, last));
        for part in path.split('.').filter(|p| !p.is_empty()) {
            let inner = into.entry(part).or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(inner) = inner else {
                return Err(Failure::Input(format!("setting '{name}' is given twice")));
            };
            into = inner;
        }
        if into.insert(last.to_owned(), value).is_some() {
            return Err(Failure::Input(format!("setting '{name}' is given twice")));
        }
    }
    Ok(Value::Object(patch))
}

fn flatten(value: &Value, path: &str, rows: &mut Vec<[String; 2]>) {
    let Value::Object(map) = value else {
        return rows.push([path.to_owned(), cell(value)]);
    };
    for (key, value) in map {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        flatten(value, &path, rows);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_become_a_patch() {
        let settings = ["settle_ms=0", "rebalancing.enabled=true", "assignment_strategy=fair"];
        let patch = patch_of(&settings.map(str::to_owned));
        let expected = json!({
            "settle_ms": 0, "rebalancing": { "enabled": true }, "assignment_strategy": "fair"
        });
        assert_eq!(patch, Ok(expected));
        for (bad, text) in [
            (vec!["settle_ms"], "setting 'settle_ms' is not valid: expected name=value"),
            (vec!["a=1", "a.b=1"], "setting 'a.b' is given twice"),
            (vec!["a=1", "a=2"], "setting 'a' is given twice"),
        ] {
            let bad: Vec<String> = bad.into_iter().map(str::to_owned).collect();
            assert_eq!(patch_of(&bad), Err(Failure::Input(text.to_owned())));
        }
    }
}
