//! `keelctl owners`: computed owners of keys over a list of members.

use clap::Args;
use evenkeel_planner::{Member, Owners, check_members, owners};
use serde_json::json;

use crate::cli::Global;
use crate::failure::input;
use crate::output::{cells, emit, table};
use crate::{Failure, input as files};

/// Whose keys.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A JSON file: `[{"id": "m1", "weight": 16, "live": true}, ...]`.
    #[arg(long, value_name = "FILE")]
    members: String,
    /// A file with one key a line; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    keys: String,
    /// Only the first N of each ranking.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
}

/// Ranks every member for every key.
pub(crate) fn run(global: &Global, options: &Options) -> Result<(), Failure> {
    if options.members == "-" && options.keys == "-" {
        return Err(Failure::Input("--members and --keys cannot both be stdin".to_owned()));
    }
    let members = members(&options.members)?;
    let keys = files::read_lines(&options.keys)?;
    let keys = keys.iter().filter(|key| !key.is_empty());
    let rows: Vec<Owners> = keys.map(|key| owners(&members, key, options.top)).collect();
    emit(global.output, &json!(rows), |d| {
        let fields = ["key", "owner", "ranking"];
        table(fields, cells(d, fields))
    })
}

fn members(file: &str) -> Result<Vec<Member>, Failure> {
    let content = files::read(file)?;
    let mut reader = serde_json::Deserializer::from_slice(&content);
    let members: Vec<Member> = serde_path_to_error::deserialize(&mut reader)
        .map_err(|e| input(format!("{}: {}: {}", files::name(file), e.path(), e.inner())))?;
    reader.end().map_err(|e| input(format!("{}: {e}", files::name(file))))?;
    check_members(&members).map_err(|e| input(format!("{}: {e}", files::name(file))))?;
    Ok(members)
}
