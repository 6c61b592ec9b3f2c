//! Holds the machine's clock still for a thread that simulates.
//!
//! A simulation runs on virtual time, but libraries below it ask the machine: the HTTP/2 one
//! forgets a cancelled call a second after it, and answers what still comes for it otherwise than
//! before. How many virtual seconds fit into that second depends on how busy the machine is, so
//! without this the same seed may write other bytes.
//!
//! On Linux this crate *is* the `clock_gettime` of whatever program links it: for tests and
//! simulations alone. Elsewhere it changes nothing.

/// While it lives, the clocks of the thread that took it stand still.
#[derive(Debug)]
#[must_use = "the clock is held until this is dropped"]
pub struct HeldClock {
    /// What it must not leave: its thread.
    _thread: std::marker::PhantomData<*const ()>,
}

/// Holds the clocks of this thread where they are. Other threads' go on.
pub fn hold() -> HeldClock {
    #[cfg(target_os = "linux")]
    linux::hold(true);
    HeldClock { _thread: std::marker::PhantomData }
}

impl Drop for HeldClock {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        linux::hold(false);
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::Cell;

    use libc::{SYS_clock_gettime, c_int, clockid_t, syscall, timespec};

    thread_local! {
        /// Monotonic and real time of a thread whose clocks are held.
        static HELD: Cell<Option<[timespec; 2]>> = const { Cell::new(None) };
    }

    pub(super) fn hold(held: bool) {
        HELD.set(None);
        if held {
            HELD.set(Some([libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME].map(|id| {
                let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
                // SAFETY: `now` is a timespec that the call may write to.
                unsafe { ask(id, &raw mut now) };
                now
            })));
        }
    }

    /// # Safety
    /// `time` points to a timespec that may be written, or is null.
    unsafe fn ask(id: clockid_t, time: *mut timespec) -> c_int {
        // SAFETY: the arguments are those of the system call; the caller vouches for `time`.
        unsafe { syscall(SYS_clock_gettime, id, time) as c_int }
    }

    /// The C library's function of this name, for this whole program.
    ///
    /// # Safety
    /// As the C library's: `time` points to a timespec that may be written.
    // SAFETY: it keeps the C library's contract, and nothing else of this name is linked.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn clock_gettime(id: clockid_t, time: *mut timespec) -> c_int {
        // A thread that ends has no clock to hold any more.
        let held = HELD.try_with(Cell::get).ok().flatten();
        match (held, id) {
            (Some([now, _]), libc::CLOCK_MONOTONIC) | (Some([_, now]), libc::CLOCK_REALTIME) => {
                // SAFETY: the caller vouches for `time`.
                unsafe { time.write(now) };
                0
            }
            // SAFETY: the caller vouches for `time`.
            _ => unsafe { ask(id, time) },
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
#[expect(clippy::disallowed_methods, reason = "the machine's clock is what is tested")]
mod tests {
    use std::time::{Duration, Instant, SystemTime};

    #[test]
    fn a_held_clock_stands_still_for_its_thread_alone_and_goes_on_after() {
        let before = (Instant::now(), SystemTime::now());
        let held = super::hold();
        let (at, date) = (Instant::now(), SystemTime::now());
        assert!(at >= before.0 && date >= before.1);
        let other = std::thread::spawn(|| {
            let began = Instant::now();
            std::thread::sleep(Duration::from_millis(2));
            began.elapsed()
        });
        assert!(other.join().unwrap() >= Duration::from_millis(2));
        assert_eq!((Instant::now(), SystemTime::now()), (at, date));
        drop(held);
        assert!(at.elapsed() >= Duration::from_millis(2));
    }
}
