//! The same limits across any number of processes: state and clock are Redis's.
//!
//! A check passes the layers of its [`gate`] that need no network (lease, denial cache), waits in
//! a [request queue](server::request_queue) with others about the same keys, travels in a
//! [batch](server::batch) over a [connection](server::connection), is decided by the one constant
//! [`script`], and is answered by [replaying](script::replay) it on the state that the script
//! found. What Redis does not answer in time is decided by the gate's [fallback](gate::fallback).
//! Which server has which key is the [`topology`]'s.

mod config;
mod gate;
mod heartbeat;
mod held_slots;
mod request;
mod script;
mod server;
mod stats;
mod store;
mod topology;

pub(crate) use config::RedisGateOptions;
pub use config::{Fallback, Redis, RedisError};
pub use stats::{LeaseStats, RedisStats, ShardStats};
pub(crate) use store::RedisStore;

use crate::sync::lock;
