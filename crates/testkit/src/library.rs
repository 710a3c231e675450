//! The library over any store, as subjects of the suite.

use crate::together::{LimitCheck, Outcome, Together};
use crate::wire::{Wire, WireStore};
use crate::{Denied, Mode, Seen, Subject};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate::{
    Check, Decision, Denial, Gate, GateOptions, Handle, Limit, Limiter, ManualClock, Permit, Redis,
    Timestamp, Verdict,
};

/// A limiter whose clock is told the time, and which makes gates with names of their own.
pub struct Clocked {
    /// The limiter.
    pub limiter: Limiter,
    /// Its clock.
    pub clock: ManualClock,
    options: GateOptions,
    made: Cell<usize>,
}

impl Clocked {
    /// A limiter over any store, and the clock that it was built with, which its store decides by.
    pub fn of(limiter: Limiter, clock: ManualClock) -> Self {
        Self { limiter, clock, options: GateOptions::new(), made: Cell::new(0) }
    }

    /// In memory.
    pub fn in_memory() -> Self {
        let clock = ManualClock::new();
        let limiter = Limiter::builder().clock(clock.clone()).max_keys(1_000).build();
        Self::of(limiter, clock)
    }

    /// On a server that is reached over a wire, which is slow and lossy on command.
    pub fn over_a_wire() -> (Self, Wire) {
        let (clock, wire) = (ManualClock::new(), Wire::default());
        // Room for all traces: the clock begins anew with each, so nothing of one before has passed.
        let server = Limiter::builder().clock(clock.clone()).max_keys(100_000).build();
        let store = WireStore::new(server, wire.clone());
        let limiter = Limiter::builder().clock(clock.clone()).store(store).build();
        (Self::of(limiter, clock), wire)
    }

    /// In Redis, with patience: a slow machine must not look like a wrong decision.
    pub fn in_redis(redis: Redis) -> Self {
        Self::in_redis_by(ManualClock::new(), redis)
    }

    /// Several nodes in one Redis, by one clock. Denials are not remembered: what another
    /// node gives back would be seen later than the model says.
    pub fn nodes(redis: &Redis, nodes: usize) -> Vec<Self> {
        let clock = ManualClock::new();
        let node = || Self::in_redis_by(clock.clone(), redis.clone());
        (0..nodes).map(|_| node().with(|options| options.remember_denials(false))).collect()
    }

    fn in_redis_by(clock: ManualClock, redis: Redis) -> Self {
        let redis = redis.deadline(Duration::from_secs(30));
        let limiter = Limiter::builder().clock(clock.clone()).max_keys(1).redis(redis).build();
        // Nobody gives signs of life on a clock that jumps by years.
        Self::of(limiter, clock).with(|options| options.hold_for(Duration::from_secs(20 * 365 * 24 * 3600)))
    }

    /// The same with other options for its gates.
    pub fn with(self, change: impl FnOnce(GateOptions) -> GateOptions) -> Self {
        Self { options: change(self.options), ..self }
    }

    /// A gate that nobody has used before, made when its clock began.
    ///
    /// # Panics
    /// Where the library refuses a sound limit.
    pub fn gate(&self, limit: &Limit) -> Gate {
        self.clock.set(Timestamp::from_micros(0));
        let nth = self.made.replace(self.made.get() + 1);
        self.gate_named(&format!("suite-{nth}"), limit)
    }

    fn gate_named(&self, name: &str, limit: &Limit) -> Gate {
        let gate = self.limiter.gate_with(name, limit.clone(), self.options.clone());
        self.limiter.remove(name);
        gate.unwrap_or_else(|error| panic!("a sound limit makes a gate: {error}"))
    }
}

/// How a key is named to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By its bytes, at every call.
    Key,
    /// By a handle, resolved once.
    Handle,
    /// Now so, now so: both must mean the same allowance.
    Both,
}

/// One gate of a limiter with a manual clock.
pub struct Library {
    clock: ManualClock,
    gate: Gate,
    way: Way,
    calls: usize,
    handles: BTreeMap<Vec<u8>, Handle>,
    permits: Vec<Option<Permit>>,
}

impl Library {
    /// A fresh limiter in memory.
    pub fn new(limit: &Limit, way: Way) -> Self {
        Self::on(&Clocked::in_memory(), limit, way)
    }

    /// A fresh gate of a limiter.
    ///
    /// # Panics
    /// Where the library refuses a sound limit.
    pub fn on(clocked: &Clocked, limit: &Limit, way: Way) -> Self {
        Self::of(clocked, clocked.gate(limit), way)
    }

