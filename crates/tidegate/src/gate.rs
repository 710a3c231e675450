//! A limit in force under a name: what calls pass through.

use crate::acquire::Acquire;
use crate::algorithm::Mode;
use crate::ask::{MemoryAsk, OwnedAsk, Side, decide};
use crate::asked::{DecisionFuture, ResetFuture, VerdictFuture};
use crate::decision::Decision;
use crate::store::memory::Spot;
#[cfg(feature = "redis")]
use crate::store::redis::{How, RedisAsk};
use crate::verdict::Verdict;
use crate::{Algorithm, Limit, LimitError};
use std::fmt;
use std::sync::Arc;

pub use crate::gate_error::GateError;

/// A [`Limit`] in force under a name, in one [`Limiter`](crate::Limiter).
///
/// Cheap to clone; clones are the same gate. Keys are any bytes (`"user:42"`), and
/// a call costs 1 unit unless said.
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
    pub(crate) side: Side,
}

/// Keys whose cache lines are asked for together.
const BATCH: usize = 64;

/// In memory everything is answered at once. On a limiter over Redis, the methods
/// without `_async` wait for the answer on the calling thread, at most for the deadline;
/// those with it are for async code, under any executor, and answer at once in memory.
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
        match &self.side {
            Side::Memory(meter) => meter.check(meter.hash(key.as_ref()), cost),
            #[cfg(feature = "redis")]
            Side::Redis(meter) => crate::acquire::block_on(DecisionFuture::new(
                meter,
                key.as_ref(),
                cost,
                How::Take(Mode::Check),
            )),
        }
    }

    /// [`check`](Self::check) for async code.
    pub fn check_async<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> DecisionFuture {
        self.check_cost_async(key, 1)
    }

    /// [`check_cost`](Self::check_cost) for async code.
    pub fn check_cost_async<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> DecisionFuture {
        match &self.side {
            Side::Memory(_) => DecisionFuture::ready(self.check_cost(key, cost)),
            #[cfg(feature = "redis")]
            Side::Redis(meter) => DecisionFuture::new(meter, key.as_ref(), cost, How::Take(Mode::Check)),
        }
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
    pub fn check_batch<K: AsRef<[u8]>>(&self, keys: &[K], mut each: impl FnMut(usize, Decision)) {
        #[cfg(feature = "redis")]
        if let Side::Redis(_) = &self.side {
            for (chunk, keys) in keys.chunks(BATCH).enumerate() {
                let asked: Vec<DecisionFuture> = keys.iter().map(|key| self.check_async(key)).collect();
                for (index, asked) in asked.into_iter().enumerate() {
                    each(chunk * BATCH + index, crate::acquire::block_on(asked));
                }
            }
        }
        #[cfg_attr(
            not(feature = "redis"),
            allow(irrefutable_let_patterns, reason = "there is one store then")
        )]
        let Side::Memory(meter) = &self.side else { return };
        for (chunk, keys) in keys.chunks(BATCH).enumerate() {
            let mut hashes = [0; BATCH];
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = meter.hash(key.as_ref());
            }
            let hashes = &hashes[..keys.len()];
            std::hint::black_box(hashes.iter().fold(0, |all, hash| all ^ meter.touch(*hash)));
            let now = meter.home.clock.now();
            for (index, hash) in hashes.iter().enumerate() {
                each(chunk * BATCH + index, meter.check_at(now, *hash, 1));
            }
        }
    }

    /// What [`check`](Self::check) would say, without taking anything.
    pub fn peek<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Decision {
        self.peek_cost(key, 1)
    }

    /// What [`check_cost`](Self::check_cost) would say, without taking anything.
    pub fn peek_cost<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        match &self.side {
            Side::Memory(meter) => meter.peek(meter.hash(key.as_ref()), cost),
            #[cfg(feature = "redis")]
            Side::Redis(meter) => {
                crate::acquire::block_on(DecisionFuture::new(meter, key.as_ref(), cost, How::Peek))
            }
        }
    }

    /// [`peek`](Self::peek) for async code.
    pub fn peek_async<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> DecisionFuture {
        self.peek_cost_async(key, 1)
    }

    /// [`peek_cost`](Self::peek_cost) for async code.
    pub fn peek_cost_async<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> DecisionFuture {
        match &self.side {
            Side::Memory(_) => DecisionFuture::ready(self.peek_cost(key, cost)),
            #[cfg(feature = "redis")]
            Side::Redis(meter) => DecisionFuture::new(meter, key.as_ref(), cost, How::Peek),
        }
    }

    /// Takes one unit now or, within the limit's `wait`, later: the permit says when
    /// the call may start, and the caller waits for it. A concurrency limit gives a
    /// place now or not at all; its queue is [`acquire`](Self::acquire)'s.
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
    /// [`Denial::Unknown`](crate::Denial::Unknown) if only that makes it longer than the wait.
    pub fn reserve_cost<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> Verdict {
        decide(vec![self.owned(key.as_ref(), cost)], Mode::Reserve)
    }

    /// [`reserve`](Self::reserve) for async code.
    pub fn reserve_async<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> VerdictFuture {
        self.reserve_cost_async(key, 1)
    }

    /// [`reserve_cost`](Self::reserve_cost) for async code.
    pub fn reserve_cost_async<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> VerdictFuture {
        VerdictFuture::new(vec![self.owned(key.as_ref(), cost)], Mode::Reserve)
    }

    /// Reserves one unit and waits for its start, under any executor. A future that
    /// is dropped while it waits gives its place back, if nobody reserved after it.
    pub fn acquire<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Acquire {
        self.acquire_cost(key, 1)
    }

    /// [`acquire`](Self::acquire) for `cost` units.
    pub fn acquire_cost<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> Acquire {
        Acquire::new(vec![self.owned(key.as_ref(), cost)])
    }

    /// Forgets what a key has used. Places of a concurrency limit that are held stay
    /// held. A permit from before must not be refunded afterwards: what it would give
    /// back is forgotten already.
    pub fn reset<K: AsRef<[u8]> + ?Sized>(&self, key: &K) {
        match &self.side {
            Side::Memory(meter) => meter.reset(meter.hash(key.as_ref())),
            #[cfg(feature = "redis")]
            Side::Redis(_) => {
                crate::acquire::block_on(self.reset_async(key));
            }
        }
    }

    /// [`reset`](Self::reset) for async code: true once it is done, false if the store
    /// did not answer in time.
    pub fn reset_async<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> ResetFuture {
        match &self.side {
            Side::Memory(_) => {
                self.reset(key);
                ResetFuture::done()
            }
            #[cfg(feature = "redis")]
            Side::Redis(meter) => ResetFuture::new(meter, key.as_ref()),
        }
    }

    /// A fixed key resolved once: no hashing and no search from then on.
    pub fn handle<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Handle {
        let (hash, spot) = match &self.side {
            Side::Memory(meter) => {
                let hash = meter.hash(key.as_ref());
                (hash, meter.pin(hash))
            }
            #[cfg(feature = "redis")]
            Side::Redis(_) => (0, None),
        };
        Handle { pin: Arc::new(Pin { gate: self.clone(), key: key.as_ref().into(), hash, spot }) }
    }

    /// Puts another limit in force, for all clones and handles. What each key has
    /// used goes along: nobody gets a fresh burst, and nobody is locked out for
    /// longer than a full key of the new limit.
    ///
    /// On a limiter over Redis this changes the limit of this process: each one has to
    /// be told. Until all have heard of it, each counts the same units by its own limit,
    /// so that no more starts than the looser of the two allows beside what the stricter
    /// one lets through.
    ///
    /// # Errors
    /// If the text is not a limit, or if a concurrency limit would become a rate (or
    /// the other way round): places that are held cannot be counted as a rate. In Redis
    /// also if the limit is not exact there, or its list of entries too long.
    pub fn change<L: TryInto<Limit, Error: Into<LimitError>>>(&self, limit: L) -> Result<(), GateError> {
        let limit = limit.try_into().map_err(Into::into)?;
        self.accepts(&limit)?;
        self.put_in_force(limit);
        Ok(())
    }

    /// Whether this limit can be put in force here. Once it can, it always can: what decides
    /// about it, the kind of the gate and its options, never changes.
    pub(crate) fn accepts(&self, limit: &Limit) -> Result<(), GateError> {
        let now = self.limit();
        let holds = |limit: &Limit| matches!(limit.algorithm(), Algorithm::Concurrency { .. });
        if holds(&now) != holds(limit) {
            return Err(GateError::OtherKind {
                name: self.name().into(),
                now: now.into(),
                limit: limit.clone().into(),
            });
        }
        #[cfg(feature = "redis")]
        if let Side::Redis(meter) = &self.side {
            crate::store::redis::accept(self.name(), limit, meter.leases.is_some())?;
        }
        Ok(())
    }

    /// Puts a limit in force that it [accepts](Self::accepts).
    pub(crate) fn put_in_force(&self, limit: Limit) {
        match &self.side {
            Side::Memory(meter) => meter.change(limit),
            #[cfg(feature = "redis")]
            Side::Redis(meter) => meter.change(limit),
        }
    }

    /// The limit in force.
    pub fn limit(&self) -> Limit {
        self.side.limit()
    }

    /// The name it was defined under.
    pub fn name(&self) -> &str {
        self.side.name()
    }

    /// This gate, if it is what somebody who knows it by this limit means.
    pub(crate) fn if_defined_as(self, limit: &Limit) -> Result<Self, GateError> {
        // The limit that it was defined with names it too: code that ships a limit must go
        // on finding its gate after an operator has changed it.
        if self.side.defined() == limit {
            return Ok(self);
        }
        match self.limit() {
            now if now == *limit => Ok(self),
            now => {
                let limit = limit.clone().into();
                Err(GateError::Defined { name: self.name().into(), now: now.into(), limit })
            }
        }
    }

    pub(crate) fn owned(&self, key: &[u8], cost: u64) -> OwnedAsk {
        match &self.side {
            Side::Memory(meter) => {
                let (hash, key) = (meter.hash(key), key.into());
                OwnedAsk::Memory(MemoryAsk { meter: meter.clone(), hash, key, cost, index: 0 })
            }
            #[cfg(feature = "redis")]
            Side::Redis(meter) => OwnedAsk::Redis(RedisAsk::new(meter, key, cost)),
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gate({}: {})", self.name(), self.limit())
    }
}

