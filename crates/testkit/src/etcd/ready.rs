//! Asking a member whether it serves.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ATTEMPT: Duration = Duration::from_secs(1);

/// Whether the member answers a linearizable read, by its health page on a plain HTTP port.
pub(super) async fn is_healthy(port: u16) -> bool {
    tokio::time::timeout(ATTEMPT, ask(port)).await.ok().flatten().is_some_and(|answer| {
        answer.starts_with("HTTP/1.") && answer.contains(r#""health":"true""#)
    })
}

async fn ask(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = "GET /health HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}
