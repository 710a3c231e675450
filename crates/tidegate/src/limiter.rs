//! The limiter: a store, the gates in it, and transactions over them.

use crate::acquire::{Acquire, acquire};
use crate::algorithm::Mode;
use crate::check::owned;
use crate::clock::{Clock, ClockError, MonotonicClock, StoreClock, Timestamp};
use crate::gate::{Gate, GateError};
use crate::pending::Pending;
#[cfg(feature = "redis")]
use crate::store::redis::{self, Fallback, Redis, RedisStats};
use crate::store::{Backing, Store};
use crate::transaction::{decide_blocking, decide_later};
use crate::verdict::Verdict;
use crate::{Limit, LimitError};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
#[cfg(feature = "redis")]
use std::time::Duration;
use tidegate_limit::is_gate_name;

pub use crate::check::Check;

/// The limiter of the process.
static GLOBAL: OnceLock<Limiter> = OnceLock::new();

/// A store and the gates in it. Cheap to clone; clones are the same limiter.
///
/// ```
/// use tidegate::Limiter;
///
/// let limiter = Limiter::new();
/// let gate = limiter.gate("login", "5 per 1min sliding-log")?;
/// if gate.check("user:42").is_allowed() {
///     // let them in
/// }
/// # Ok::<(), tidegate::GateError>(())
/// ```
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
}

struct Shared {
    clock: StoreClock,
    backing: Backing,
    gates: RwLock<HashMap<Box<str>, Gate>>,
    defined: AtomicU32,
}

/// A gate as it is to be.
pub(crate) struct GateDefinition<'a> {
    pub(crate) name: String,
    pub(crate) limit: Limit,
    pub(crate) options: &'a GateOptions,
}

/// What happens to a new key when the store holds as many live keys as it may. Tracked keys are
/// never affected, and no key is ever unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// All untracked keys share one allowance of the gate's limit: the overflow bucket.
    #[default]
    Share,
    /// Untracked keys are denied ([`Denial::Full`](crate::Denial::Full)).
    Refuse,
}

/// What a gate can have besides its limit.
///
/// ```
/// use tidegate::{Limiter, GateOptions, Overflow};
///
/// let limiter = Limiter::new();
/// let options = GateOptions::new().max_keys(10_000).overflow(Overflow::Refuse);
/// let gate = limiter.gate_with("public", "10/s", options)?;
/// # Ok::<(), tidegate::GateError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct GateOptions {
    pub(crate) overflow: Overflow,
    pub(crate) max_keys: Option<usize>,
    #[cfg(feature = "redis")]
    pub(crate) redis: redis::RedisGateOptions,
}

/// What only a gate in Redis has.
#[cfg(feature = "redis")]
impl GateOptions {
    /// What happens while Redis does not answer. Default: [`Fallback::Local`].
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.redis.fallback = fallback;
        self
    }

    /// Whether what Redis has denied is denied here, until it could be otherwise. It never lets
    /// anyone through. Default: true.
    pub fn remember_denials(mut self, remember: bool) -> Self {
        self.redis.caches_denials = remember;
        self
    }

    /// Promises that no call on this gate is ever refunded, settled, cancelled or reset, on any
    /// node. Then a denial is remembered for as long as it holds, instead of 50 ms at most.
    pub fn no_refunds(mut self) -> Self {
        self.redis.has_refunds = false;
        self
    }

    /// Whether checks of the same key share a call while one is in flight. Each is still decided
    /// on its own, in order. Default: true.
    pub fn coalesce(mut self, coalesce: bool) -> Self {
        self.redis.coalesces = coalesce;
        self
    }

    /// Lets this node take ahead what flows in up to `life`, and spend it within that time
    /// without a call to Redis. Not exact: up to as much more can start in any window, on each
    /// node. Default: off.
    pub fn lease(mut self, life: Duration) -> Self {
        self.redis.lease = (!life.is_zero()).then_some(life);
        self
    }

    /// How long a slot of a concurrency limit is held without a heartbeat of its node, which
    /// sends one three times as often. A node that crashes keeps its slots for this long.
    /// Default: 10 s.
    pub fn hold_for(mut self, lease: Duration) -> Self {
        self.redis.slot_lease = lease.max(Duration::from_millis(500));
        self
    }
}