/// A fixed key of a gate, resolved once. Cheap to clone.
///
/// ```
/// # let limiter = tidegate::Limiter::new();
/// let everyone = limiter.gate("backend", "1000/s")?.handle("everyone");
/// assert!(everyone.check().is_allowed());
/// # Ok::<(), tidegate::GateError>(())
/// ```
#[derive(Clone)]
pub struct Handle {
    pin: Arc<Pin>,
}

struct Pin {
    gate: Gate,
    key: Box<[u8]>,
    hash: u64,
    spot: Option<Spot>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let (Some(spot), Side::Memory(meter)) = (self.spot, &self.gate.side) {
            meter.unpin(self.hash, spot);
        }
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
        let pin = &*self.pin;
        match (&pin.gate.side, pin.spot) {
            (Side::Memory(meter), Some(spot)) => meter.check_spot(spot, pin.hash, cost),
            (Side::Memory(meter), None) => meter.check_unpinned(pin.hash, cost),
            #[cfg(feature = "redis")]
            (Side::Redis(_), _) => pin.gate.check_cost(&pin.key, cost),
        }
    }

    /// As [`Gate::check_async`].
    pub fn check_async(&self) -> DecisionFuture {
        self.check_cost_async(1)
    }

    /// As [`Gate::check_cost_async`].
    pub fn check_cost_async(&self, cost: u64) -> DecisionFuture {
        match &self.pin.gate.side {
            Side::Memory(_) => DecisionFuture::ready(self.check_cost(cost)),
            #[cfg(feature = "redis")]
            Side::Redis(_) => self.pin.gate.check_cost_async(&self.pin.key, cost),
        }
    }

    /// As [`Gate::peek`].
    pub fn peek(&self) -> Decision {
        self.peek_cost(1)
    }

    /// As [`Gate::peek_cost`].
    pub fn peek_cost(&self, cost: u64) -> Decision {
        self.pin.gate.peek_cost(&self.pin.key, cost)
    }

    /// As [`Gate::peek_async`].
    pub fn peek_async(&self) -> DecisionFuture {
        self.peek_cost_async(1)
    }

    /// As [`Gate::peek_cost_async`].
    pub fn peek_cost_async(&self, cost: u64) -> DecisionFuture {
        self.pin.gate.peek_cost_async(&self.pin.key, cost)
    }

    /// As [`Gate::reserve`].
    pub fn reserve(&self) -> Verdict {
        self.reserve_cost(1)
    }

    /// As [`Gate::reserve_cost`].
    pub fn reserve_cost(&self, cost: u64) -> Verdict {
        self.pin.gate.reserve_cost(&self.pin.key, cost)
    }

    /// As [`Gate::reserve_async`].
    pub fn reserve_async(&self) -> VerdictFuture {
        self.reserve_cost_async(1)
    }

    /// As [`Gate::reserve_cost_async`].
    pub fn reserve_cost_async(&self, cost: u64) -> VerdictFuture {
        self.pin.gate.reserve_cost_async(&self.pin.key, cost)
    }

    /// As [`Gate::acquire`].
    pub fn acquire(&self) -> Acquire {
        self.acquire_cost(1)
    }

    /// As [`Gate::acquire_cost`].
    pub fn acquire_cost(&self, cost: u64) -> Acquire {
        self.pin.gate.acquire_cost(&self.pin.key, cost)
    }

    /// As [`Gate::reset`].
    pub fn reset(&self) {
        self.pin.gate.reset(&self.pin.key);
    }

    /// As [`Gate::reset_async`].
    pub fn reset_async(&self) -> ResetFuture {
        self.pin.gate.reset_async(&self.pin.key)
    }

    /// The gate that it is a key of.
    pub fn gate(&self) -> &Gate {
        &self.pin.gate
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:?})", self.pin.gate)
    }
}
