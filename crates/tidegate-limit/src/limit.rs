//! The limit itself: its numbers, and the most that they let through.

use crate::LimitBuilder;
use crate::build::Shape;
use Algorithm::{
    Concurrency, FixedWindow, LeakyBucket, LeakyQueue, SlidingLog, SlidingWindow, Ticked, TokenBucket, WarmUp,
};
use std::time::Duration;

/// What is allowed: an algorithm with its numbers.
///
/// Written as text, or built in code; both ways are checked once, by the same
/// rules, and a `Limit` that exists is sound.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Limit;
///
/// let text: Limit = "1000/s burst 1s wait 1s".parse()?;
/// let code = Limit::per_second(1000)
///     .burst_for(Duration::from_secs(1))
///     .wait(Duration::from_secs(1))
///     .build()?;
/// assert_eq!(text, code);
/// # Ok::<(), tidegate::LimitError>(())
/// ```
///
/// | text | meaning |
/// |---|---|
/// | `1000/s` | token bucket, burst 1,000 |
/// | `100/min burst 20` | token bucket, burst 20; `burst 1s` is what flows in one second |
/// | `1000/s burst 1s wait 1s` | a call may be told to wait up to 1 s for its start |
/// | `100/s warmup 30s` | token bucket that starts cold, at a third of its rate |
/// | `20 every 1s cap 100` | token bucket refilled with 20 at each full second |
/// | `leaky 50/s capacity 100` | leaky bucket as a meter: a full bucket refuses |
/// | `leaky 50/s queue 100` | leaky bucket as a queue: constant outflow, 100 may wait |
/// | `5 per 10s fixed-window` | at most 5 from one multiple of 10 s to the next |
/// | `100/day fixed-window offset 8h` | at most 100 a day, from 08:00 to 08:00 UTC |
/// | `5 per 10s sliding-window slices 20` | at most 5 in any 10 s, counted in slices |
/// | `5 per 10s sliding-log` | at most 5 in any 10 s, exactly |
/// | `10 concurrent queue 50 wait 2s` | 10 at once, 50 more wait up to 2 s |
///
/// Durations are numbers with units: `us`, `ms`, `s`, `min` (or `m`), `h`, `day`
/// (or `d`), `week` (or `w`); fractions and sums work (`1.5s`, `1h30min`).
///
/// Fixed windows and ticks begin at the multiples of their period since 1970-01-01 00:00
/// UTC, on every store; periods of whole weeks begin on Monday, 00:00 UTC. `offset` moves
/// them to a later time. Months have no fixed length: write their days, `5 per 30day`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    pub(crate) amount: u64,
    pub(crate) period_us: u64,
    pub(crate) wait_us: u64,
    pub(crate) offset_us: u64,
    pub(crate) algorithm: Algorithm,
}

/// How a [`Limit`] counts. Each states the most that can start in any window of
/// length W, counted at the start instant (decision + wait) on the store's clock;
/// [`Limit::worst_case`] computes it, and a test brute-forces it. Where
/// callers can be told to wait, W is a microsecond longer: waits are rounded up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Steady refill up to `burst`. Starts full.
    /// Worst case: `max(burst, largest cost) + rate·W`.
    TokenBucket {
        /// Units that may start at once, the first one included.
        burst: u64,
    },
    /// Token bucket with Guava's warm-up: an idle key is cold and starts at a third
    /// of the rate, and reaches the full rate after `warmup` of steady calls.
    /// Worst case: `max(1, largest cost) + rate·W`.
    WarmUp {
        /// Time from cold to warm under steady calls.
        warmup: Duration,
    },
    /// Token bucket refilled with the whole amount at each multiple of the period, in Unix
    /// time (weeks on Monday, UTC), or [`offset`](Limit::offset) later.
    /// Worst case: `cap + amount·(⌊W/period⌋ + 1)`.
    Ticked {
        /// Units that can be saved up.
        cap: u64,
    },
    /// Leaky bucket as a meter: a full bucket refuses.
    /// Worst case: `capacity + rate·W`.
    LeakyBucket {
        /// Units that the bucket holds.
        capacity: u64,
    },
    /// Leaky bucket as a queue: constant outflow, the surplus waits.
    /// Worst case: `max(1, largest cost) + rate·W`.
    LeakyQueue {
        /// Units that may wait.
        queue: u64,
    },
    /// One counter that starts anew at each multiple of the period, in Unix time (weeks on
    /// Monday, UTC), or [`offset`](Limit::offset) later.
    /// Worst case: `amount·(⌈W/period⌉ + 1)`, so nearly twice the amount around a
    /// boundary: its known flaw.
    FixedWindow,
    /// Counters by slice, the oldest counted whole. Slices sit at multiples of their length
    /// in Unix time.
    /// Worst case: `amount` in any period, `amount·⌈W/period⌉` in longer windows.
    SlidingWindow {
        /// Slices that the period is divided into.
        slices: u64,
    },
    /// Every start is remembered for one period.
    /// Worst case: `amount` in any period, exactly.
    SlidingLog,
    /// Units held at the same time; they come back when the permit is dropped.
    /// Worst case: `amount` held at any instant.
    Concurrency {
        /// Calls that may wait for a slot.
        queue: u64,
    },
}

