//! Exact, fast limits for one process or many: token and leaky buckets, fixed and sliding
//! windows, exact logs, warm-up, and concurrency with a bounded queue.
//!
//! A [`Limiter`] holds the state of all keys, a [`Gate`] is a [`Limit`] in force under a name, and
//! each check of a key at a gate gives a [`Decision`]. A denial is a value, not an error.
//!
//! ```
//! use tidegate::Limiter;
//!
//! let limiter = Limiter::new();
//! let gate = limiter.gate("checkout", "1000/s burst 20")?;
//!
//! let decision = gate.check("user:42");
//! if decision.is_allowed() {
//!     // serve it; decision.remaining() more may start at once
//! } else {
//!     // 429, Retry-After: decision.retry_after()
//! }
//! # assert_eq!(decision.remaining(), 19);
//! # Ok::<(), tidegate::GateError>(())
//! ```
//!
//! - [`Gate::check`] decides now. [`Gate::reserve`] may allow a start after a wait,
//!   [`Gate::acquire`] waits for it, under any executor or none.
//! - [`Limiter::check`] and its siblings decide several checks of one request and charge all of
//!   them or none. A [`Check`] may bring a limit of its own along.
//! - A [`Permit`] holds a slot of a concurrency limit, can be refunded, and can be settled at a
//!   true cost that is known only afterwards.
//! - [`Gate::change`] puts another limit in force, live; what keys have used goes along.
//! - [`Gate::handle`] resolves a fixed key once; [`Gate::check_batch`] overlaps the waits for
//!   memory of many keys.
//!
//! # Features
//! - `redis`: `LimiterBuilder::redis` keeps the state in Redis, shared by any number of
//!   processes. Any other [store](store::Store) plugs in with [`LimiterBuilder::store`].
//! - `macros`: `#[limited("1000/s", key = goods_id)]` above a function limits its calls.
//! - `tower`: `http` puts `rules` before a service or a router. `axum` adds extractors, `listen` a
//!   listener that limits connections and reads the PROXY protocol.
//!
//! Without features no async runtime, network or database crate is pulled in.

// What users hold, from the limiter down to one decision.
mod check;
mod decision;
mod explain;
mod gate;
mod gate_error;
mod limiter;
mod permit;
mod refusal;
mod verdict;

// How checks are decided: several together, now or after a wait.
mod acquire;
mod algorithm;
mod pending;
pub mod store;
mod transaction;

// Whose check it is, and when.
mod caller;
mod clock;
mod key;
mod sleep;
mod timer;

mod process;
#[cfg(any(feature = "rules", feature = "redis"))]
mod sampler;
mod sync;

// Front ends.
#[cfg(feature = "tower")]
pub mod http;
#[cfg(feature = "macros")]
mod limited;
#[cfg(feature = "listen")]
pub mod listener;
#[cfg(feature = "rules")]
pub mod rules;
/// What the code of `#[limited]` calls. Not for people. (A public module of the attribute's own
/// name would be imported along with it.)
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod __private {
    pub use crate::limited::*;
}

pub use acquire::Acquire;
pub use caller::{Caller, CallerScope, Client, User};
pub use clock::{Clock, ClockError, ManualClock, MonotonicClock, Timestamp};
pub use decision::{Decision, Denial};
pub use gate::{Gate, GateError, Handle};
pub use key::Key;
#[cfg(feature = "macros")]
pub use limited::{AlreadyObserved, observe_calls};
pub use limiter::{Check, GateOptions, Limiter, LimiterBuilder, Overflow};
pub use pending::Pending;
pub use permit::Permit;
pub use refusal::Refusal;
#[cfg(feature = "redis")]
pub use store::redis::{Fallback, LeaseStats, Redis, RedisError, RedisStats, ShardStats};
pub use tidegate_limit::{Algorithm, Limit, LimitBuilder, LimitError};
// Here and not beside the attribute: what its examples need would be built twice, once for the
// compiler that runs it.
#[cfg(feature = "macros")]
#[doc = include_str!("limited.md")]
pub use tidegate_macros::limited;
pub use timer::Timer;
pub use verdict::Verdict;

/// The examples of the README and the guide are tests.
#[cfg(all(doctest, feature = "redis"))]
mod guides {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/limits.md")]
    struct Limits;
    #[doc = include_str!("../../../docs/redis.md")]
    struct Redis;
    #[cfg(all(feature = "macros", feature = "axum"))]
    #[doc = include_str!("../../../docs/guard.md")]
    struct Guard;
    #[cfg(all(feature = "macros", feature = "axum"))]
    #[doc = include_str!("../../../docs/guard-caches.md")]
    struct GuardCaches;
    #[cfg(all(feature = "serde", feature = "tower"))]
    #[doc = include_str!("../../../docs/rule-files.md")]
    struct RuleFiles;
}
