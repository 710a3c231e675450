//! Checks that bring their limits along, at a gate with another one: as a subject of the suite,
//! and as nodes whose limits differ.

use crate::library::{Clocked, as_seen, micros, of_verdict};
use crate::{Mode, Seen, Subject};
use tidegate::{Check, Gate, Limit, Limiter, ManualClock, Permit, Timestamp, Verdict};

/// One gate that is only checked by limits of the checks' own, one for each node.
pub struct OwnLimits {
    clock: ManualClock,
    limiter: Limiter,
    gate: Gate,
    /// Denies whatever it is asked, so that a transaction with it is a look.
    closed: Gate,
    limits: Vec<Limit>,
    node: usize,
    permits: Vec<Option<Permit>>,
}

impl OwnLimits {
    /// A fresh gate under a limit that no check is decided by.
    ///
    /// # Panics
    /// Where the library refuses a sound limit.
    pub fn on(clocked: &Clocked, limits: &[Limit]) -> Self {
        let gate_limit: Limit = "3/day".parse().expect("a limit");
        Self {
            gate: clocked.gate(&gate_limit),
            closed: clocked.gate(&gate_limit),
            clock: clocked.clock.clone(),
            limiter: clocked.limiter.clone(),
            limits: limits.to_vec(),
            node: 0,
            permits: Vec::new(),
        }
    }

    fn check<'a>(&'a self, key: &'a [u8], cost: u64) -> Check<'a> {
        let limit = &self.limits[self.node];
        Check::new(&self.gate, key).cost(cost).limit(limit).expect("a rate can come with a check")
    }

    /// What a check would be answered, and how full the key is without it.
    fn peek(&self, key: &[u8], cost: u64) -> Seen {
        let closed = Check::new(&self.closed, "any").cost(u64::MAX);
        let verdict = self.limiter.check(&[self.check(key, cost), closed]);
        let as_it_is = as_seen(self.limiter.check(&[self.check(key, 0)]).decision());
        let seen = as_seen(&verdict.decisions()[0]);
        Seen { remaining: as_it_is.remaining, reset_us: as_it_is.reset_us, ..seen }
    }

    fn at(&self, now_us: u64) {
        self.clock.set(Timestamp::from_micros(now_us));
    }

    fn permit(&mut self, now_us: u64, grant: usize) -> Option<Permit> {
        self.at(now_us);
        self.permits.get_mut(grant)?.take()
    }
}

impl Subject for OwnLimits {
    fn decide(&mut self, now_us: u64, key: &[u8], cost: u64, mode: Mode) -> Seen {
        self.at(now_us);
        let verdict: Verdict = match mode {
            Mode::Peek => return self.peek(key, cost),
            Mode::Check => self.limiter.check(&[self.check(key, cost)]),
            Mode::Reserve => self.limiter.reserve(&[self.check(key, cost)]),
        };
        let seen = of_verdict(&verdict);
        assert_eq!(micros(verdict.wait()), seen.wait_us);
        if let (Mode::Reserve, Ok(permit)) = (mode, verdict.into_permit()) {
            self.permits.push(Some(permit));
        }
        seen
    }

    fn refund(&mut self, now_us: u64, grant: usize, units: u64) {
        self.at(now_us);
        if let Some(Some(permit)) = self.permits.get_mut(grant) {
            permit.refund_units(units);
        }
    }

    fn settle(&mut self, now_us: u64, grant: usize, cost: u64) {
        if let Some(permit) = self.permit(now_us, grant) {
            permit.settle(cost);
        }
    }

    fn cancel(&mut self, now_us: u64, grant: usize) {
        if let Some(permit) = self.permit(now_us, grant) {
            permit.cancel();
        }
    }

    fn release(&mut self, now_us: u64, grant: usize) {
        drop(self.permit(now_us, grant));
    }

    fn reset(&mut self, now_us: u64, key: &[u8]) {
        self.at(now_us);
        self.gate.reset(key);
    }

    fn change(&mut self, _now_us: u64, limit: &Limit) {
        self.limits[self.node] = limit.clone();
    }

    fn turn_to(&mut self, node: usize) {
        self.node = node;
    }

    fn restart(&mut self, _now_us: u64, limit: &Limit) {
        panic!("a gate alone does not start again under `{limit}`");
    }
}