    fn of(clocked: &Clocked, gate: Gate, way: Way) -> Self {
        let clock = clocked.clock.clone();
        Self { clock, gate, way, calls: 0, handles: BTreeMap::new(), permits: Vec::new() }
    }

    /// A function that makes them in memory, for the suite.
    pub fn make(way: Way) -> impl Fn(&Limit) -> Box<dyn Subject> {
        move |limit| Box::new(Self::new(limit, way))
    }

    /// The gate that it drives.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Sets its clock.
    pub fn at(&self, now_us: u64) {
        self.clock.set(Timestamp::from_micros(now_us));
    }

    fn by_handle(&mut self, key: &[u8]) -> Option<Handle> {
        self.calls += 1;
        let is_by_handle = match self.way {
            Way::Key => false,
            Way::Handle => true,
            Way::Both => self.calls.is_multiple_of(3),
        };
        let gate = &self.gate;
        is_by_handle.then(|| self.handles.entry(key.to_vec()).or_insert_with(|| gate.handle(key)).clone())
    }

    fn permit(&mut self, now_us: u64, grant: usize) -> Option<Permit> {
        self.at(now_us);
        self.permits.get_mut(grant)?.take()
    }
}

impl Subject for Library {
    fn decide(&mut self, now_us: u64, key: &[u8], cost: u64, mode: Mode) -> Seen {
        self.at(now_us);
        let verdict = match (mode, self.by_handle(key)) {
            (Mode::Check, None) => return as_seen(&self.gate.check_cost(key, cost)),
            (Mode::Check, Some(handle)) => return as_seen(&handle.check_cost(cost)),
            (Mode::Peek, None) => return as_seen(&self.gate.peek_cost(key, cost)),
            (Mode::Peek, Some(handle)) if cost == 1 => return as_seen(&handle.peek()),
            (Mode::Peek, Some(handle)) => return as_seen(&handle.gate().peek_cost(key, cost)),
            (Mode::Reserve, None) => self.gate.reserve_cost(key, cost),
            (Mode::Reserve, Some(handle)) => handle.reserve_cost(cost),
        };
        let seen = of_verdict(&verdict);
        if let Ok(permit) = verdict.into_permit() {
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

    fn change(&mut self, now_us: u64, limit: &Limit) {
        self.at(now_us);
        self.gate.change(limit.clone()).expect("a sound limit can be changed to");
    }

    fn turn_to(&mut self, node: usize) {
        assert_eq!(node, 0, "a gate is one node");
    }

    fn restart(&mut self, _now_us: u64, limit: &Limit) {
        panic!("a gate alone does not start again under `{limit}`");
    }
}

/// Several nodes with one gate: each a limiter of its own, over the same store.
pub struct Nodes<'a> {
    limiters: &'a [Clocked],
    name: String,
    nodes: Vec<Library>,
    node: usize,
    /// By the order in which they were made: the node, and its own number there.
    grants: Vec<(usize, usize, Vec<u8>)>,
    /// Gates of processes that ended, with the permits that they gave.
    ended: Vec<Library>,
}

impl<'a> Nodes<'a> {
    /// One gate under a name that nobody has used before, on the first limiters.
    ///
    /// # Panics
    /// Where there are fewer limiters than limits.
    pub fn on(limiters: &'a [Clocked], limits: &[Limit]) -> Self {
        let nth = limiters[0].made.replace(limiters[0].made.get() + 1);
        let name = format!("nodes-{nth}");
        assert!(limits.len() <= limiters.len(), "a limiter a limit");
        limiters[0].clock.set(Timestamp::from_micros(0));
        let node =
            |(at, limit): (&'a Clocked, &Limit)| Library::of(at, at.gate_named(&name, limit), Way::Key);
        let nodes = limiters.iter().zip(limits).map(node).collect();
        Self { limiters, name, nodes, node: 0, grants: Vec::new(), ended: Vec::new() }
    }

    /// The gate's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ends a grant, or some of it, at the node that gave it.
    fn at_grant(&mut self, grant: usize, act: impl FnOnce(&mut Library, usize)) {
        if let Some((node, nth, key)) = self.grants.get(grant) {
            act(&mut self.nodes[*node], *nth);
            // It is sent without waiting for it: what is asked behind it says that it was done,
            // also to the other nodes.
            let _ = self.nodes[*node].gate.peek(key);
        }
    }
}

impl Subject for Nodes<'_> {
    fn decide(&mut self, now_us: u64, key: &[u8], cost: u64, mode: Mode) -> Seen {
        let node = &mut self.nodes[self.node];
        let nth = node.permits.len();
        let seen = node.decide(now_us, key, cost, mode);
        if node.permits.len() > nth {
            self.grants.push((self.node, nth, key.to_vec()));
        }
        seen
    }

