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
    parse(&files::read(file)?).map_err(|e| input(format!("{}: {e}", files::name(file))))
}

/// Reads and checks a list of members; an error names the field by its path.
fn parse(json: &[u8]) -> Result<Vec<Member>, String> {
    let members: Vec<Member> = crate::json::parse(json)?;
    check_members(&members).map_err(|e| e.to_string())?;
    Ok(members)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MEMBERS: &str = r#"[{"id":"m1","weight":16,"live":true},{"id":"m2","weight":0.5},
        {"id":"m3","live":false,"weight":null}]"#;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn damaged_members_are_refused_with_a_place_or_rank_any_key(
            flips in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
            key in ".*",
            top in prop::option::of(any::<usize>()),
        ) {
            let mut bytes = MEMBERS.as_bytes().to_vec();
            for (at, byte) in flips {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            match parse(&bytes) {
                Err(error) => prop_assert!(error.contains(' '), "{error}"),
                Ok(members) => {
                    let ranked = owners(&members, &key, top);
                    prop_assert_eq!(ranked.ranking.len(), members.len().min(top.unwrap_or(usize::MAX)));
                }
            }
        }
    }
}
