//! One direction of an in-memory link: bytes arrive in order, each after its delay.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use tokio::io::ReadBuf;
use tokio::time::Instant;

/// Bytes under way or unread before a writer must wait, as a socket's buffers.
const CAPACITY: usize = 256 * 1024;

/// What a read found.
pub(super) enum Arrival {
    /// Bytes were put into the buffer, or the writer has closed.
    Now,
    /// The next bytes arrive then.
    At(Instant),
    /// Nothing is under way; the waker is kept.
    Nothing,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes and when they arrive; times never fall.
    queue: VecDeque<(Instant, Bytes)>,
    held: usize,
    /// When the writer's end of stream arrives.
    closed: Option<Instant>,
    reader_gone: bool,
    reset: bool,
    /// The link is cut: nothing arrives, and nothing is lost.
    cut: bool,
    last_arrival: Option<Instant>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl State {
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    fn arrival(&mut self, at: Instant) -> Instant {
        let at = self.last_arrival.map_or(at, |last| last.max(at));
        self.last_arrival = Some(at);
        at
    }
}

#[derive(Debug, Clone)]
pub(super) struct Pipe(Arc<Mutex<State>>);

impl Pipe {
    pub(super) fn new(cut: bool) -> Self {
        Self(Arc::new(Mutex::new(State { cut, ..State::default() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> io::Result<Arrival> {
        let mut state = self.state();
        if state.reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if state.cut {
            state.reader = Some(cx.waker().clone());
            return Ok(Arrival::Nothing);
        }
        let now = Instant::now();
        let mut read = false;
        while let Some((at, bytes)) = state.queue.front_mut() {
            if *at > now || buf.remaining() == 0 {
                break;
            }
            let n = bytes.len().min(buf.remaining());
            buf.put_slice(&bytes[..n]);
            bytes.advance(n);
            if bytes.is_empty() {
                state.queue.pop_front();
            }
            state.held -= n;
            read = true;
        }
        if read {
            if let Some(writer) = state.writer.take() {
                writer.wake();
            }
            return Ok(Arrival::Now);
        }
        match (state.queue.front().map(|(at, _)| *at), state.closed) {
            (None, Some(at)) if at <= now => Ok(Arrival::Now),
            (Some(at), _) | (None, Some(at)) => {
                state.reader = Some(cx.waker().clone());
                Ok(Arrival::At(at))
            }
            (None, None) => {
                state.reader = Some(cx.waker().clone());
                Ok(Arrival::Nothing)
            }
        }
    }

    /// Takes as many bytes as there is room for; `arrives` tells when so many bytes arrive.
    pub(super) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        arrives: impl FnOnce(usize) -> Instant,
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        if state.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if state.reader_gone || state.closed.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let n = bytes.len().min(CAPACITY.saturating_sub(state.held));
        if n == 0 && !bytes.is_empty() {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let at = state.arrival(arrives(n));
        state.queue.push_back((at, Bytes::copy_from_slice(&bytes[..n])));
        state.held += n;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(n))
    }

    /// The writer is done; what it wrote still arrives.
    pub(super) fn close(&self, at: Instant) {
        let mut state = self.state();
        if state.closed.is_none() {
            state.closed = Some(state.arrival(at));
        }
        state.wake();
    }

    /// The reader is gone; writes fail from here on.
    pub(super) fn abandon(&self) {
        let mut state = self.state();
        state.reader_gone = true;
        state.queue.clear();
        state.held = 0;
        state.wake();
    }

    /// Both ends see a reset connection at once.
    pub(super) fn reset(&self) {
        let mut state = self.state();
        state.reset = true;
        state.wake();
    }

    pub(super) fn set_cut(&self, cut: bool) {
        let mut state = self.state();
        if state.cut != cut {
            state.cut = cut;
            state.wake();
        }
    }
}
