//! Warm-up: Guava's trapezoid with cold factor 3.
//!
//! A key that rests stores permits, up to one warm-up's worth; the upper half of
//! them is sold at a price that rises to three intervals each, so a cold key starts
//! at a third of its rate. Unlike Guava's, each call pays its own wait: it starts
//! one price after the start before it. Time at rest pays that price first, and only
//! what is left of it cools the key.

use super::{Answer, Counting, Gauge, Grant, MILLIONTHS, Mode, Step};
use crate::decision::{DecisionOutcome, DenialReason};

const ORIGIN_US: u64 = 1 << 50;

/// A warm-up's numbers, in ticks: a unit takes `cell`, a microsecond has `drain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WarmUp {
    pub(crate) cell: u64,
    pub(crate) drain: u64,
    pub(crate) warmup_us: u64,
    pub(crate) wait_us: u64,
}

/// What one key has used, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WarmState {
    /// The last start.
    base: u128,
    /// Permits in store, as their ticks at the full rate.
    stored: u128,
    /// False until the first start: no rest is too short for it.
    used: bool,
}

/// A state brought up to now.
#[derive(Clone, Copy)]
struct Rested {
    stored: u128,
    /// When a call of one unit could start, at the earliest now.
    first: u128,
    /// The price of one unit was paid by rest.
    is_paid: bool,
}

impl WarmState {
    /// The last start, in ticks.
    pub(crate) fn last_start(&self) -> u128 {
        self.base
    }

    /// Permits in store, as their ticks.
    #[cfg(feature = "redis")]
    pub(crate) fn stored(&self) -> u128 {
        self.stored
    }
}

#[cfg(feature = "redis")]
impl WarmUp {
    /// What another store holds for a key, its last start in ticks from `now_us`.
    pub(crate) fn state(&self, now_us: u64, used: bool, base: i64, stored: u64) -> WarmState {
        let base = self.instant(now_us).saturating_add_signed(i128::from(base));
        WarmState { base: if used { base } else { 0 }, stored: u128::from(stored), used }
    }

    /// The last start: microseconds, and ticks within one.
    pub(crate) fn last_start(&self, state: WarmState) -> (u64, u64) {
        let drain = u128::from(self.drain);
        let us = u64::try_from(state.base / drain).unwrap_or(u64::MAX);
        (us.saturating_sub(ORIGIN_US), (state.base % drain) as u64)
    }
}

impl Counting for WarmUp {
    type State = WarmState;

    /// Cold.
    fn unused(&self) -> WarmState {
        WarmState { base: 0, stored: self.cold(), used: false }
    }

    fn decide(&self, now_us: u64, state: &mut WarmState, cost: u64, mode: Mode, _capacity: u64) -> Answer {
        self.repair(now_us, state);
        let state = *state;
        if cost == 0 {
            let outcome = DecisionOutcome::Allow { wait_us: 0 };
            return Answer { outcome, gauge: self.gauge(now_us, state), step: Step::Keep };
        }
        let longest_us = if mode == Mode::Reserve { self.wait_us } else { 0 };
        let longest = self.ticks(longest_us);
        let more = u128::from(cost - 1) * u128::from(self.cell);
        if more > longest {
            return Answer::denied(DenialReason::Never, self.gauge(now_us, state));
        }
        let now = self.instant(now_us);
        let spent = u128::from(cost) * u128::from(self.cell);
        let rested = self.rest(now, state);
        let price = self.price(rested.stored, spent);
        let unit_price = self.price(rested.stored, u128::from(self.cell));
        let start = rested.first + (price - unit_price);
        if start - now > longest {
            let short = start - now - longest;
            // Rest helps only as far as it pays for one unit; beyond, it cools.
            let refused = if rested.is_paid || price - unit_price > longest {
                DenialReason::Busy
            } else {
                DenialReason::Later { retry_us: self.us(short) }
            };
            return Answer::denied(refused, self.gauge(now_us, state));
        }
        let next = WarmState { base: start, stored: rested.stored.saturating_sub(spent), used: true };
        Answer {
            outcome: DecisionOutcome::Allow { wait_us: self.us(start - now) },
            gauge: self.gauge(now_us, next),
            step: Step::Warm {
                before: WarmState {
                    base: rested.first.saturating_sub(unit_price),
                    stored: rested.stored,
                    used: true,
                },
                after: next,
            },
        }
    }

    fn repair(&self, now_us: u64, state: &mut WarmState) {
        *state = self.repaired(now_us, *state);
    }

    fn apply(&self, state: &mut WarmState, step: Step) {
        if let Step::Warm { after, .. } = step {
            *state = after;
        }
    }

