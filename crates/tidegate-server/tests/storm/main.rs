//! The program `tidegate storm`, run on small sales that are honest, slow, or lie.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod checks;
mod load;
mod sale;
mod usage;
