//! What a permit holds of a limit in Redis, and how it goes back.

use super::RedisGate;
use crate::clock::Timestamp;
use crate::store::redis::lock;
use crate::store::redis::request::{GateKey, RefundedCharge, UpdateKind};
use crate::store::redis::script::numbers::{RENEWED_HELD, RENEWED_LOST};
use crate::store::redis::script::replay::ChargeMark;
use crate::store::{Correction, Shares, StoreCharge};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One charge. A refund is sent, and not waited for.
pub(crate) struct GateCharge {
    pub(crate) key: GateKey,
    /// Units still charged.
    pub(crate) cost: u64,
    /// When this limit lets it start, on the server's clock.
    start_us: u64,
    mark: Arc<Mutex<ChargeMark>>,
    holder: Option<Arc<SlotHolder>>,
}

/// Slots that are held, renewed as long as their permit lives.
pub(crate) struct SlotHolder {
    pub(crate) key: GateKey,
    number: u64,
    units: AtomicU64,
    is_lost: AtomicBool,
    /// When the last sign that was heard of was sent, on the local clock.
    renewed_us: AtomicU64,
}

/// A member of the set of holders: whose it is, which, how long its lease is (in whole
/// milliseconds, rounded up), and how many units.
pub(crate) fn member(gate: &RedisGate, number: u64, units: u64) -> String {
    let lease_ms = gate.slot_lease.as_micros().div_ceil(1_000);
    format!("{}.{number}~{lease_ms}:{units}", gate.client().node)
}

impl GateCharge {
    pub(crate) fn new(
        key: &GateKey,
        cost: u64,
        start_us: u64,
        mark: ChargeMark,
        slot: Option<u64>,
        sent: Timestamp,
    ) -> Self {
        let holder = slot.filter(|_| cost > 0).map(|number| {
            let holder = Arc::new(SlotHolder {
                key: key.clone(),
                number,
                units: AtomicU64::new(cost),
                is_lost: AtomicBool::new(false),
                renewed_us: AtomicU64::new(sent.as_micros()),
            });
            key.gate.client().held_slots.add(&holder);
            holder
        });
        let mark = Arc::new(Mutex::new(mark));
        Self { key: key.clone(), cost, start_us, mark, holder }
    }

    /// Refunds `units` of the `charged` that its key was charged.
    pub(crate) fn refund(&self, charged: u64, units: u64) {
        match &self.holder {
            _ if units == 0 => {}
            Some(holder) => holder.release(units),
            // A limit that was changed since gives nothing back: its units are others.
            None if !self.key.gate.decides(&self.key.version) => {}
            None => {
                let (start_us, mark) = (self.start_us, self.mark.clone());
                self.key.refund(Some(RefundedCharge { cost: charged, start_us, mark, units }));
            }
        }
    }

    /// The call does not happen. Slots are released by the drop.
    pub(crate) fn cancel(self) {
        if self.holder.is_none() {
            self.refund(self.cost, self.cost);
        }
    }
}

/// What the checks of one group were charged, key by key.
pub(crate) struct RedisCharge(pub(crate) Vec<(GateCharge, Shares)>);

impl StoreCharge for RedisCharge {
    fn settle(&mut self, costs: &[u64]) {
        for (charge, shares) in &mut self.0 {
            match shares.correct(costs, charge.key.version.has_slots()) {
                Correction::Nothing => {}
                Correction::Refund { charged, units } => charge.refund(charged, units),
                // Slots are held one by one: they have none.
                Correction::Debt { units } => charge.key.send(UpdateKind::ChargeDebt(units)),
            }
            charge.cost = shares.charged();
        }
    }

    fn is_lost(&self) -> bool {
        self.0.iter().filter_map(|(charge, _)| charge.holder.as_ref()).any(|holder| holder.is_lost())
    }
}

impl Drop for GateCharge {
    fn drop(&mut self) {
        if self.holder.is_some() {
            self.refund(self.cost, self.cost);
        }
    }
}

/// Calls that were cancelled earlier and are tried again together.
const CANCELLED_MAX: usize = 16;

impl GateKey {
    /// Refunds a caller's charge, and with it those that were cancelled before it while others had
    /// reserved behind. A cancelled call is remembered or in flight, never both: what was sent and
    /// not answered is not sent again.
    fn refund(&self, own: Option<RefundedCharge>) {
        let (number, numbers) = (self.version.number, &self.version.numbers);
        let rank = |(_, charge): &(u64, RefundedCharge)| charge.mark().rank(numbers);
        let earlier = self.gate.cancelled.take_highest(self.hash, CANCELLED_MAX, rank);
        let has_own = own.is_some();
        let earlier = earlier.into_iter().filter(|(of, _)| *of == number).map(|(_, charge)| charge);
        let charges: Vec<RefundedCharge> = own.into_iter().chain(earlier).collect();
        if !charges.is_empty() {
            self.send(UpdateKind::Refund { charges, has_own });
        }
    }

    /// Which of the charges came back.
    pub(crate) fn refunded(&self, charges: Vec<RefundedCharge>, came_back: &[bool]) {
        let has_more = came_back.contains(&true) && self.gate.cancelled.has(self.hash);
        let now_us = self.gate.client().clock.now().as_micros();
        let until_us = now_us.saturating_add(self.version.numbers.longest_us());
        for (charge, came_back) in charges.into_iter().zip(came_back) {
            if !came_back && charge.units >= charge.cost && until_us > now_us {
                self.gate.cancelled.remember(self.hash, (self.version.number, charge), now_us, until_us);
            }
        }
        // Cancelled together with the one that made way for them.
        if has_more {
            self.refund(None);
        }
    }

    /// Sends an update that nobody waits for.
    pub(crate) fn send(&self, kind: UpdateKind) {
        self.forget_denial();
        drop(self.gate.client().send(Some(self.clone()), kind));
    }
}

impl RefundedCharge {
    pub(crate) fn mark(&self) -> ChargeMark {
        *lock(&self.mark)
    }
}

impl SlotHolder {
    pub(crate) fn member(&self) -> String {
        member(&self.key.gate, self.number, self.units.load(Ordering::Relaxed))
    }

    fn release(&self, units: u64) {
        let member = self.member();
        let left = self.units.load(Ordering::Relaxed).saturating_sub(units);
        self.units.store(left, Ordering::Relaxed);
        let left = if left > 0 { self.member() } else { String::new() };
        self.key.send(UpdateKind::Release { member, left });
    }

    /// A renewal was answered.
    pub(crate) fn renewed(&self, member: &str, answer: i64, sent: Timestamp) {
        match answer {
            RENEWED_HELD => {
                self.renewed_us.fetch_max(sent.as_micros(), Ordering::Relaxed);
            }
            // Part of it was released meanwhile, and it goes by another name.
            RENEWED_LOST if self.member() == member => self.is_lost.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    /// True if the slots are no longer this holder's, or nobody can say that they are.
    fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed) || self.since() >= self.key.gate.slot_lease
    }

    /// True if it is time for a sign of life, or if `all` are to give one.
    pub(crate) fn is_due(&self, all: bool) -> bool {
        let is_held = self.units.load(Ordering::Relaxed) > 0 && !self.is_lost.load(Ordering::Relaxed);
        is_held && (all || self.since() >= self.key.gate.slot_lease / 3)
    }

    fn since(&self) -> Duration {
        let now = self.key.gate.client().clock.now();
        now.since(Timestamp::from_micros(self.renewed_us.load(Ordering::Relaxed)))
    }
}
