//! A limit in force under a name, and the checks of its keys.

use crate::acquire::{Acquire, acquire};
use crate::algorithm::Mode;
use crate::check::OwnedCheck;
use crate::clock::StoreClock;
use crate::decision::Decision;
use crate::pending::Pending;
use crate::store::{Backend, Pinned, holds_slots};
use crate::transaction::{decide_blocking, decide_later};
use crate::verdict::Verdict;
use crate::{Limit, LimitError};
use std::fmt;
use std::sync::Arc;

pub use crate::gate_error::GateError;

/// A [`Limit`] in force under a name, in one [`Limiter`](crate::Limiter).
///
/// Cheap to clone; clones are the same gate. Keys are any bytes (`"user:42"`). Default cost: 1
/// unit.
///
/// ```
/// use tidegate::Limiter;
///
/// let limiter = Limiter::new();
/// let gate = limiter.gate("search", "2/min")?;
/// assert!(gate.check("user:42").is_allowed());
/// assert!(gate.check("user:42").is_allowed());
///
/// let denied = gate.check("user:42");
/// assert!(!denied.is_allowed());
/// assert!(denied.retry_after().unwrap().as_secs() < 30);
/// # Ok::<(), tidegate::GateError>(())
/// ```
#[derive(Clone)]
pub struct Gate {
    shared: Arc<Shared>,
}

struct Shared {
    name: Box<str>,
    /// The limit that it was defined with, which may not be in force any more.
    defined: Limit,
    clock: StoreClock,
    backend: Backend,
}

/// In memory everything is decided at once. On a limiter over another store, methods without
/// `_async` block the calling thread, at most for the store's deadline; those with it are for
/// async code, under any executor.
impl Gate {
    /// Decides now and takes one unit if there is one. Never waits for a start.
    #[inline]
    pub fn check<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Decision {
        self.check_cost(key, 1)
    }

