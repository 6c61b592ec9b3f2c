//! Logs: one line per event on stderr, as text or JSON.

use std::fmt;
use std::io::IsTerminal;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("'{other}' is not a log format: expected text or json")),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Starts logging. `filter` is the value of `EVENKEEL_LOG`, such as `info,evenkeel_planner=debug`;
/// without one `info`, quieter for the libraries below. A second call changes nothing.
pub fn init(format: LogFormat, filter: Option<&str>) -> Result<(), String> {
    let directives = filter.unwrap_or("info,h2=warn,hyper=warn,tonic=warn,tower=warn");
    let filter = EnvFilter::try_new(directives).map_err(|e| {
        format!(
            "environment EVENKEEL_LOG: '{directives}' is not a log filter ({e}): expected levels \
             such as info or info,evenkeel_planner=debug"
        )
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging was already started");
    }
    Ok(())
}
