//! etcd behind one small door: guarded transactions, election, sessions and a consistent view.
//!
//! etcd-client reconnects a channel for the next call and nothing else: it resumes no watch, no
//! keep-alive and no election, and retries no call. This crate owns those loops.
//!
//! * [`Store`]: calls that stick to one endpoint, leave it when it fails, and never repeat a
//!   guarded write that may have been applied.
//! * [`Session`]: one lease, with a deadline until which it is *provably* alive.
//! * [`Election`]: one leader per key, whose [`Token`] guards every write it makes.
//! * [`View`]: the keys under some prefixes, listed and then watched, for ever.
//!
//! **Invariant:** no `etcd_client` type appears in the public interface, and time is always
//! tokio's, so that a paused clock drives every loop.

mod backoff;
mod election;
mod entry;
mod error;
mod guarded;
pub mod metrics;
mod session;
mod store;
mod turn;
mod view;

pub use election::{Election, ElectionConfig, LeaderValue, Leadership};
pub use entry::{Entry, LeaseId, Listing, Revision};
pub use error::{ErrorClass, StoreError};
pub use guarded::{Guard, Guarded, Outcome, Token, Write};
pub use session::{Lease, Session, SessionConfig};
pub use store::{Endpoint, Status, Store, StoreConfig, Tls};
pub use view::{Change, Mark, Streams, View, ViewConfig, ViewState};
