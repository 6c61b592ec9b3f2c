//! The least time that a repair can take, whatever the order of its copies.
