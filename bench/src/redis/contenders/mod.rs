//! Who takes part: ours in its settings, three scripts that people use today, and limitador. Each
//! decides one request a call, as its users would call it, with one connection a process.

#[cfg(feature = "limitador-redis")]
pub mod limitador;
pub mod scripts;
pub mod tidegate;

use super::allowance::Allowance;
use crate::rounds::Role;
use serde::{Deserialize, Serialize};

/// A contender, connected; cloned for every caller.
pub trait Contender: Clone + Send + Sync + 'static {
    fn check(&self, key: &str) -> impl Future<Output = Decision> + Send;

    /// Decisions that the contender itself has found to be wrong.
    fn defects(&self) -> u64 {
        0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allowed,
    Denied,
    /// An error, or a decision that was not Redis's.
    Failed,
}

/// Where a client process finds its Redis, and the limit that it enforces there.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Target {
    pub port: u16,
    /// Which of the client processes this is.
    pub node: u16,
    pub allowance: Allowance,
}

impl Target {
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Who {
    Ours(Layers),
    Zset,
    Tokens,
    Gcra,
    Limitador,
    LimitadorCached,
    Nobody,
    #[cfg(test)]
    SeedsZset,
}

/// What ours does before it calls Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layers {
    /// Everything that is exact: denial memory and coalescing.
    Exact,
    NoDenialMemory,
    NoCoalescing,
    Neither,
    /// And leases, which are not exact.
    Leases,
}

pub const ZSET: &str = "zset";
pub const TOKENS: &str = "tokens";
pub const GCRA: &str = "gcra";

/// The scripts of the documents that the project started from, which the goals are measured against.
pub const SEEDS: &[&str] = &[ZSET, TOKENS];

/// Everybody but us.
pub const PEERS: &[Who] = if cfg!(feature = "limitador-redis") {
    &[Who::Zset, Who::Tokens, Who::Gcra, Who::Limitador, Who::LimitadorCached]
} else {
    &[Who::Zset, Who::Tokens, Who::Gcra]
};

pub const SCRIPTS_NOTE: &str = "zset, tokens, gcra: one EVALSHA a request through redis-rs, one multiplexed \
                                connection a client process, TCP_NODELAY on";
pub const LIMITADOR_NOTE: &str = "limitador has fixed windows only, and checks and counts in two calls; its cached \
                                  store counts locally and reports to Redis afterwards: both may admit more than the limit";

impl Who {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours(Layers::Exact) => "tidegate",
            Self::Ours(Layers::NoDenialMemory) => "tidegate, no denial memory",
            Self::Ours(Layers::NoCoalescing) => "tidegate, no coalescing",
            Self::Ours(Layers::Neither) => "tidegate, neither",
            Self::Ours(Layers::Leases) => "tidegate, with leases (not exact)",
            Self::Zset => ZSET,
            Self::Tokens => TOKENS,
            Self::Gcra => GCRA,
            Self::Limitador => "limitador",
            Self::LimitadorCached => "limitador, cached",
            Self::Nobody => "the callers alone",
            #[cfg(test)]
            Self::SeedsZset => "zset as in the documents",
        }
    }

    pub fn role(self) -> Role {
        match self {
            Self::Ours(Layers::Exact) => Role::Ours,
            Self::Ours(_) => Role::Variant,
            Self::Nobody => Role::Yardstick,
            _ => Role::Peer,
        }
    }
}

/// Denies at once: what the callers themselves cost, and so the most that any limiter could reach
/// here.
#[derive(Clone)]
pub struct Nobody;

impl Contender for Nobody {
    async fn check(&self, _: &str) -> Decision {
        Decision::Denied
    }
}
