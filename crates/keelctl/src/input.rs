//! Files and stdin, and the documents that are read from them.

use std::io::{BufRead, BufReader, Read};

use evenkeel_model::{Policy, Snapshot};
use serde_json::Value;

use crate::Failure;
use crate::failure::input;

/// What some editors write before UTF-8 text. It says nothing.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Files that are held whole: a source without an end must not take all memory. Snapshots are read
/// piece by piece and may be larger.
const MAX_BYTES: u64 = 256 << 20;

/// Reads a whole file; `-` is stdin.
pub(crate) fn read(file: &str) -> Result<Vec<u8>, Failure> {
    let content = if file == "-" {
        up_to_the_limit(std::io::stdin().lock())
    } else {
        std::fs::File::open(file).and_then(up_to_the_limit)
    };
    let mut content = content.map_err(|e| unreadable(file, &e))?;
    if content.len() as u64 > MAX_BYTES {
        let name = name(file);
        return Err(Failure::Input(format!("{name}: expected at most {MAX_BYTES} bytes")));
    }
    if content.starts_with(BYTE_ORDER_MARK) {
        content.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(content)
}

/// One byte more tells that there is more.
fn up_to_the_limit(from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    from.take(MAX_BYTES + 1).read_to_end(&mut content)?;
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
