//! What the tests of several files share.

mod harness;
mod snapshot;
pub(crate) mod stock;