    fn refund(&mut self, now_us: u64, grant: usize, units: u64) {
        self.at_grant(grant, |node, nth| node.refund(now_us, nth, units));
    }

    fn settle(&mut self, now_us: u64, grant: usize, cost: u64) {
        self.at_grant(grant, |node, nth| node.settle(now_us, nth, cost));
    }

    fn cancel(&mut self, now_us: u64, grant: usize) {
        self.at_grant(grant, |node, nth| node.cancel(now_us, nth));
    }

    fn release(&mut self, now_us: u64, grant: usize) {
        self.at_grant(grant, |node, nth| node.release(now_us, nth));
    }

    fn reset(&mut self, now_us: u64, key: &[u8]) {
        self.nodes[self.node].reset(now_us, key);
    }

    fn change(&mut self, now_us: u64, limit: &Limit) {
        self.nodes[self.node].change(now_us, limit);
    }

    fn turn_to(&mut self, node: usize) {
        self.node = node;
    }

    fn restart(&mut self, now_us: u64, limit: &Limit) {
        let at = &self.limiters[self.node];
        at.clock.set(Timestamp::from_micros(now_us));
        let mut new = Library::of(at, at.gate_named(&self.name, limit), Way::Key);
        let old = &mut self.nodes[self.node];
        // Grants keep their numbers; those of the ended process are worth nothing.
        new.permits = old.permits.iter().map(|_| None).collect();
        self.ended.push(std::mem::replace(old, new));
    }
}

/// Several gates of one limiter.
pub struct Gates {
    clock: ManualClock,
    limiter: Limiter,
    gates: Vec<Gate>,
}

impl Gates {
    /// A fresh limiter in memory with a gate a limit.
    pub fn new(limits: &[Limit]) -> Self {
        Self::on(&Clocked::in_memory(), limits)
    }

    /// A fresh gate a limit, of one limiter.
    pub fn on(clocked: &Clocked, limits: &[Limit]) -> Self {
        let gates = limits.iter().map(|limit| clocked.gate(limit)).collect();
        Self { clock: clocked.clock.clone(), limiter: clocked.limiter.clone(), gates }
    }
}

impl Together for Gates {
    fn decide(&mut self, now_us: u64, asks: &[LimitCheck], mode: Mode) -> Outcome {
        self.clock.set(Timestamp::from_micros(now_us));
        let checks: Vec<Check> =
            asks.iter().map(|ask| Check::new(&self.gates[ask.limit], &ask.key).cost(ask.cost)).collect();
        let verdict = match mode {
            Mode::Reserve => self.limiter.reserve(&checks),
            Mode::Check | Mode::Peek => self.limiter.check(&checks),
        };
        Outcome { allowed: verdict.is_allowed(), wait_us: micros(verdict.wait()) }
    }

    fn peek(&mut self, now_us: u64, limit: usize, key: &[u8]) -> Seen {
        self.clock.set(Timestamp::from_micros(now_us));
        as_seen(&self.gates[limit].peek(key))
    }
}

/// A decision in the suite's words.
///
/// # Panics
/// On a denial that the suite does not know.
pub fn as_seen(decision: &Decision) -> Seen {
    Seen {
        allowed: decision.is_allowed(),
        wait_us: micros(decision.wait()),
        denial: decision.denial().map(|denial| match denial {
            Denial::Later(after) => Denied::Later(micros(after)),
            Denial::Busy => Denied::Unknown,
            Denial::Never => Denied::Never,
            Denial::NeedsPermit => Denied::NeedsPermit,
            Denial::Full => Denied::Full,
            other => panic!("the suite does not know {other:?}"),
        }),
        remaining: decision.remaining(),
        limit: decision.limit(),
        reset_us: micros(decision.reset_after()),
    }
}

/// A verdict on one limit in the suite's words.
///
/// # Panics
/// Where the verdict and its one decision do not agree.
pub fn of_verdict(verdict: &Verdict) -> Seen {
    let seen = as_seen(verdict.decision());
    assert_eq!(verdict.is_allowed(), seen.allowed, "a verdict is its decision's");
    assert_eq!(micros(verdict.wait()), seen.wait_us, "a verdict waits as its decision does");
    seen
}

pub(crate) fn micros(duration: Duration) -> u64 {
    assert_eq!(duration.subsec_nanos() % 1_000, 0, "a decision's times are whole microseconds");
    u64::try_from(duration.as_micros()).expect("a decision's times fit")
}
