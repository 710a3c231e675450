//! The contenders behind three small traits, each in its own file. The loops over them are generic,
//! so a check is inlined or not just as it would be in its user's program.
//!
//! Every contender runs with its own defaults; where it had to be set up or wrapped to take part,
//! its file says why.

pub mod by_hand;
pub mod direct;
pub mod governor;
pub mod limitador;
pub mod pingora;
pub mod semaphore;
pub mod several;
pub mod stepped;
pub mod throttlecrab;
pub mod tidegate;
pub mod yardstick;

pub use stepped::Stepped;

use super::keys::Key;
use std::time::Duration;

/// For notes.
pub const LOCKED: &str =
    "throttlecrab takes &mut self: two threads share it behind a mutex, one has it without";

/// One allowance for all callers, resolved before the loop: a handle, a direct limiter.
pub trait Hot: Send + Sync {
    fn check(&self) -> bool;
}

/// An allowance for each key, found by its text.
pub trait Keyed: Send + Sync {
    fn check(&self, key: &Key) -> bool;

    /// The same where there is only one thread: who needs a lock for two is spared it for one.
    fn check_alone(&mut self, key: &Key) -> bool {
        self.check(key)
    }
}

/// Those that remember every key, and so have to learn them before they are timed.
pub trait Learning: Keyed {
    /// The first request of a key, for several units at once.
    fn learn(&mut self, key: &Key, units: u32) -> bool;
}

/// Many keys in one call; returns how many were allowed.
pub trait Batched: Send + Sync {
    fn check_batch(&self, keys: &[Key]) -> u64;
}

/// One allowance whose callers wait until they may start.
pub trait Acquired: Send + Sync + 'static {
    /// True once the caller may start.
    fn acquire(&self) -> impl Future<Output = bool> + Send;
}

/// A limit that every contender is set to: `units` every `period`, at most `burst` at once.
#[derive(Clone, Copy)]
pub struct Allowance {
    pub units: u32,
    pub period: Duration,
    pub burst: u32,
    /// The same as ours is written.
    pub text: &'static str,
}

const DAY: Duration = Duration::from_secs(86_400);

impl Allowance {
    /// More than any contender can use in a run.
    pub const ENDLESS: Self = Self {
        units: 10_000_000,
        period: Duration::from_secs(1),
        burst: 1_000_000_000,
        text: "10000000/s burst 1000000000",
    };

    /// Used up at once, and not refilled before the run ends. Not `burst 1`, with which
    /// throttlecrab forgets a key in the moment in which it learns it, and never refuses.
    pub const TINY: Self = Self { units: 1, period: DAY, burst: 2, text: "1/day burst 2" };

    /// For many keys: nobody is ever refused, not even Zipf's favourite, which is requested some
    /// millions of times; and a unit keeps its key alive for ten seconds. With a faster refill all
    /// keys would be idle, and a limiter that reclaims idle keys would be measured with an empty
    /// table.
    pub const ROOMY: Self = Self {
        units: 360,
        period: Duration::from_secs(3_600),
        burst: 20_000_000,
        text: "360/h burst 20000000",
    };

    /// What a key's first request takes of `ROOMY`: it is then alive for twenty minutes, longer
    /// than the suite runs.
    pub const ROOMY_FIRST_UNITS: u32 = 120;

    fn interval(&self) -> Duration {
        self.period / self.units
    }
}
