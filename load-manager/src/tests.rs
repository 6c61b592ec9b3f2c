//! What the tests of several files share.

mod admin;
mod copying;
mod harness;
mod kept;
mod leading;
mod pass;
mod snapshot;
pub(crate) mod stock;
