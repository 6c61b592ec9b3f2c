//! Files and stdin, and the documents that are read from them.

use std::io::Read;

use evenkeel_model::{Policy, Snapshot};
use serde_json::Value;

use crate::Failure;
use crate::failure::input;

/// Reads a whole file; `-` is stdin.
pub(crate) fn read(file: &str) -> Result<Vec<u8>, Failure> {
    let mut content = Vec::new();
    let result = if file == "-" {
        std::io::stdin().lock().read_to_end(&mut content).map(drop)
    } else {
        std::fs::read(file).map(|read| content = read)
    };
    result.map_err(|e| Failure::Input(format!("cannot read {}: {e}", name(file))))?;
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
    let read = if file == "-" {
        Snapshot::read(std::io::stdin().lock())
    } else {
        let content = std::fs::File::open(file)
            .map_err(|e| Failure::Input(format!("cannot read {file}: {e}")))?;
        Snapshot::read(content)
    };
    read.map_err(|e| input(format!("{}: {e}", name(file))))
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
