//! Ports for servers that must be told theirs.
//!
//! A port the kernel hands out and we give back may be taken by anybody before the server binds
//! it, or while the server is down between a kill and a restart. So ours lie below the range from
//! which systems choose by themselves, and each process starts at another place in it.

use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u16 = 10_000;
const COUNT: u16 = 20_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) client: u16,
    pub(super) peer: u16,
    /// Plain HTTP even when the client port speaks TLS: where readiness is asked for.
    pub(super) health: u16,
}

impl Ports {
    /// Three ports nobody listens on, never handed out by this process before.
    pub(super) fn choose() -> io::Result<Self> {
        Ok(Self { client: unused()?, peer: unused()?, health: unused()? })
    }
}

fn unused() -> io::Result<u16> {
    static HANDED_OUT: AtomicU32 = AtomicU32::new(0);
    // Neighbouring process ids, such as those of test binaries run in a row, start far apart.
    let start = std::process::id().wrapping_mul(7_919);
    for _ in 0..COUNT {
        let step = HANDED_OUT.fetch_add(1, Ordering::Relaxed);
        let offset = start.wrapping_add(step) % u32::from(COUNT);
        let port = FIRST + u16::try_from(offset).map_err(io::Error::other)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no free port of 127.0.0.1 from 10000 to 29999"))
}