impl GateOptions {
    /// Shares the limiter's tables; untracked keys share an allowance.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tables of its own for this many keys, so that a flood of keys at this gate
    /// takes no room from the others; as [`LimiterBuilder::max_keys`]. A gate in Redis has
    /// no use for it.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = Some(keys);
        self
    }

    /// What happens to keys beyond the cap. Default: [`Overflow::Share`].
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = overflow;
        self
    }
}

/// Collects what a [`Limiter`] is made of.
#[derive(Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct LimiterBuilder {
    clock: Option<StoreClock>,
    max_keys: Option<usize>,
    store: Option<Box<StoreBuilder>>,
}

/// Makes a store, given the clock that was set and the one that callers see.
type StoreBuilder = dyn FnOnce(Option<StoreClock>) -> Arc<dyn Store> + Send + Sync;

impl LimiterBuilder {
    /// Keeps the state in this store instead of in memory.
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Box::new(move |_| Arc::new(store)));
        self
    }

    /// Keeps the state in Redis, shared with every other limiter on it, instead of in
    /// memory. A thread of its own talks to Redis. It does not come along into a process that
    /// is forked: a limiter that was built before answers there by its gates' fallback.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, redis: Redis) -> Self {
        self.store = Some(Box::new(move |clock| Arc::new(redis::RedisStore::new(redis, clock))));
        self
    }

    /// Default: the process's monotonic clock. On a limiter over Redis a clock given here replaces
    /// the server's, for tests and simulation; otherwise no client's clock counts.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(StoreClock::Other(Arc::new(clock)));
        self
    }

    /// Live keys that all gates together hold at least. Default: a million; more than 2³⁰ are
    /// taken to be that many. What a key beyond them meets is the gate's [`Overflow`].
    ///
    /// The table takes 33 bytes for each, from the system as they are touched: in huge pages
    /// if a number is given here, the table is 8 MB to 16 GB and the system has them. Full
    /// of keys of one word (most limits: see the docs) it holds about twice as many in at
    /// most 100 bytes for each key of `max_keys`; other states take up to 400, and a window or
    /// log its entries. A limiter over Redis has no table: its keys are there.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = Some(keys);
        self
    }

    /// The limiter.
    ///
    /// # Panics
    /// Where [`try_build`](Self::try_build) returns an error. The default clock never makes
    /// it panic.
    pub fn build(self) -> Limiter {
        self.try_build().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The limiter, or what is wrong with the clock that it was given.
    ///
    /// ```
    /// use tidegate::{Limiter, ManualClock, Timestamp};
    ///
    /// // Unix microseconds are past the end of a clock's range.
    /// let clock = ManualClock::at(Timestamp::from_micros(1_790_000_000_000_000));
    /// let error = Limiter::builder().clock(clock).try_build().unwrap_err();
    /// assert!(error.to_string().contains("count from the process's start"));
    /// ```
    ///
    /// # Errors
    /// If the clock is at [`Timestamp::MAX`], as one that counts Unix microseconds is.
    pub fn try_build(self) -> Result<Limiter, ClockError> {
        let clock = self.clock.clone().unwrap_or_else(|| StoreClock::Monotonic(MonotonicClock::new()));
        if clock.now() >= Timestamp::MAX {
            return Err(ClockError);
        }
        let backing = match self.store {
            Some(build) => Backing::Remote(build(self.clock)),
            None => Backing::in_memory(clock.clone(), self.max_keys),
        };
        let (gates, defined) = (RwLock::default(), AtomicU32::new(0));
        Ok(Limiter { shared: Arc::new(Shared { clock, backing, gates, defined }) })
    }
}