impl Limit {
    /// `amount` in each `period`, a token bucket unless the builder says otherwise.
    pub fn per(amount: u64, period: Duration) -> LimitBuilder {
        LimitBuilder::new(amount, period, None)
    }

    /// `amount` a second, a token bucket unless the builder says otherwise.
    pub fn per_second(amount: u64) -> LimitBuilder {
        Self::per(amount, Duration::from_secs(1))
    }

    /// A token bucket that gets `amount` at each multiple of `tick`.
    pub fn every(amount: u64, tick: Duration) -> LimitBuilder {
        LimitBuilder::new(amount, tick, Some(Shape::Ticked))
    }

    /// `amount` units held at the same time.
    pub fn concurrent(amount: u64) -> LimitBuilder {
        LimitBuilder::new(amount, Duration::ZERO, Some(Shape::Concurrency))
    }

    /// Units in each period (or held at once, for a concurrency limit).
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// The period of the amount; zero for a concurrency limit, which has none.
    pub fn period(&self) -> Duration {
        Duration::from_micros(self.period_us)
    }

    /// The longest wait that a caller can be told.
    pub fn wait(&self) -> Duration {
        Duration::from_micros(self.wait_us)
    }

    /// How much later than the multiples of the period windows and ticks begin.
    pub fn offset(&self) -> Duration {
        Duration::from_micros(self.offset_us)
    }

    /// How it counts.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// The units that can start at once from an unused key: what `remaining` is
    /// counted against.
    pub fn capacity(&self) -> u64 {
        match self.algorithm {
            TokenBucket { burst: units } | Ticked { cap: units } | LeakyBucket { capacity: units } => units,
            WarmUp { .. } | LeakyQueue { .. } => 1,
            FixedWindow | SlidingWindow { .. } | SlidingLog | Concurrency { .. } => self.amount,
        }
    }

    /// The most units that can start in any window of length `window`, whatever the
    /// callers do, if no call costs more than `largest_cost`. For a concurrency
    /// limit: the most held at any instant. Saturates.
    ///
    /// ```
    /// use std::time::Duration;
    /// let limit: tidegate::Limit = "100/s burst 20".parse()?;
    /// assert_eq!(limit.worst_case(Duration::from_secs(2), 1), 220);
    /// # Ok::<(), tidegate::LimitError>(())
    /// ```
    pub fn worst_case(&self, window: Duration, largest_cost: u64) -> u64 {
        let window = window.as_micros();
        let (amount, period) = (u128::from(self.amount), u128::from(self.period_us.max(1)));
        let largest = u128::from(largest_cost);
        // Told waits are rounded up to whole microseconds, so two starts can be closer
        // by one than they should.
        let flow = amount.saturating_mul(window + u128::from(self.can_wait())) / period;
        let windows = window.div_ceil(period).max(1);
        let units = match self.algorithm {
            TokenBucket { burst: first } | LeakyBucket { capacity: first } => {
                u128::from(first).max(largest).saturating_add(flow)
            }
            WarmUp { .. } | LeakyQueue { .. } => largest.max(1).saturating_add(flow),
            Ticked { cap } => u128::from(cap).saturating_add(amount.saturating_mul(window / period + 1)),
            FixedWindow => amount.saturating_mul(windows + 1),
            SlidingWindow { .. } | SlidingLog => amount.saturating_mul(windows),
            Concurrency { .. } => amount,
        };
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// True if a caller can be told to wait: by `wait`, or by a leaky bucket's queue.
    #[doc(hidden)]
    pub fn can_wait(&self) -> bool {
        self.wait_us > 0 || matches!(self.algorithm, LeakyQueue { .. })
    }

    /// What is wrong with a cost that makes this limit mean nothing: 0, or more than can start
    /// at once from an unused key. For all who read a cost before there is a call: rules and
    /// the attribute. Hidden, as a call itself is told `Denial::Never`. Costs of a leaky queue
    /// and a warm-up are not checked: they are a wait, which the wait that is in force at the
    /// call bounds.
    #[doc(hidden)]
    pub fn check_cost(&self, units: u64) -> Result<(), String> {
        let most = match self.algorithm {
            // They count a wait, not a heap of units.
            WarmUp { .. } | LeakyQueue { .. } => u64::MAX,
            TokenBucket { .. } | Ticked { .. } | LeakyBucket { .. } => self.capacity(),
            FixedWindow | SlidingWindow { .. } | SlidingLog | Concurrency { .. } => self.capacity(),
        };
        match units {
            0 => Err(format!("a call that costs 0 is never refused: write how much of `{self}` it takes")),
            units if units > most => Err(format!(
                "a call costs {units}, and `{self}` never has more than {most}: none would ever run"
            )),
            _ => Ok(()),
        }
    }

    /// `period / amount` in lowest terms: ticks a unit, ticks a microsecond.
    #[doc(hidden)]
    pub fn cell_and_drain(&self) -> (u64, u64) {
        let (mut a, mut b) = (self.period_us, self.amount);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        (self.period_us / a, self.amount / a)
    }

    #[doc(hidden)]
    pub fn period_us(&self) -> u64 {
        self.period_us
    }

    #[doc(hidden)]
    pub fn wait_us(&self) -> u64 {
        self.wait_us
    }

    #[doc(hidden)]
    pub fn offset_us(&self) -> u64 {
        self.offset_us
    }
}