    /// Decides now and takes `cost` units if they fit. Never waits for a start. A cost
    /// of 0 is always allowed and takes nothing.
    ///
    /// What costs more than can start at once from an unused key ([`Limit::capacity`]) is
    /// denied as [`Denial::Never`](crate::Denial::Never). That is 1 for a leaky queue and a
    /// warm-up, where more units are a longer wait: [`reserve_cost`](Self::reserve_cost).
    #[inline]
    pub fn check_cost<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        self.shared.backend.check(key.as_ref(), cost)
    }

    /// [`check`](Self::check) for async code.
    pub fn check_async<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Pending<Decision> {
        self.check_cost_async(key, 1)
    }

    /// [`check_cost`](Self::check_cost) for async code.
    pub fn check_cost_async<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> Pending<Decision> {
        self.shared.backend.check_async(key.as_ref(), cost)
    }

    /// [`check`](Self::check) for many keys, in order, each 64 at one instant. The
    /// waits for memory overlap, which for millions of keys is several times faster
    /// than one by one.
    ///
    /// ```
    /// # let limiter = tidegate::Limiter::new();
    /// # let gate = limiter.gate("search", "1/min")?;
    /// let mut allowed = 0;
    /// gate.check_batch(&["ann", "bob", "ann"], |_, decision| {
    ///     allowed += usize::from(decision.is_allowed());
    /// });
    /// assert_eq!(allowed, 2);
    /// # Ok::<(), tidegate::GateError>(())
    /// ```
    pub fn check_batch<K: AsRef<[u8]>>(&self, keys: &[K], each: impl FnMut(usize, Decision)) {
        self.shared.backend.check_batch(keys, each);
    }

    /// What [`check`](Self::check) would decide, with nothing taken.
    pub fn peek<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Decision {
        self.peek_cost(key, 1)
    }

    /// What [`check_cost`](Self::check_cost) would decide, with nothing taken.
    pub fn peek_cost<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        self.peek_cost_async(key, cost).blocking()
    }

    /// [`peek`](Self::peek) for async code.
    pub fn peek_async<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Pending<Decision> {
        self.peek_cost_async(key, 1)
    }

    /// [`peek_cost`](Self::peek_cost) for async code.
    pub fn peek_cost_async<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> Pending<Decision> {
        self.shared.backend.peek_async(key.as_ref(), cost)
    }

    /// Takes one unit now or, within the limit's `wait`, later: the permit says when
    /// the call may start, and the caller waits for it. A concurrency limit gives a
    /// slot now or not at all; [`acquire`](Self::acquire) queues for one.
    ///
    /// ```
    /// # let limiter = tidegate::Limiter::new();
    /// let gate = limiter.gate("report", "1/s wait 2s")?;
    /// let first = gate.reserve("ann").into_permit()?;
    /// let second = gate.reserve("ann").into_permit()?;
    /// assert!(first.wait().is_zero());
    /// assert!(second.wait().as_millis() > 900);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Verdict {
        self.reserve_cost(key, 1)
    }

    /// [`reserve`](Self::reserve) for `cost` units.
    ///
    /// On a leaky queue the call starts when all but one of its units have flowed out, so at
    /// most `queue + 1` fit. On a warm-up it pays for all but one of them before it starts:
    /// up to three times `(cost − 1) / rate` on a cold key, where it is
    /// [`Denial::Busy`](crate::Denial::Busy) if only that makes it longer than the wait.
    pub fn reserve_cost<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> Verdict {
        decide_blocking(&[OwnedCheck::new(self, key.as_ref(), cost)], Mode::Reserve)
    }

    /// [`reserve`](Self::reserve) for async code.
    pub fn reserve_async<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Pending<Verdict> {
        self.reserve_cost_async(key, 1)
    }

    /// [`reserve_cost`](Self::reserve_cost) for async code.
    pub fn reserve_cost_async<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> Pending<Verdict> {
        decide_later(vec![OwnedCheck::new(self, key.as_ref(), cost)], Mode::Reserve)
    }

    /// Reserves one unit and waits for its start, under any executor. A future that
    /// is dropped while it waits gives back what it reserved, if nobody reserved after it.
    pub fn acquire<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Acquire {
        self.acquire_cost(key, 1)
    }

    /// [`acquire`](Self::acquire) for `cost` units.
    pub fn acquire_cost<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> Acquire {
        acquire(vec![OwnedCheck::new(self, key.as_ref(), cost)])
    }

    /// Forgets what a key has used. Slots of a concurrency limit that are held stay held. A
    /// permit from before must not be refunded afterwards: its units are forgotten already.
    pub fn reset<K: AsRef<[u8]> + ?Sized>(&self, key: &K) {
        self.reset_async(key).blocking();
    }

    /// [`reset`](Self::reset) for async code: true once it is done, false if the store
    /// did not answer in time.
    pub fn reset_async<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Pending<bool> {
        self.shared.backend.reset_async(key.as_ref())
    }

    /// A fixed key resolved once: no hashing and no search from then on.
    pub fn handle<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Handle {
        let pinned = self.shared.backend.pin(key.as_ref());
        Handle { shared: Arc::new(HandleShared { gate: self.clone(), key: key.as_ref().into(), pinned }) }
    }

    /// Puts another limit in force, for all clones and handles. What each key has
    /// used goes along: nobody gets a fresh burst, and nobody is locked out for
    /// longer than a full key of the new limit.
    ///
    /// On a limiter over Redis this changes the limit of this process only, and each process has
    /// to change it. Until then each counts the same units by its own limit (`docs/limits.md`,
    /// nodes that disagree).
    ///
    /// # Errors
    /// If the text is not a limit, or if a concurrency limit would become a rate (or
    /// the other way round): slots that are held cannot be counted as a rate. In Redis
    /// also if the limit is not exact there, or its list of entries too long.
    pub fn change<L: TryInto<Limit, Error: Into<LimitError>>>(&self, limit: L) -> Result<(), GateError> {
        let limit = limit.try_into().map_err(Into::into)?;
        self.accepts(&limit)?;
        self.put_in_force(limit);
        Ok(())
    }

    /// Whether this limit can be put in force here. If it can, it always can: the kind of the
    /// gate and its options never change.
    pub(crate) fn accepts(&self, limit: &Limit) -> Result<(), GateError> {
        let now = self.limit();
        if holds_slots(&now) != holds_slots(limit) {
            let (name, limit) = (self.name().into(), limit.clone().into());
            return Err(GateError::OtherKind { name, now: now.into(), limit });
        }
        self.shared.backend.accepts(limit)
    }

    /// Puts a limit in force that it [accepts](Self::accepts).
    pub(crate) fn put_in_force(&self, limit: Limit) {
        self.shared.backend.change(limit);
    }

    /// The limit in force.
    pub fn limit(&self) -> Limit {
        self.shared.backend.limit()
    }

    /// The name it was defined under.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Whether it can be defined again with this limit: if it was, or has it in force.
    pub(crate) fn accepts_definition(&self, limit: &Limit) -> Result<(), GateError> {
        // The limit that it was defined with names it too: code that ships a limit must go
        // on finding its gate after an operator has changed it.
        if self.shared.defined == *limit {
            return Ok(());
        }
        let now = self.limit();
        if now == *limit {
            return Ok(());
        }
        Err(GateError::Defined { name: self.name().into(), now: now.into(), limit: limit.clone().into() })
    }

    pub(crate) fn new(name: &str, limit: Limit, clock: StoreClock, backend: Backend) -> Self {
        Self { shared: Arc::new(Shared { name: name.into(), defined: limit, clock, backend }) }
    }

    #[inline(always)]
    pub(crate) fn backend(&self) -> &Backend {
        &self.shared.backend
    }

    /// The clock that callers of this gate see.
    pub(crate) fn clock(&self) -> &StoreClock {
        &self.shared.clock
    }

    /// True if both are the same gate.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gate({}: {})", self.name(), self.limit())
    }
}

