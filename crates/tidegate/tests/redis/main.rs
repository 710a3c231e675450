//! The Redis store, on real servers that are started for the tests alone.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod changes;
mod conformance;
#[cfg(feature = "listen")]
mod connections;
mod faults;
mod layers;
mod long_lists;
mod looks;
mod names;
mod older_states;
mod own_limits;
mod processes;
mod refunds;
mod slots;
mod time;
