//! The scenario language: a cluster in a few lines of text, commands, and what they must print.
//!
//! A file is blocks separated by blank lines. A block is commands, then `----`, then the output of
//! those commands; a block without `----` prints nothing. `UPDATE_GOLDEN=1` rewrites the outputs.

mod build;
mod run;

use std::fmt::Write as _;
use std::path::Path;

/// One block of a file.
struct Block {
    /// Comment lines and commands, as they stand.
    lines: Vec<String>,
    expected: Option<Vec<String>>,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    for part in text.split("\n\n") {
        let lines: Vec<String> = part.lines().map(str::to_owned).collect();
        if lines.iter().all(|l| l.trim().is_empty()) {
            continue;
        }
        let cut = lines.iter().position(|l| l == "----");
        let (lines, expected) = match cut {
            None => (lines, None),
            Some(at) => (lines[..at].to_vec(), Some(lines[at + 1..].to_vec())),
        };
        blocks.push(Block { lines, expected });
    }
    blocks
}

/// Runs one file; returns it with the outputs that the commands really print.
fn replay(text: &str) -> Result<String, String> {
    let mut scenario = run::Scenario::default();
    let mut out = String::new();
    for (at, block) in blocks(text).into_iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        let mut printed = String::new();
        for line in &block.lines {
            writeln!(out, "{line}").unwrap();
            let command = line.split('#').next().unwrap_or_default().trim();
            if !command.is_empty() {
                printed += &scenario.run(command).map_err(|e| format!("'{line}': {e}"))?;
            }
        }
        if block.expected.is_some() || !printed.is_empty() {
            writeln!(out, "----").unwrap();
            out.push_str(&printed);
        }
    }
    Ok(out)
}

/// Replays `path` and compares, or rewrites it.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let replayed = replay(&text).map_err(|e| format!("{name}: {e}"))?;
    if replayed.trim_end() == text.trim_end() {
        return Ok(());
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return std::fs::write(path, replayed).map_err(|e| e.to_string());
    }
    let mut difference = format!("{name} differs (- expected, + printed):\n");
    let (old, new): (Vec<&str>, Vec<&str>) = (text.lines().collect(), replayed.lines().collect());
    for line in old.iter().filter(|l| !new.contains(l)) {
        writeln!(difference, "  - {line}").unwrap();
    }
    for line in new.iter().filter(|l| !old.contains(l)) {
        writeln!(difference, "  + {line}").unwrap();
    }
    Err(difference)
}