/// A fixed key of a gate, resolved once. Cheap to clone. Over another store than memory there is
/// nothing to resolve: async code asks the gate there.
///
/// ```
/// # let limiter = tidegate::Limiter::new();
/// let everyone = limiter.gate("backend", "1000/s")?.handle("everyone");
/// assert!(everyone.check().is_allowed());
/// # Ok::<(), tidegate::GateError>(())
/// ```
#[derive(Clone)]
pub struct Handle {
    shared: Arc<HandleShared>,
}

struct HandleShared {
    gate: Gate,
    key: Box<[u8]>,
    pinned: Pinned,
}

impl Drop for HandleShared {
    fn drop(&mut self) {
        self.gate.backend().unpin(&self.pinned);
    }
}

impl Handle {
    /// As [`Gate::check`].
    #[inline(always)]
    pub fn check(&self) -> Decision {
        self.check_cost(1)
    }

    /// As [`Gate::check_cost`].
    #[inline(always)]
    pub fn check_cost(&self, cost: u64) -> Decision {
        let HandleShared { gate, key, pinned } = &*self.shared;
        gate.backend().check_pinned(pinned, key, cost)
    }

    /// As [`Gate::peek`].
    pub fn peek(&self) -> Decision {
        self.peek_cost(1)
    }

    /// As [`Gate::peek_cost`].
    pub fn peek_cost(&self, cost: u64) -> Decision {
        self.shared.gate.peek_cost(&self.shared.key, cost)
    }

    /// As [`Gate::reserve`].
    pub fn reserve(&self) -> Verdict {
        self.reserve_cost(1)
    }

    /// As [`Gate::reserve_cost`].
    pub fn reserve_cost(&self, cost: u64) -> Verdict {
        self.shared.gate.reserve_cost(&self.shared.key, cost)
    }

    /// As [`Gate::acquire`].
    pub fn acquire(&self) -> Acquire {
        self.acquire_cost(1)
    }

    /// As [`Gate::acquire_cost`].
    pub fn acquire_cost(&self, cost: u64) -> Acquire {
        self.shared.gate.acquire_cost(&self.shared.key, cost)
    }

    /// As [`Gate::reset`].
    pub fn reset(&self) {
        self.shared.gate.reset(&self.shared.key);
    }

    /// The gate that it is a key of.
    pub fn gate(&self) -> &Gate {
        &self.shared.gate
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:?})", self.shared.gate)
    }
}
