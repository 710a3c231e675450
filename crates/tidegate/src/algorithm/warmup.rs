//! Warm-up: Guava's trapezoid with cold factor 3.
//!
//! A key that rests stores permits, up to one warm-up's worth; the upper half of
//! them is sold at a price that rises to three intervals each, so a cold key starts
//! at a third of its rate. Unlike Guava's, each call pays its own wait: it starts
//! one price after the start before it. Time at rest pays that price first, and only
//! what is left of it cools the key.

use super::scale::{millionths_of, ticks_of};
use super::{Answer, Counting, Gauge, Grant, MILLIONTHS, Mode, Step};
use crate::decision::DenialReason;

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
    /// Zero for an unused key: that is longer ago than any unit costs, so it can start.
    pub(crate) last_start: u128,
    /// Permits in store, as their ticks at the full rate.
    pub(crate) stored: u128,
}

/// A state brought up to now.
struct Rested {
    stored: u128,
    /// When a call of one unit could start: now, if rest has paid for it.
    first: u128,
}

#[cfg(feature = "redis")]
impl WarmUp {
    /// What another store holds for a key, its last start in ticks from `now_us`.
    pub(crate) fn state(&self, now_us: u64, used: bool, base: i64, stored: u64) -> WarmState {
        if !used {
            return self.unused();
        }
        let last_start = self.instant(now_us).saturating_add_signed(i128::from(base));
        WarmState { last_start, stored: u128::from(stored) }
    }

    /// The last start: microseconds, and ticks within one.
    pub(crate) fn last_start(&self, state: WarmState) -> (u64, u64) {
        let drain = u128::from(self.drain);
        let us = u64::try_from(state.last_start / drain).unwrap_or(u64::MAX);
        (us.saturating_sub(ORIGIN_US), (state.last_start % drain) as u64)
    }
}

impl Counting for WarmUp {
    type State = WarmState;

    fn decide(&self, now_us: u64, state: &mut WarmState, cost: u64, mode: Mode, _limit: u64) -> Answer {
        self.repair(now_us, state);
        let state = *state;
        if cost == 0 {
            return Answer::allowed(0, self.gauge(now_us, state), Step::Keep);
        }
        let longest = self.ticks(if mode == Mode::Reserve { self.wait_us } else { 0 });
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
            let refused = if rested.first == now || price - unit_price > longest {
                DenialReason::Busy
            } else {
                DenialReason::Later { retry_us: self.us(short) }
            };
            return Answer::denied(refused, self.gauge(now_us, state));
        }
        let before = WarmState { last_start: rested.first - unit_price, stored: rested.stored };
        let after = WarmState { last_start: start, stored: rested.stored.saturating_sub(spent) };
        Answer::allowed(self.us(start - now), self.gauge(now_us, after), Step::Warm { before, after })
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
        if state.last_start != after.last_start {
            return false;
        }
        let kept = u128::from(grant.cost.saturating_sub(units)) * u128::from(self.cell);
        let last_start = before.last_start + self.price(before.stored, kept);
        *state = WarmState { last_start, stored: before.stored.saturating_sub(kept) };
        grant.mark = Step::Warm { before, after: *state };
        true
    }

    /// The next start moves on by it.
    fn charge_debt(&self, now_us: u64, state: &mut WarmState, units: u64) {
        self.repair(now_us, state);
        let now = self.instant(now_us);
        let stored = self.rest(now, *state).stored;
        let owed = state.last_start.max(now) + u128::from(units) * u128::from(self.cell);
        *state = WarmState { last_start: owed.min(now + self.furthest()).max(state.last_start), stored };
    }

    /// The time until one unit could start.
    fn used(&self, now_us: u64, state: &WarmState) -> u128 {
        let now = self.instant(now_us);
        let mut state = *state;
        self.repair(now_us, &mut state);
        millionths_of(self.rest(now, state).first - now, self.cell)
    }

    fn convert(&self, now_us: u64, millionths: u128) -> WarmState {
        if millionths == 0 {
            return self.unused();
        }
        let more = millionths.saturating_sub(u128::from(MILLIONTHS));
        let last_start = self.instant(now_us) + ticks_of(more, self.cell).min(self.furthest());
        WarmState { last_start, stored: self.cold() }
    }

    fn empty_us(&self, now_us: u64, state: &WarmState) -> u64 {
        let price = self.price(state.stored, u128::from(self.cell));
        let cold_again = state.last_start + price + (self.cold() - state.stored);
        self.us(cold_again.saturating_sub(self.instant(now_us)))
    }
}

impl WarmUp {
    pub(super) fn longest_us(&self) -> u64 {
        self.wait_us + 4 * self.warmup_us + 3 * self.cell.div_ceil(self.drain)
    }

    /// Cold.
    fn unused(&self) -> WarmState {
        WarmState { last_start: 0, stored: self.cold() }
    }

    fn rest(&self, now: u128, state: WarmState) -> Rested {
        let paid = state.last_start + self.price(state.stored, u128::from(self.cell));
        let stored = (state.stored + now.saturating_sub(paid)).min(self.cold());
        Rested { stored, first: paid.max(now) }
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
    fn repair(&self, now_us: u64, state: &mut WarmState) {
        state.last_start = state.last_start.min(self.instant(now_us) + self.furthest());
    }

    fn gauge(&self, now_us: u64, state: WarmState) -> Gauge {
        let now = self.instant(now_us);
        let is_free = self.rest(now, state).first == now;
        Gauge::Plain { remaining: u64::from(is_free), reset_us: self.empty_us(now_us, &state) }
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
