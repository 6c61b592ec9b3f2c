//! Files and stdin, and the documents that are read from them.

use std::io::{BufRead, BufReader, Read};

use evenkeel_model::{Policy, Snapshot};
use serde_json::Value;

use crate::Failure;
use crate::failure::input;

/// What some editors write before UTF-8 text. It says nothing.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads a whole file; `-` is stdin.
pub(crate) fn read(file: &str) -> Result<Vec<u8>, Failure> {
    let mut content = Vec::new();
    let result = if file == "-" {
        std::io::stdin().lock().read_to_end(&mut content).map(drop)
    } else {
        std::fs::read(file).map(|read| content = read)
    };
    result.map_err(|e| unreadable(file, &e))?;
    if content.starts_with(BYTE_ORDER_MARK) {
        content.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(content)
}

/// A file as messages name it.
pub(crate) fn name(file: &str) -> &str {
    if file == "-" { "stdin" } else { file }
}

/// Reads a whole file as lines of UTF-8 text.
pub(crate) fn read_lines(file: &str) -> Result<Vec<String>, Failure> {
    let content = String::from_utf8(read(file)?)
        .map_err(|e| Failure::Input(format!("{}: not UTF-8 text: {e}", name(file))))?;
    Ok(content.lines().map(str::to_owned).collect())
}

/// Reads a snapshot file, without holding its text.
pub(crate) fn snapshot(file: &str) -> Result<Snapshot, Failure> {
    if file == "-" {
        return snapshot_of(file, std::io::stdin().lock());
    }
    snapshot_of(file, std::fs::File::open(file).map_err(|e| unreadable(file, &e))?)
}

fn snapshot_of(file: &str, content: impl Read) -> Result<Snapshot, Failure> {
    let mut content = BufReader::new(content);
    let start = content.fill_buf().map_err(|e| unreadable(file, &e))?;
    if start.starts_with(BYTE_ORDER_MARK) {
        content.consume(BYTE_ORDER_MARK.len());
    }
    Snapshot::read(content).map_err(|e| input(format!("{}: {e}", name(file))))
}

fn unreadable(file: &str, error: &std::io::Error) -> Failure {
    Failure::Input(format!("cannot read {}: {error}", name(file)))
}

/// Reads a JSON file.
pub(crate) fn json(file: &str) -> Result<Value, Failure> {
    let content = read(file)?;
    serde_json::from_slice(&content).map_err(|e| input(format!("{}: {e}", name(file))))
}

/// Lays a policy file over a policy.
pub(crate) fn policy_over(base: &Policy, file: &str) -> Result<Policy, Failure> {
    base.merged(&json(file)?).map_err(|e| input(format!("{}: {e}", name(file))))
}
