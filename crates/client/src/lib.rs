//! The data client: publish and subscribe with routing, retries and redirects.
//!
//! A [`Client`] knows some brokers and learns the others. A [`Producer`] publishes batches that
//! may be retried without being stored twice; a [`Subscription`] reads a shard across moves and
//! failures, repeating and skipping nothing.
//!
//! **Invariant:** a call that returned `Ok` is committed; one that failed says whether it may
//! have been written.

mod client;
mod config;
mod connect;
mod error;
mod producer;
mod retry;
mod routes;
mod subscription;

pub use client::Client;
pub use config::ClientConfig;
pub use connect::{Connect, tcp};
pub use error::{ClientError, Fate};
pub use producer::{Entry, MAX_BATCH_RECORDS, Producer, Published};
pub use routes::Route;
pub use subscription::{Delivery, Subscription};

/// A committed record as it is read back.
pub use evenkeel_proto::data::StoredRecord;