impl Limiter {
    /// In memory, on the monotonic clock, for a million live keys.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// The limiter of the process: the one that was [set](Self::set_global), or one in
    /// memory if it was used before. `#[limited]` uses it by default.
    pub fn global() -> &'static Self {
        GLOBAL.get_or_init(Self::new)
    }

    /// Makes this the limiter of the process: once, and before it is used.
    ///
    /// ```
    /// use tidegate::Limiter;
    ///
    /// let limiter = Limiter::builder().max_keys(100_000).build();
    /// Limiter::set_global(limiter).expect("nothing is limited before main");
    /// assert!(Limiter::set_global(Limiter::new()).is_err());
    /// ```
    ///
    /// # Errors
    /// Gives the limiter back if there is one already: set before, or in use.
    pub fn set_global(limiter: Self) -> Result<(), Self> {
        GLOBAL.set(limiter)
    }

    /// With another clock or size.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::default()
    }

    /// The gate of this name, defined now if it was not before.
    ///
    /// # Errors
    /// If the text is not a limit, the name not a name, or the gate of this name was defined with
    /// another limit and has another one in force.
    pub fn gate<L: TryInto<Limit, Error: Into<LimitError>>>(
        &self,
        name: &str,
        limit: L,
    ) -> Result<Gate, GateError> {
        self.gate_with(name, limit, GateOptions::new())
    }

    /// [`gate`](Self::gate) with options, which count when the gate is defined.
    ///
    /// # Errors
    /// As [`gate`](Self::gate).
    #[allow(clippy::needless_pass_by_value, reason = "options are made for one call")]
    pub fn gate_with<L: TryInto<Limit, Error: Into<LimitError>>>(
        &self,
        name: &str,
        limit: L,
        options: GateOptions,
    ) -> Result<Gate, GateError> {
        let limit = limit.try_into().map_err(Into::into)?;
        // Most calls find it: those need no lock that others wait for.
        if let Some(gate) = self.get(name) {
            return gate.accepts_definition(&limit).map(|()| gate);
        }
        let definition = GateDefinition { name: name.into(), limit, options: &options };
        let mut defined = self.define_all(&[definition]).map_err(|(_, error)| error)?;
        Ok(defined.swap_remove(0).0)
    }

    /// The gates of these names, and whether each was defined now: all of them, or none is.
    ///
    /// # Errors
    /// As [`gate`](Self::gate), with the index of the first that cannot be.
    pub(crate) fn define_all(
        &self,
        definitions: &[GateDefinition<'_>],
    ) -> Result<Vec<(Gate, bool)>, (usize, GateError)> {
        let Shared { clock, backing, gates, defined } = &*self.shared;
        let mut gates = gates.write().unwrap_or_else(PoisonError::into_inner);
        for (at, GateDefinition { name, limit, options }) in definitions.iter().enumerate() {
            let accepted = match gates.get(&**name) {
                _ if !is_gate_name(name) => Err(GateError::Name(crate::Key::new(name).to_string())),
                Some(gate) => gate.accepts_definition(limit),
                None => backing.accepts(name, limit, options),
            };
            accepted.map_err(|error| (at, error))?;
        }
        let define = |GateDefinition { name, limit, options }: &GateDefinition<'_>| {
            if let Some(gate) = gates.get(&**name) {
                return (gate.clone(), false);
            }
            let backend = backing.open(defined.fetch_add(1, Ordering::Relaxed), name, limit.clone(), options);
            let gate = Gate::new(name, limit.clone(), clock.clone(), backend);
            gates.insert(name.as_str().into(), gate.clone());
            (gate, true)
        };
        Ok(definitions.iter().map(define).collect())
    }

    /// The gate of this name, if it is defined.
    pub fn get(&self, name: &str) -> Option<Gate> {
        self.shared.gates.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The gates that are defined.
    pub fn gates(&self) -> Vec<Gate> {
        self.shared.gates.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Takes a gate out; those who still hold it can go on using it, among them the
    /// functions with `#[limited]` that found it in the process's limiter. True if there
    /// was one.
    ///
    /// If the name is defined anew, in memory that is another gate with keys of its own. In
    /// Redis both own the keys of that name, and are charged together.
    pub fn remove(&self, name: &str) -> bool {
        self.shared.gates.write().unwrap_or_else(PoisonError::into_inner).remove(name).is_some()
    }

    /// Decides several checks at one instant, without waits, and charges all of them
    /// or none.
    ///
    /// A key that comes twice pays the sum. Without any checks it is allowed, and the permit
    /// holds nothing. Gates of other limiters can be among them; each is decided, and gives
    /// back, by the clock of its own.
    ///
    /// ```
    /// use tidegate::{Check, Limiter};
    ///
    /// let limiter = Limiter::new();
    /// let calls = limiter.gate("calls", "10/s")?;
    /// let tokens = limiter.gate("tokens", "1000/min")?;
    /// let verdict = limiter.check(&[
    ///     Check::new(&calls, "user:42"),
    ///     Check::new(&tokens, "user:42").cost(1200),
    /// ]);
    /// assert!(!verdict.is_allowed());
    /// assert_eq!(verdict.bound_by(), "tokens");
    /// assert_eq!(calls.peek("user:42").remaining(), 10); // nothing was spent
    /// # Ok::<(), tidegate::GateError>(())
    /// ```
    pub fn check(&self, checks: &[Check<'_>]) -> Verdict {
        decide_blocking(&owned(checks), Mode::Check)
    }

    /// Decides several checks at one instant, with waits, and charges all of them or
    /// none. All start after the longest wait.
    pub fn reserve(&self, checks: &[Check<'_>]) -> Verdict {
        decide_blocking(&owned(checks), Mode::Reserve)
    }

    /// Decides several checks at one instant, and takes slots and units now or nothing, whatever
    /// wait is in force. For callers that do not wait: a reservation that is cancelled does not
    /// always come back.
    pub fn hold(&self, checks: &[Check<'_>]) -> Verdict {
        decide_blocking(&owned(checks), Mode::Hold)
    }

    /// [`hold`](Self::hold) for async code.
    pub fn hold_async(&self, checks: &[Check<'_>]) -> Pending<Verdict> {
        decide_later(owned(checks), Mode::Hold)
    }

    /// [`check`](Self::check) for async code.
    pub fn check_async(&self, checks: &[Check<'_>]) -> Pending<Verdict> {
        decide_later(owned(checks), Mode::Check)
    }

    /// [`reserve`](Self::reserve) for async code.
    pub fn reserve_async(&self, checks: &[Check<'_>]) -> Pending<Verdict> {
        decide_later(owned(checks), Mode::Reserve)
    }

    /// [`reserve`](Self::reserve), and wait for the start.
    pub fn acquire(&self, checks: &[Check<'_>]) -> Acquire {
        acquire(owned(checks))
    }

    /// The clock that front ends read.
    #[cfg(feature = "rules")]
    pub(crate) fn clock(&self) -> &StoreClock {
        &self.shared.clock
    }

    /// What the store counts about itself; none for a limiter in memory.
    #[cfg(feature = "redis")]
    pub fn redis_stats(&self) -> Option<RedisStats> {
        self.shared.backing.redis_stats()
    }

    /// Keys that are held outside the flat table, and the most that may be: states longer than a
    /// word, and the few keys whose group in the table was full (at most an eighth of the most). Gates with tables of their own are not counted.
    pub fn long_keys(&self) -> (usize, usize) {
        self.shared.backing.long_keys()
    }
}

impl Default for Limiter {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.gates()).finish()
    }
}
