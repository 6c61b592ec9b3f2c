//! Free ports on loopback for the demo's processes.

use std::net::TcpListener;

use crate::Failure;

/// Below the range that systems hand out to outgoing connections, so that nothing takes a port
/// between its being found and its being used.
const FIRST: u16 = 17_000;
const LAST: u16 = 29_999;

/// Hands out addresses that nobody listens on now.
pub(crate) struct Addresses {
    next: u16,
}

impl Addresses {
    /// Different demos begin at different ports.
    pub(crate) fn new() -> Self {
        let spread = u32::from(LAST - FIRST);
        let start = std::process::id().wrapping_mul(97) % spread;
        Self { next: FIRST + u16::try_from(start).unwrap_or_default() }
    }

    /// A free one, as host:port.
    pub(crate) fn take(&mut self) -> Result<String, Failure> {
        for _ in FIRST..=LAST {
            let address = format!("127.0.0.1:{}", self.next);
            self.next = if self.next == LAST { FIRST } else { self.next + 1 };
            if TcpListener::bind(&address).is_ok() {
                return Ok(address);
            }
        }
        Err(Failure::Input(format!("no port from {FIRST} to {LAST} is free on 127.0.0.1")))
    }
}
