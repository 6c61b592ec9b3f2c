//! What the tests of several files share.

mod admin;
mod copying;
mod harness;
mod kept;
mod leading;
mod measured;
mod pass;
mod snapshot;
pub(crate) mod stock;
