//! One accepted or opened connection, and the stream of accepted ones.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::server::Connected;

use super::sim::{SimListener, SimStream};

/// A connection over TCP or over an in-memory link.
#[derive(Debug)]
pub struct Connection(Link);

#[derive(Debug)]
enum Link {
    Tcp(TcpStream),
    Simulated(SimStream),
}

impl Connection {
    pub(super) fn tcp(stream: TcpStream) -> Self {
        Self(Link::Tcp(stream))
    }

    pub(super) fn simulated(stream: SimStream) -> Self {
        Self(Link::Simulated(stream))
    }

    /// The other end, as far as known.
    pub fn peer(&self) -> String {
        match &self.0 {
            Link::Tcp(stream) => {
                stream.peer_addr().map_or_else(|_| "unknown".to_owned(), |peer| peer.to_string())
            }
            Link::Simulated(stream) => stream.peer().to_owned(),
        }
    }
}

/// The other end of the connection that a request came by, found in its extensions.
#[derive(Debug, Clone)]
pub struct Peer(pub String);

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        Peer(self.peer())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Link::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Link::Simulated(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Link::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Link::Simulated(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Link::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Link::Simulated(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        matches!(&self.0, Link::Tcp(stream) if stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Link::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Link::Simulated(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Link::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Link::Simulated(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Accepted connections: a stream that never ends by itself. Dropping it stops listening.
#[derive(Debug)]
pub struct Incoming {
    address: String,
    listener: Listener,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Simulated(SimListener),
}

impl Incoming {
    pub(super) fn tcp(listener: TcpListener, address: String) -> Self {
        Self { address, listener: Listener::Tcp(listener) }
    }

    pub(super) fn simulated(listener: SimListener, address: String) -> Self {
        Self { address, listener: Listener::Simulated(listener) }
    }

    /// `host:port` that it listens on, with the port that was taken.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The next connection.
    pub async fn accept(&mut self) -> io::Result<Connection> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        match &mut self.listener {
            Listener::Tcp(listener) => {
                let (stream, _) = ready!(listener.poll_accept(cx))?;
                // A peer that is gone already shows with the first read.
                let _ = stream.set_nodelay(true);
                Poll::Ready(Ok(Connection::tcp(stream)))
            }
            Listener::Simulated(listener) => {
                listener.poll_accept(cx).map(|stream| Ok(Connection::simulated(stream)))
            }
        }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_accept(cx).map(Some)
    }
}
