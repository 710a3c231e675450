//! What each of the two processes does.

use std::error::Error;
use std::fmt;
use std::ops::Add;
use std::time::Duration;
use tidegate::{Gate, Limiter, Redis};

pub(crate) const ORDERS: &str = "60 per 10min sliding-log";
pub(crate) const ORDERS_MAX: u64 = 60;
pub(crate) const SEARCHES: &str = "100/s burst 30";

/// How often something is asked for, each time: so often that the limits must refuse.
const ASKED: u64 = 100;

/// What a half can be told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Wait until two are there.
    Meet,
    Orders,
    Searches,
}

/// One of the two.
pub(crate) struct Half {
    limiter: Limiter,
    orders: Gate,
    searches: Gate,
    /// Lets this process ask a little at a time. In its own memory: not shared.
    pace: Gate,
}

impl Half {
    /// Both halves share the name, and so the limits.
    pub(crate) fn new(url: &str, name: &str) -> Result<Self, Box<dyn Error>> {
        // Far longer than the usual 20 ms: a decision that misses its deadline may have
        // been counted, and here the sum is shown.
        let redis = Redis::at(url)?.prefix(name)?.deadline(Duration::from_secs(1));
        let limiter = Limiter::builder().redis(redis).build();
        Ok(Self {
            orders: limiter.gate("orders", ORDERS)?,
            searches: limiter.gate("searches", SEARCHES)?,
            pace: Limiter::new().gate("pace", "200/s burst 1 wait 1s")?,
            limiter,
        })
    }

    pub(crate) fn work(&self, work: Work) -> Result<Count, Box<dyn Error>> {
        match work {
            Work::Meet => self.meet(),
            Work::Orders => Ok(self.ask(&self.orders)),
            Work::Searches => Ok(self.ask(&self.searches)),
        }
    }

    fn ask(&self, gate: &Gate) -> Count {
        let mut count = Count::default();
        for _ in 0..ASKED {
            self.pause();
            let decision = gate.check("everyone");
            count.asked += 1;
            if decision.is_allowed() {
                count.allowed += 1;
                count.without_redis += u64::from(decision.is_degraded());
            }
        }
        count
    }

    /// Nodes tell Redis once a second that they are there. How many there are is what each
    /// divides the limits by when Redis goes away.
    fn meet(&self) -> Result<Count, Box<dyn Error>> {
        let nodes = || self.limiter.redis_stats().and_then(|stats| stats.nodes);
        for _ in 0..1_000 {
            if nodes() == Some(2) {
                return Ok(Count::default());
            }
            self.pause();
        }
        Err(match nodes() {
            Some(nodes) => format!("after 5 s there are {nodes} processes on this Redis, not 2").into(),
            None => "after 5 s Redis has not answered: is the URL right?".into(),
        })
    }

    fn pause(&self) {
        drop(self.pace.acquire("this process").blocking());
    }
}

/// What became of what was asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) asked: u64,
    pub(crate) allowed: u64,
    /// Of those, how many the fallback decided.
    pub(crate) without_redis: u64,
}

impl Add for Count {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            asked: self.asked + other.asked,
            allowed: self.allowed + other.allowed,
            without_redis: self.without_redis + other.without_redis,
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} asked, {} allowed, {} of them without Redis",
            self.asked, self.allowed, self.without_redis
        )
    }
}
