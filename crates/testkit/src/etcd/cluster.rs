//! Several members that form one cluster.

use std::io;

use super::binary::EtcdVersion;
use super::ports::Ports;
use super::process::{Etcd, EtcdOptions};

/// A cluster of etcd members on this machine.
#[derive(Debug)]
pub struct EtcdCluster {
    /// The members; kill, stop and restart them one by one.
    pub members: Vec<Etcd>,
}

impl EtcdCluster {
    /// Starts `size` members of the given version and waits until all serve.
    pub async fn start(version: EtcdVersion, size: usize) -> io::Result<Self> {
        Self::start_with(&EtcdOptions::of(version)?, size).await
    }

    /// Starts `size` members with extra flags and waits until all serve.
    pub async fn start_with(options: &EtcdOptions, size: usize) -> io::Result<Self> {
        let ports = (0..size).map(|_| Ports::choose()).collect::<io::Result<Vec<_>>>()?;
        let peers: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(at, ports)| format!("m{at}=http://127.0.0.1:{}", ports.peer))
            .collect();
        let peers = peers.join(",");
        let mut members = Vec::with_capacity(size);
        for (at, ports) in ports.into_iter().enumerate() {
            let mut member = Etcd::member(&format!("m{at}"), options, ports, peers.clone())?;
            member.spawn()?;
            members.push(member);
        }
        for member in &mut members {
            member.ready().await?;
        }
        Ok(Self { members })
    }

    /// The members' client URLs, in member order.
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(Etcd::url).collect()
    }
}
