//! The same limits across any number of processes: state and clock are Redis's.
//!
//! A question goes through the layers before the network ([`lease`], [`known`]), joins
//! others about the same keys in a [`lane`] of a [`shard`], travels in a [`flight`] as
//! part of one call of one constant script ([`write`], `decide.lua`), and is answered by
//! replaying the script's steps on the state that it found ([`read`], [`plan`]). What is
//! not answered in time is decided by [`local`].

mod accept;
mod charge;
mod config;
mod connection;
mod core;
mod flight;
mod gate;
mod job;
mod known;
mod lane;
mod lead;
mod lease;
mod local;
mod name;
mod pack;
mod plan;
mod promise;
mod queue;
mod read;
mod role;
mod sentinel;
mod serve;
mod shard;
mod share;
mod stats;
mod transaction;
mod write;

pub(crate) use config::GateOptions;
pub use config::{Fallback, Redis, RedisError};
pub(crate) use core::RedisStore;
pub use stats::{LeaseStats, RedisStats, ShardStats};