    /// Only the last start comes back, as later ones stand on it: then the state is as if only the
    /// units that stay had been taken.
    fn refund(&self, now_us: u64, state: &mut WarmState, grant: &mut Grant, units: u64) -> bool {
        self.repair(now_us, state);
        let Step::Warm { before, after } = grant.mark else { return false };
        if !state.used || state.base != after.base {
            return false;
        }
        let kept = u128::from(grant.cost.saturating_sub(units)) * u128::from(self.cell);
        let base = before.base + self.price(before.stored, kept);
        *state = WarmState { base, stored: before.stored.saturating_sub(kept), used: true };
        grant.mark = Step::Warm { before, after: *state };
        true
    }

    /// The next start moves on by it.
    fn charge_debt(&self, now_us: u64, state: &mut WarmState, units: u64) {
        self.repair(now_us, state);
        let now = self.instant(now_us);
        let stored = self.rest(now, *state).stored;
        let base = if state.used { state.base.max(now) } else { now };
        let owed = base + u128::from(units) * u128::from(self.cell);
        *state = WarmState { base: owed.min(now + self.furthest()).max(state.base), stored, used: true };
    }

    /// The time until one unit could start.
    fn used(&self, now_us: u64, state: &WarmState) -> u128 {
        let now = self.instant(now_us);
        let first = self.rest(now, self.repaired(now_us, *state)).first - now;
        (first * u128::from(MILLIONTHS)).div_ceil(u128::from(self.cell))
    }

    fn convert(&self, now_us: u64, millionths: u128) -> WarmState {
        if millionths == 0 {
            return self.unused();
        }
        let more = millionths.saturating_sub(u128::from(MILLIONTHS));
        let ticks = more.saturating_mul(u128::from(self.cell)).div_ceil(u128::from(MILLIONTHS));
        let base = self.instant(now_us) + ticks.min(self.furthest());
        WarmState { base, stored: self.cold(), used: true }
    }

    fn idle_at(&self, now_us: u64, state: &WarmState) -> u64 {
        now_us.saturating_add(self.empty_us(now_us, *state))
    }

    fn longest_us(&self) -> u64 {
        self.wait_us + 4 * self.warmup_us + 3 * self.cell.div_ceil(self.drain)
    }

    fn counts_like(&self, other: &Self) -> bool {
        self == other
    }
}

impl WarmUp {
    fn rest(&self, now: u128, state: WarmState) -> Rested {
        let unit_price = self.price(state.stored, u128::from(self.cell));
        if !state.used {
            return Rested { stored: self.cold(), first: now, is_paid: true };
        }
        let paid = state.base + unit_price;
        if now >= paid {
            let stored = (state.stored + (now - paid)).min(self.cold());
            Rested { stored, first: now, is_paid: true }
        } else {
            Rested { stored: state.stored, first: paid, is_paid: false }
        }
    }

    /// Ticks that `spent` permits cost out of `stored`: their own length, and for
    /// those above the half the area under the slope, rounded up.
    fn price(&self, stored: u128, spent: u128) -> u128 {
        let upper = self.cold().div_ceil(2);
        let above = stored.saturating_sub(self.cold() - upper);
        let dear = spent.min(above);
        spent + (dear * (2 * above - dear)).div_ceil(upper)
    }

    /// A clock that has been ahead and came back must not lock anyone out.
    fn repaired(&self, now_us: u64, mut state: WarmState) -> WarmState {
        state.base = state.base.min(self.instant(now_us) + self.furthest());
        state
    }

    fn empty_us(&self, now_us: u64, state: WarmState) -> u64 {
        if !state.used {
            return 0;
        }
        let price = self.price(state.stored, u128::from(self.cell));
        let cold_again = state.base + price + (self.cold() - state.stored);
        self.us(cold_again.saturating_sub(self.instant(now_us)))
    }

    fn gauge(&self, now_us: u64, state: WarmState) -> Gauge {
        let now = self.instant(now_us);
        let is_free = self.rest(now, state).first == now;
        Gauge::Plain { remaining: u64::from(is_free), reset_us: self.empty_us(now_us, state) }
    }

    fn cold(&self) -> u128 {
        self.ticks(self.warmup_us)
    }

    fn furthest(&self) -> u128 {
        self.ticks(self.wait_us + self.warmup_us)
    }

    /// A point in time. Starts long after zero, so that a start taken back near the
    /// clock's beginning has somewhere to go.
    fn instant(&self, now_us: u64) -> u128 {
        self.ticks(ORIGIN_US + now_us)
    }

    fn ticks(&self, us: u64) -> u128 {
        u128::from(us) * u128::from(self.drain)
    }

    fn us(&self, ticks: u128) -> u64 {
        u64::try_from(ticks.div_ceil(u128::from(self.drain))).unwrap_or(u64::MAX)
    }
}
