//! A process's metrics, read as a monitoring system would.

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Cluster;

/// One exposition of a process's metrics.
#[derive(Debug, Default, Clone)]
pub struct Meters(String);

impl Meters {
    /// Reads them now.
    pub async fn read(cluster: &Cluster, process: &str) -> anyhow::Result<Self> {
        let address = cluster.metrics_address(process)?;
        let read = async {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            Ok::<_, std::io::Error>(text)
        };
        let text = read.await.with_context(|| format!("metrics of {process} at {address}"))?;
        Ok(Self(text))
    }

    /// Sum of a metric over the series whose labels contain `label`; all of them if it is empty.
    pub fn sum(&self, metric: &str, label: &str) -> f64 {
        let series = self.0.lines().filter(|line| {
            let rest = line.strip_prefix(metric);
            rest.is_some_and(|r| r.starts_with(['{', ' '])) && line.contains(label)
        });
        series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}
