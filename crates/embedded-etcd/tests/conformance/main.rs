//! What the embedded server promises, held to real etcds: every case runs over a URL against the
//! embedded server, etcd 3.4 and etcd 3.5, and must pass on each. A version this machine does not
//! have is skipped with one line.
//!
//! A case is a plain `async fn(Server)`; the list at the end of each file says which server it
//! gets: a `shared` one (other cases write to it meanwhile, so it keeps to its own keys and counts
//! no revisions), or its `own`, to be stopped, compacted or counted on as it likes.

#![expect(clippy::unwrap_used, reason = "a failed call should end its case")]

#[macro_use]
mod server;

mod compaction;
mod election;
mod kv;
mod lease;
mod limits;
mod outage;
mod paging;
mod range;
mod status;
mod txn;
mod watch;
mod watch_stream;
