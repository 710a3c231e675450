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
mod job;
mod known;
mod lane;
mod lead;
mod lease;
mod local;
mod meter;
mod name;
mod pack;
mod plan;
mod promise;
mod read;
mod role;
mod sentinel;
mod serve;
mod shard;
mod share;
mod stats;
mod write;

pub(crate) use accept::accept;
pub(crate) use charge::{Charge, member};
pub(crate) use config::GateOptions;
pub use config::{Fallback, Redis, RedisError};
pub(crate) use core::{Core, Store};
pub(crate) use job::{Change, Fault, How, Key, Request, Told, What};
pub(crate) use lane::lane;
pub(crate) use local::Alone;
pub(crate) use meter::{Answered, Asked, Meter};
pub(crate) use name::{slot, subject};
pub(crate) use plan::Mark;
pub(crate) use promise::promise;
pub use stats::{LeaseStats, RedisStats, ShardStats};

use std::sync::Arc;

/// One question to a gate in Redis.
#[derive(Clone)]
pub(crate) struct RedisAsk {
    pub(crate) meter: Arc<Meter>,
    pub(crate) key: Arc<[u8]>,
    pub(crate) hash: u64,
    pub(crate) cost: u64,
    /// Its place in the request.
    pub(crate) index: usize,
}

impl RedisAsk {
    pub(crate) fn new(meter: &Arc<Meter>, key: &[u8], cost: u64) -> Self {
        Self { meter: meter.clone(), key: key.into(), hash: meter.hash(key), cost, index: 0 }
    }
}
