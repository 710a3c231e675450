//! A limit in force under a name: what calls pass through.

use crate::acquire::Acquire;
use crate::algorithm::Mode;
use crate::ask::{OwnedAsk, decide};
use crate::decision::Decision;
use crate::limit::{Algorithm, Limit, LimitError};
use crate::store::{Meter, Spot};
use crate::verdict::Verdict;
use std::fmt;
use std::sync::Arc;

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
    pub(crate) meter: Arc<Meter>,
}

/// Keys whose cache lines are asked for together.
const BATCH: usize = 64;

impl Gate {
    /// Decides now and takes one unit if there is one. Never waits.
    #[inline]
    pub fn check<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Decision {
        self.meter.check(self.meter.hash(key.as_ref()), 1)
    }

    /// Decides now and takes `cost` units if they fit. Never waits. A cost of 0 is
    /// always allowed and takes nothing.
    #[inline]
    pub fn check_cost<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        self.meter.check(self.meter.hash(key.as_ref()), cost)
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
        for (chunk, keys) in keys.chunks(BATCH).enumerate() {
            let mut hashes = [0; BATCH];
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = self.meter.hash(key.as_ref());
            }
            let hashes = &hashes[..keys.len()];
            std::hint::black_box(hashes.iter().fold(0, |all, hash| all ^ self.meter.touch(*hash)));
            let now = self.meter.home.clock.now();
            for (index, hash) in hashes.iter().enumerate() {
                each(chunk * BATCH + index, self.meter.check_at(now, *hash, 1));
            }
        }
    }

    /// What [`check`](Self::check) would say, without taking anything.
    pub fn peek<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Decision {
        self.peek_cost(key, 1)
    }

    /// What [`check_cost`](Self::check_cost) would say, without taking anything.
    pub fn peek_cost<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        self.meter.peek(self.meter.hash(key.as_ref()), cost)
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
    pub fn reserve_cost<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> Verdict {
        decide(&mut [self.owned(self.meter.hash(key.as_ref()), cost)], Mode::Reserve)
    }

    /// Reserves one unit and waits for its start, under any executor. A future that
    /// is dropped while it waits gives its place back, if nobody reserved after it.
    pub fn acquire<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Acquire {
        self.acquire_cost(key, 1)
    }

    /// [`acquire`](Self::acquire) for `cost` units.
    pub fn acquire_cost<K: AsRef<[u8]> + ?Sized>(&self, key: &K, cost: u64) -> Acquire {
        Acquire::new(vec![self.owned(self.meter.hash(key.as_ref()), cost)])
    }

    /// Forgets what a key has used. Places of a concurrency limit that are held stay
    /// held. A permit from before must not be refunded afterwards: what it would give
    /// back is forgotten already.
    pub fn reset<K: AsRef<[u8]> + ?Sized>(&self, key: &K) {
        self.meter.reset(self.meter.hash(key.as_ref()));
    }

    /// A fixed key resolved once: no hashing and no search from then on.
    pub fn handle<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Handle {
        let hash = self.meter.hash(key.as_ref());
        let spot = self.meter.pin(hash);
        Handle { pin: Arc::new(Pin { gate: self.clone(), hash, spot }) }
    }

    /// Puts another limit in force, for all clones and handles. What each key has
    /// used goes along: nobody gets a fresh burst, and nobody is locked out for
    /// longer than a full key of the new limit.
    ///
    /// # Errors
    /// If the text is not a limit, or if a concurrency limit would become a rate (or
    /// the other way round): places that are held cannot be counted as a rate.
    pub fn change<L: TryInto<Limit, Error: Into<LimitError>>>(&self, limit: L) -> Result<(), GateError> {
        let limit = limit.try_into().map_err(Into::into)?;
        let now = self.limit();
        let holds = |limit: &Limit| matches!(limit.algorithm(), Algorithm::Concurrency { .. });
        if holds(&now) != holds(&limit) {
            return Err(GateError::OtherKind { name: self.name().into(), now, limit });
        }
        self.meter.change(limit);
        Ok(())
    }

    /// The limit in force.
    pub fn limit(&self) -> Limit {
        self.meter.version().limit.clone()
    }

    /// The name it was defined under.
    pub fn name(&self) -> &str {
        &self.meter.name
    }

    pub(crate) fn owned(&self, hash: u64, cost: u64) -> OwnedAsk {
        OwnedAsk { meter: self.meter.clone(), hash, cost, index: 0 }
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
    hash: u64,
    spot: Option<Spot>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Some(spot) = self.spot {
            self.gate.meter.unpin(self.hash, spot);
        }
    }
}

impl Handle {
    /// As [`Gate::check`].
    #[inline(always)]
    pub fn check(&self) -> Decision {
        match self.pin.spot {
            Some(spot) => self.pin.gate.meter.check_spot(spot, self.pin.hash, 1),
            None => self.pin.gate.meter.check_unpinned(self.pin.hash, 1),
        }
    }

    /// As [`Gate::check_cost`].
    #[inline]
    pub fn check_cost(&self, cost: u64) -> Decision {
        match self.pin.spot {
            Some(spot) => self.pin.gate.meter.check_spot(spot, self.pin.hash, cost),
            None => self.pin.gate.meter.check_unpinned(self.pin.hash, cost),
        }
    }

    /// As [`Gate::peek`].
    pub fn peek(&self) -> Decision {
        self.peek_cost(1)
    }

    /// As [`Gate::peek_cost`].
    pub fn peek_cost(&self, cost: u64) -> Decision {
        self.pin.gate.meter.peek(self.pin.hash, cost)
    }

    /// As [`Gate::reserve`].
    pub fn reserve(&self) -> Verdict {
        self.reserve_cost(1)
    }

    /// As [`Gate::reserve_cost`].
    pub fn reserve_cost(&self, cost: u64) -> Verdict {
        decide(&mut [self.pin.gate.owned(self.pin.hash, cost)], Mode::Reserve)
    }

    /// As [`Gate::acquire`].
    pub fn acquire(&self) -> Acquire {
        self.acquire_cost(1)
    }

    /// As [`Gate::acquire_cost`].
    pub fn acquire_cost(&self, cost: u64) -> Acquire {
        Acquire::new(vec![self.pin.gate.owned(self.pin.hash, cost)])
    }

    /// As [`Gate::reset`].
    pub fn reset(&self) {
        self.pin.gate.meter.reset(self.pin.hash);
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

/// Why a gate cannot be defined or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// The text is not a limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The name is not one.
    #[error(
        "`{0}` is not a name of a gate: write 1 to 64 letters, digits or any of `._-:/`, for example `checkout`"
    )]
    Name(String),
    /// The name stands for another limit already.
    #[error("gate `{name}` is in force as `{now}`: call `change` on it to make it `{limit}`")]
    Defined {
        /// The name.
        name: String,
        /// The limit in force.
        now: Limit,
        /// The limit that was asked for.
        limit: Limit,
    },
    /// A concurrency limit and a rate cannot replace each other.
    #[error("gate `{name}` cannot change from `{now}` to `{limit}`: define a second gate and check both")]
    OtherKind {
        /// The name.
        name: String,
        /// The limit in force.
        now: Limit,
        /// The limit that was asked for.
        limit: Limit,
    },
}

impl From<std::convert::Infallible> for LimitError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
