//! One end of an in-memory link.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::SimNetwork;
use crate::network::pipe::{Arrival, Pipe};

#[derive(Debug)]
pub(in crate::network) struct SimStream {
    network: SimNetwork,
    link: u64,
    host: Arc<str>,
    peer: Arc<str>,
    read: Pipe,
    write: Pipe,
    arriving: Option<Pin<Box<Sleep>>>,
}

impl SimStream {
    /// `hosts` are this end's and the other's; `pipes` the one read and the one written.
    pub(super) fn new(
        network: SimNetwork,
        link: u64,
        hosts: (Arc<str>, Arc<str>),
        pipes: (Pipe, Pipe),
    ) -> Self {
        let ((host, peer), (read, write)) = (hosts, pipes);
        Self { network, link, host, peer, read, write, arriving: None }
    }

    pub(in crate::network) fn peer(&self) -> &str {
        &self.peer
    }

    fn close(&self) {
        let at = self.network.state().arrival(&self.host, &self.peer, 0);
        self.write.close(at);
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.read.poll_read(cx, buf)? {
                Arrival::Now => {
                    self.arriving = None;
                    return Poll::Ready(Ok(()));
                }
                Arrival::Nothing => return Poll::Pending,
                Arrival::At(at) => {
                    let sleep = match &mut self.arriving {
                        Some(sleep) => {
                            if sleep.deadline() != at {
                                sleep.as_mut().reset(at);
                            }
                            sleep
                        }
                        none => none.insert(Box::pin(tokio::time::sleep_until(at))),
                    };
                    ready!(sleep.as_mut().poll(cx));
                }
            }
        }
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write.poll_write(cx, buf, |bytes| {
            self.network.state().arrival(&self.host, &self.peer, bytes)
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.close();
        self.read.abandon();
        self.network.state().leave(self.link);
    }
}
