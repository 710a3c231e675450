//! Three gates on one store, one for each way to do without it, asked all the while.

use super::check::{DEADLINE, RECOVERY, burst, exceeded, late, let_through, odd};
use super::drive::{Driver, Record, now_us};
use std::time::Duration;
use testkit::servers::{pause, wait_until};
use tidegate::{Fallback, Gate, GateOptions, Limit, Limiter, Redis, RedisStats};

pub(super) const LIMIT: &str = "100/s burst 20";
pub(super) const CAP: &str = "50/s burst 10";

/// Answers without a fault for this long count as exact again.
const QUIET: Duration = Duration::from_millis(300);
/// Longer than it takes to notice that a server is away.
const NOTICED: Duration = Duration::from_secs(2);

/// What is kept of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Kept,
    /// Everything is forgotten, once: at most one more burst.
    Lost,
}

pub(super) struct Trio {
    pub(super) limiter: Limiter,
    local: Driver,
    deny: Driver,
    allow: Driver,
}

/// What was told, and what the store counted.
pub(super) struct Told {
    pub(super) local: Vec<Record>,
    pub(super) deny: Vec<Record>,
    pub(super) allow: Vec<Record>,
    pub(super) stats: RedisStats,
}

pub(super) fn gate(limiter: &Limiter, name: &str, limit: &str, fallback: Fallback) -> Gate {
    limiter.gate_with(name, limit, GateOptions::new().fallback(fallback)).unwrap()
}

impl Trio {
    /// Starts asking, once the store is known to answer and the nodes are counted.
    pub(super) fn start(redis: Redis) -> Self {
        let trio = Self::start_away(redis);
        let limiter = trio.limiter.clone();
        wait_until("a sign of life was answered", RECOVERY, || {
            limiter.redis_stats().unwrap().nodes.is_some()
        });
        trio.run(QUIET);
        trio
    }

    /// Starts asking, whether there is a server or not.
    pub(super) fn start_away(redis: Redis) -> Self {
        let limiter = Limiter::builder().redis(redis).build();
        let driver = |name: &str, fallback: Fallback| {
            Driver::start(&gate(&limiter, name, LIMIT, fallback), &["all"], 2)
        };
        let local = driver("local", Fallback::Local);
        let deny = driver("deny", Fallback::Deny);
        let allow = driver("allow", Fallback::allow(CAP).unwrap());
        Self { limiter, local, deny, allow }
    }

    pub(super) fn run(&self, time: Duration) {
        pause(time);
    }

    pub(super) fn stats(&self) -> RedisStats {
        self.limiter.redis_stats().unwrap()
    }

    /// Waits until the breaker is open.
    #[track_caller]
    pub(super) fn wait_down(&self) {
        wait_until("the server counts as away", NOTICED, || self.stats().shards.iter().any(|s| !s.is_up));
    }

    /// Waits until every gate is exact again and stays so, and tells how long it took since
    /// `back_us`.
    #[track_caller]
    pub(super) fn wait_exact(&self, back_us: u64) -> Duration {
        let drivers = [&self.local, &self.deny, &self.allow];
        let last_us = || drivers.iter().map(|driver| driver.degraded_us()).max().unwrap_or(0).max(back_us);
        wait_until("every gate is exact again", RECOVERY + QUIET, || {
            let quiet_us = last_us() + u64::try_from(QUIET.as_micros()).unwrap_or(u64::MAX);
            drivers.iter().all(|driver| driver.exact_us() > quiet_us)
        });
        Duration::from_micros(last_us() - back_us)
    }

    /// Makes a fault, waits for it to be noticed, lets it last, mends it, and waits until
    /// everything is exact again. Tells how long that took.
    #[track_caller]
    pub(super) fn outage(&self, fault: impl FnOnce(), lasts: Duration, mend: impl FnOnce()) -> Duration {
        fault();
        self.wait_down();
        self.run(lasts);
        mend();
        let took = self.wait_exact(now_us());
        assert!(self.stats().shards.iter().any(|shard| shard.is_up), "{:?}", self.stats());
        self.run(QUIET);
        took
    }

    /// Ends it, and checks everything that holds in any case.
    #[track_caller]
    pub(super) fn end(self, state: State) -> Told {
        let stats = self.stats();
        let (local, deny, allow) = (self.local.stop(), self.deny.stop(), self.allow.stop());
        let limit: Limit = LIMIT.parse().unwrap();
        let cap: Limit = CAP.parse().unwrap();
        let more = if state == State::Lost { limit.capacity() } else { 0 };
        let exact = |window| limit.worst_case(window, 1) + more;
        // One node: its share is the whole.
        let bounds: [(&str, Result<(), String>); 11] = [
            ("deadline of local", late(&local, DEADLINE)),
            ("deadline of deny", late(&deny, DEADLINE)),
            ("deadline of allow", late(&allow, DEADLINE)),
            ("local", exceeded(&local, |window| exact(window) + limit.worst_case(window, 1))),
            ("local, exact", exceeded(of(&local, false), exact)),
            ("local, degraded", exceeded(of(&local, true), |window| limit.worst_case(window, 1))),
            ("local, from empty", burst(&local, &limit)),
            ("deny", exceeded(&deny, exact).and(let_through(&deny))),
            ("allow, exact", exceeded(of(&allow, false), exact)),
            ("allow, degraded", exceeded(of(&allow, true), |window| cap.worst_case(window, 1))),
            ("counters", odd(&stats)),
        ];
        for (what, bound) in bounds {
            bound.unwrap_or_else(|error| panic!("{what}: {error}\n{stats:?}"));
        }
        Told { local, deny, allow, stats }
    }
}

fn of(records: &[Record], is_degraded: bool) -> impl Iterator<Item = &Record> {
    records.iter().filter(move |record| record.is_degraded == is_degraded)
}

impl Told {
    /// Starts that the store did not decide on, by gate: local, deny, allow.
    pub(super) fn degraded_starts(&self) -> [usize; 3] {
        [&self.local, &self.deny, &self.allow]
            .map(|records| of(records, true).filter(|record| record.is_allowed).count())
    }
}
