//! A wire that turns one bit of a record's payload on its way from server to client.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// A run of equal bytes this long is payload: neither HTTP/2 nor a record's head looks like it.
const RUN: usize = 256;

#[derive(Debug)]
struct Aim {
    /// Bytes that pass before it strikes.
    after: u64,
    passed: AtomicU64,
    struck: AtomicBool,
}

/// Forwards connections; strikes once. Dropping it ends all.
#[derive(Debug)]
pub(crate) struct Flipper {
    address: SocketAddr,
    aim: Arc<Aim>,
    acceptor: AbortHandle,
}

impl Flipper {
    /// In front of `target`; strikes after so many bytes.
    pub(crate) async fn start(target: &str, after: u64) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (passed, struck) = (AtomicU64::new(0), AtomicBool::new(false));
        let aim = Arc::new(Aim { after, passed, struck });
        let acceptor = tokio::spawn(accept(listener, target.to_owned(), aim.clone()));
        Ok(Self { address, aim, acceptor: acceptor.abort_handle() })
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Whether a bit was turned.
    pub(crate) fn has_struck(&self) -> bool {
        self.aim.struck.load(Ordering::Relaxed)
    }

    /// Bytes that passed from server to client.
    pub(crate) fn passed(&self) -> u64 {
        self.aim.passed.load(Ordering::Relaxed)
    }
}

impl Drop for Flipper {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

async fn accept(listener: TcpListener, target: String, aim: Arc<Aim>) {
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(&target).await else { continue };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::spawn(forward(from_client, to_server, None));
        tokio::spawn(forward(from_server, to_client, Some(aim.clone())));
    }
}

/// Until either end closes, which the other one then sees.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, aim: Option<Arc<Aim>>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let bytes = &mut buffer[..read];
        if let Some(aim) = &aim {
            aim.strike(bytes);
        }
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
}

impl Aim {
    fn strike(&self, bytes: &mut [u8]) {
        let passed = self.passed.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if passed < self.after || self.struck.load(Ordering::Relaxed) {
            return;
        }
        let payload = bytes.windows(RUN).position(|run| run.iter().all(|byte| *byte == run[0]));
        if let Some(start) = payload {
            let bit = (self.after % 8) as u32;
            bytes[start + RUN / 2] ^= 1 << bit;
            self.struck.store(true, Ordering::Relaxed);
        }
    }
}
