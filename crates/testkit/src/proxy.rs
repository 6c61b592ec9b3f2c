//! A TCP proxy inside the test process, with the faults of a network.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// Chunks in flight in one direction while they are delayed; then the sender feels it.
const IN_FLIGHT: usize = 256;

const CHUNK: usize = 16 * 1024;

#[derive(Clone, Copy, Debug)]
struct Weather {
    cut: bool,
    delay: Duration,
    /// Raised by every reset: a connection ends when it is no longer what it was at its start.
    resets: u64,
}

/// Forwards connections to one target until told otherwise. Dropping it closes all.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    acceptor: AbortHandle,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and forwards to `target` (`host:port`).
    pub async fn start(target: impl Into<Arc<str>>) -> io::Result<Self> {
        let target = target.into();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let calm = Weather { cut: false, delay: Duration::ZERO, resets: 0 };
        let (weather, seen) = watch::channel(calm);
        let acceptor = tokio::spawn(accept(listener, target, seen)).abort_handle();
        Ok(Self { address, weather, acceptor })
    }

    /// Where to connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where to connect, as an `http://` URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on nothing passes in either direction, not even a close; connections stay open
    /// and new ones are accepted but get no answer. Nothing is lost: it passes after a heal.
    pub fn cut(&self) {
        self.weather.send_modify(|weather| weather.cut = true);
    }

    /// Ends every open connection with a TCP reset, on both sides. New ones work.
    pub fn reset(&self) {
        self.weather.send_modify(|weather| weather.resets += 1);
    }

    /// Ends a cut and any delay.
    pub fn heal(&self) {
        self.weather.send_modify(|weather| {
            weather.cut = false;
            weather.delay = Duration::ZERO;
        });
    }

    /// From now on every byte arrives this much later; the rate is not limited.
    pub fn delay(&self, delay: Duration) {
        self.weather.send_modify(|weather| weather.delay = delay);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

/// Owns the connections, so that they end with it.
async fn accept(listener: TcpListener, target: Arc<str>, weather: watch::Receiver<Weather>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    connections.spawn(connection(client, Arc::clone(&target), weather.clone()));
                }
                // Out of file handles, most likely: the next one may succeed.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
        }
    }
}

/// One connection, until both sides have closed, one has failed, or the proxy resets it.
async fn connection(
    mut client: TcpStream,
    target: Arc<str>,
    mut weather: watch::Receiver<Weather>,
) {
    let born = weather.borrow().resets;
    let open = weather.wait_for(|now| !now.cut || now.resets != born).await;
    if open.is_ok_and(|now| now.resets == born)
        && let Ok(mut server) = TcpStream::connect(&*target).await
    {
        let seen = weather.clone();
        let closed = tokio::select! {
            biased;
            _ = weather.wait_for(|now| now.resets != born) => false,
            closed = forward(&mut client, &mut server, seen) => closed.is_ok(),
        };
        if closed {
            return;
        }
        let _ = server.set_zero_linger();
    }
    // A socket that does not linger says reset instead of a polite end.
    let _ = client.set_zero_linger();
}

async fn forward(
    client: &mut TcpStream,
    server: &mut TcpStream,
    weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::try_join!(
        direction(from_client, to_server, weather.clone()),
        direction(from_server, to_client, weather),
    )?;
    Ok(())
}

async fn direction(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    let (chunks, due) = mpsc::channel(IN_FLIGHT);
    tokio::try_join!(read(from, chunks, weather.clone()), write(to, due, weather))?;
    Ok(())
}

/// Reads until the end, and stamps each chunk with the time it is due on the other side.
async fn read(
    mut from: ReadHalf<'_>,
    chunks: mpsc::Sender<(Instant, Vec<u8>)>,
    mut weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    loop {
        uncut(&mut weather).await?;
        let mut chunk = vec![0; CHUNK];
        let length = from.read(&mut chunk).await?;
        if length == 0 {
            return Ok(());
        }
        chunk.truncate(length);
        let due = Instant::now() + weather.borrow().delay;
        chunks.send((due, chunk)).await.map_err(io::Error::other)?;
    }
}

async fn write(
    mut to: WriteHalf<'_>,
    mut chunks: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    while let Some((due, chunk)) = chunks.recv().await {
        tokio::time::sleep_until(due).await;
        uncut(&mut weather).await?;
        to.write_all(&chunk).await?;
    }
    uncut(&mut weather).await?;
    to.shutdown().await
}

async fn uncut(weather: &mut watch::Receiver<Weather>) -> io::Result<()> {
    weather.wait_for(|now| !now.cut).await.map(drop).map_err(io::Error::other)
}
