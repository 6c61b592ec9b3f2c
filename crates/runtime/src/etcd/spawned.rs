//! One etcd process started for this one, on free ports, its data thrown away at the end.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

use super::OpenError;

#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    url: String,
    directory: PathBuf,
}

impl Process {
    pub(super) async fn start(program: Option<&Path>) -> Result<Self, OpenError> {
        let program = program.unwrap_or(Path::new("etcd"));
        let failed =
            |detail: String| OpenError::Spawn { program: program.display().to_string(), detail };
        let io_failed = |e: std::io::Error| failed(e.to_string());
        let (client_port, peer_port) = free_ports().await.map_err(io_failed)?;
        let directory = std::env::temp_dir()
            .join(format!("evenkeel-etcd-{}-{client_port}", std::process::id()));
        std::fs::create_dir_all(&directory).map_err(io_failed)?;
        let log = std::fs::File::create(directory.join("log")).map_err(io_failed)?;
        let url = format!("http://127.0.0.1:{client_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let child = Command::new(program)
            .args(["--name", "evenkeel", "--logger", "zap"])
            .arg("--data-dir")
            .arg(directory.join("data"))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("evenkeel={peer_url}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // A Ctrl-C at the terminal is ours to handle: etcd must outlive the farewell.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .inspect_err(|_| drop(std::fs::remove_dir_all(&directory)))
            .map_err(|e| match e.kind() {
                std::io::ErrorKind::NotFound => failed(
                    "no such program: expected etcd in PATH, spawn:/path/to/etcd or embedded"
                        .to_owned(),
                ),
                _ => failed(e.to_string()),
            })?;
        tracing::warn!(url, "spawned etcd for this process; its data is thrown away at the end");
        Ok(Self { child, url, directory })
    }

    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    pub(super) async fn stop(mut self) {
        if let Err(error) = self.child.kill().await {
            tracing::warn!(%error, "cannot stop the spawned etcd");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Two ports that are free now; both are held until both are known.
async fn free_ports() -> std::io::Result<(u16, u16)> {
    let first = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let second = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    Ok((first.local_addr()?.port(), second.local_addr()?.port()))
}
