//! keelctl as a program: arguments and stdin in, stdout, stderr and exit code out.
#![allow(dead_code, clippy::unwrap_used, reason = "no test uses all of it; a test may panic")]

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{}", self.stdout);
        serde_json::from_str(&self.stdout).unwrap()
    }
}

pub(crate) fn keelctl(arguments: &[&str], stdin: &str) -> Answer {
    let mut child = Command::new(env!("CARGO_BIN_EXE_keelctl"))
        .args(arguments)
        .env_remove("EVENKEEL_ADMIN")
        .env_remove("EVENKEEL_BROKERS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that reads no stdin may be gone already.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    Answer {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Fails with exit code 2, nothing on stdout and one line on stderr that begins so.
pub(crate) fn refused(arguments: &[&str], stdin: &str, line: &str) {
    let answer = keelctl(arguments, stdin);
    assert_eq!((answer.code, answer.stdout.as_str()), (2, ""), "{}", answer.stderr);
    assert!(answer.stderr.starts_with(line), "{}", answer.stderr);
    assert_eq!(answer.stderr.lines().count(), 1, "{}", answer.stderr);
}
