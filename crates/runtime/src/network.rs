//! Connections to and from other processes: TCP, or in-memory links of a simulation.

mod connection;
mod pipe;
mod sim;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::{Channel, Endpoint};

pub use connection::{Connection, Incoming, Peer};
pub use sim::{HostDown, SimNetwork};

use sim::SimHost;

/// Longest wait for a connection to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Pings on a quiet connection, and how long an answer may take: a peer that vanished without a
/// word is noticed after both.
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Windows of a connection that carries bulk bytes; see the server's.
const BULK_STREAM_WINDOW: u32 = 4 << 20;
const BULK_CONNECTION_WINDOW: u32 = 8 << 20;
/// A chunk of a copy passes in one HTTP/2 frame.
const BULK_FRAME: u32 = 128 << 10;

/// Opens connections for one host. Cheap to clone; clones share the cached channels.
#[derive(Clone)]
pub struct Network {
    backend: Backend,
    channels: Arc<Mutex<BTreeMap<String, Channel>>>,
}

#[derive(Clone)]
enum Backend {
    Tcp,
    Simulated(SimHost),
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.backend {
            Backend::Tcp => f.write_str("Network(tcp)"),
            Backend::Simulated(host) => write!(f, "Network(simulated, {})", host.name()),
        }
    }
}

impl Network {
    /// The machine's sockets.
    pub fn tcp() -> Self {
        Self { backend: Backend::Tcp, channels: Arc::default() }
    }

    fn simulated(host: SimHost) -> Self {
        Self { backend: Backend::Simulated(host), channels: Arc::default() }
    }

    /// The host that this handle belongs to; `None` on TCP, where the system knows.
    pub fn host(&self) -> Option<&str> {
        match &self.backend {
            Backend::Tcp => None,
            Backend::Simulated(host) => Some(host.name()),
        }
    }

    /// A channel to `host:port` for control calls. It connects with the first call, reconnects by
    /// itself, and is shared by all callers of one address. A malformed address is an error of
    /// each call.
    pub fn channel(&self, address: &str) -> Channel {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(address) {
            return channel.clone();
        }
        let channel = self.connect_lazily(address, self.endpoint(address));
        channels.insert(address.to_owned(), channel.clone());
        channel
    }

    /// A connection of its own for bulk bytes, so that they cannot hold up control calls.
    pub fn bulk_channel(&self, address: &str) -> Channel {
        let endpoint = self
            .endpoint(address)
            .initial_stream_window_size(BULK_STREAM_WINDOW)
            .initial_connection_window_size(BULK_CONNECTION_WINDOW)
            .max_frame_size(BULK_FRAME);
        self.connect_lazily(address, endpoint)
    }

    /// Drops the cached channel of an address whose process is known to be gone.
    pub fn forget(&self, address: &str) {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner).remove(address);
    }

    fn endpoint(&self, address: &str) -> Endpoint {
        // The connector takes the address; the URI only fills `:authority`.
        Endpoint::from_shared(format!("http://{address}"))
            .unwrap_or_else(|_| Endpoint::from_static("http://malformed-address"))
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
    }

    fn connect_lazily(&self, address: &str, endpoint: Endpoint) -> Channel {
        let address: Arc<str> = address.into();
        let backend = self.backend.clone();
        endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let (backend, address) = (backend.clone(), address.clone());
            async move { Ok::<_, io::Error>(TokioIo::new(backend.connect(&address).await?)) }
        }))
    }

    /// Opens one plain connection to `host:port`.
    pub async fn connect(&self, address: &str) -> io::Result<Connection> {
        match tokio::time::timeout(CONNECT_TIMEOUT, self.backend.connect(address)).await {
            Ok(connected) => connected,
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no connection to {address} within {CONNECT_TIMEOUT:?}"),
            )),
        }
    }

    /// Listens on `host:port`; port 0 takes any free one. The error names the address.
    pub async fn listen(&self, address: &str) -> Result<Incoming, ListenError> {
        let failed = |cause| ListenError { address: address.to_owned(), cause };
        match &self.backend {
            Backend::Tcp => {
                let listener = TcpListener::bind(address).await.map_err(failed)?;
                let bound = listener.local_addr().map_err(failed)?;
                Ok(Incoming::tcp(listener, bound.to_string()))
            }
            Backend::Simulated(host) => host.listen(address).map_err(failed),
        }
    }
}

impl Backend {
    async fn connect(&self, address: &str) -> io::Result<Connection> {
        match self {
            Self::Tcp => {
                let stream = TcpStream::connect(address).await?;
                // Small messages both ways: waiting to fill packets costs 40 ms a call.
                stream.set_nodelay(true)?;
                Ok(Connection::tcp(stream))
            }
            Self::Simulated(host) => host.connect(address).await,
        }
    }
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {}", listen_hint(.cause))]
pub struct ListenError {
    /// What was asked for.
    pub address: String,
    /// Why not; part of the message.
    pub cause: io::Error,
}

fn listen_hint(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "the port is in use by another process".to_owned(),
        io::ErrorKind::InvalidInput => format!("{error}: expected host:port"),
        _ => error.to_string(),
    }
}

/// The address that others should use for a listener: `advertise` if given, else the bound one
/// with a wildcard host replaced by loopback.
pub fn advertised(advertise: Option<&str>, bound: &str) -> String {
    if let Some(address) = advertise {
        return match address.strip_suffix(":0") {
            // The port was left to the system: take the one it gave.
            Some(host) => match bound.rsplit_once(':') {
                Some((_, port)) => format!("{host}:{port}"),
                None => address.to_owned(),
            },
            None => address.to_owned(),
        };
    }
    match bound.rsplit_once(':') {
        Some(("0.0.0.0" | "[::]", port)) => format!("127.0.0.1:{port}"),
        _ => bound.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn the_advertised_address_is_one_that_others_can_use() {
        assert_eq!(advertised(None, "0.0.0.0:7000"), "127.0.0.1:7000");
        assert_eq!(advertised(None, "10.0.0.5:7000"), "10.0.0.5:7000");
        assert_eq!(advertised(Some("b1.example:7000"), "0.0.0.0:7000"), "b1.example:7000");
        assert_eq!(advertised(Some("b1.example:0"), "0.0.0.0:41234"), "b1.example:41234");
    }

    #[tokio::test]
    async fn tcp_connects_and_a_taken_port_is_named() {
        let network = Network::tcp();
        let mut incoming = network.listen("127.0.0.1:0").await.unwrap();
        let address = incoming.address().to_owned();
        let mut client = network.connect(&address).await.unwrap();
        client.write_all(b"hello").await.unwrap();
        let mut server = incoming.accept().await.unwrap();
        let mut read = [0; 5];
        server.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"hello");

        let error = network.listen(&address).await.err().unwrap().to_string();
        assert_eq!(
            error,
            format!("cannot listen on {address}: the port is in use by another process")
        );
        let error = network.listen("nonsense").await.err().unwrap().to_string();
        assert!(error.starts_with("cannot listen on nonsense: "), "{error}");
        assert!(error.ends_with("expected host:port"), "{error}");
    }
}
