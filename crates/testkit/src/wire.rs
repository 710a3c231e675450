//! A third store: a limiter of its own stands for the server, and what is sent to it goes over a
//! wire that is slow and lossy on command.
//!
//! It shows that a store can be added without a change to the library, and lets tests lose a
//! reply at the one moment that matters, which no real server does.

#![expect(clippy::disallowed_methods, reason = "a wire's delay is real time, whatever a test's clock says")]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tidegate::store::{GroupDecisions, GroupId, Mode, OwnedCheck, Store, StoreCharge, StoreGate};
use tidegate::{Check, Decision, Gate, GateOptions, Limit, Limiter, Pending, Permit};

/// When a store that did not answer is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// What a wire does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing is lost.
    None,
    /// The server never hears of it.
    Request,
    /// The server does it, and the caller never hears of it.
    Reply,
}

/// The wire between a store and its server. Clones are the same wire.
#[derive(Clone, Default)]
pub struct Wire(Arc<WireState>);

#[derive(Default)]
struct WireState {
    loss: AtomicU8,
    delay_us: AtomicU64,
    calls: AtomicU64,
}

impl Wire {
    /// From now on, every call is lost like this.
    pub fn lose(&self, loss: Loss) {
        self.0.loss.store(loss as u8, Ordering::SeqCst);
    }

    /// From now on, every reply takes this time.
    pub fn delay(&self, delay: Duration) {
        let us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.0.delay_us.store(us, Ordering::SeqCst);
    }

    /// Calls that were sent.
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::SeqCst)
    }

    fn loss(&self) -> Loss {
        match self.0.loss.load(Ordering::SeqCst) {
            0 => Loss::None,
            1 => Loss::Request,
            _ => Loss::Reply,
        }
    }

    /// Has the server do something; none if its reply does not come.
    fn call<T>(&self, serve: impl FnOnce() -> T) -> Option<T> {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        match self.loss() {
            Loss::None => Some(serve()),
            Loss::Request => None,
            Loss::Reply => {
                drop(serve());
                None
            }
        }
    }

    fn reply<T: Send + 'static>(&self, value: T) -> Pending<T> {
        match self.0.delay_us.load(Ordering::SeqCst) {
            0 => Pending::ready(value),
            us => Pending::new(async move {
                Delay::new(Duration::from_micros(us)).await;
                value
            }),
        }
    }
}

/// Real time that passes, under any executor.
struct Delay {
    until: Instant,
    waker: Option<Arc<Mutex<Waker>>>,
}

impl Delay {
    fn new(delay: Duration) -> Self {
        Self { until: Instant::now() + delay, waker: None }
    }
}

impl Future for Delay {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Poll::Ready(());
        }
        match &self.waker {
            Some(waker) => *waker.lock().unwrap_or_else(PoisonError::into_inner) = context.waker().clone(),
            None => {
                let waker = Arc::new(Mutex::new(context.waker().clone()));
                self.waker = Some(waker.clone());
                std::thread::spawn(move || {
                    std::thread::sleep(left);
                    waker.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
                });
            }
        }
        Poll::Pending
    }
}

/// A store whose server is a limiter at the other end of a [`Wire`].
pub struct WireStore {
    server: Limiter,
    wire: Wire,
}

impl WireStore {
    /// Over this wire, to this server.
    pub fn new(server: Limiter, wire: Wire) -> Self {
        Self { server, wire }
    }
}

impl Store for WireStore {
    fn open(self: Arc<Self>, name: &str, limit: Limit, _: &GateOptions) -> Arc<dyn StoreGate> {
        let served = match self.server.gate(name, limit.clone()) {
            Ok(gate) => gate,
            // The server has it by another limit.
            Err(_) => self.server.get(name).expect("a name that the library has checked"),
        };
        served.change(limit).expect("a limit that the library has checked");
        Arc::new(WireGate { store: self, served })
    }
}

struct WireGate {
    store: Arc<WireStore>,
    /// The gate at the server.
    served: Gate,
}

impl WireGate {
    fn call<T>(&self, serve: impl FnOnce() -> T) -> Option<T> {
        self.store.wire.call(serve)
    }

    fn unavailable(&self) -> Decision {
        Decision::unavailable(&self.served.limit(), RETRY_AFTER)
    }
}

impl StoreGate for WireGate {
    fn limit(&self) -> Limit {
        self.served.limit()
    }

    fn change(&self, limit: Limit) {
        self.served.change(limit).expect("a limit that the library has checked");
    }

    fn check(self: Arc<Self>, key: &[u8], cost: u64) -> Pending<Decision> {
        let decision = self.call(|| self.served.check_cost(key, cost));
        self.store.wire.reply(decision.unwrap_or_else(|| self.unavailable()))
    }

    fn peek(self: Arc<Self>, key: &[u8], cost: u64) -> Pending<Decision> {
        let decision = self.call(|| self.served.peek_cost(key, cost));
        self.store.wire.reply(decision.unwrap_or_else(|| self.unavailable()))
    }

    fn reset(self: Arc<Self>, key: &[u8]) -> Pending<bool> {
        let is_done = self.call(|| self.served.reset(key)).is_some();
        self.store.wire.reply(is_done)
    }

    fn group(&self, _: &[u8]) -> GroupId {
        GroupId::new(&self.store, 0)
    }

    fn decide(self: Arc<Self>, checks: &[OwnedCheck], mode: Mode) -> Pending<GroupDecisions> {
        let gates: Vec<Arc<Self>> =
            checks.iter().map(|check| check.store_gate().expect("a group is of one store")).collect();
        let served: Vec<Check<'_>> =
            gates.iter().zip(checks).map(|(gate, check)| served(gate, check)).collect();
        let server = &self.store.server;
        let verdict = self.call(|| match mode {
            Mode::Check => server.check(&served),
            Mode::Hold => server.hold(&served),
            Mode::Reserve => server.reserve(&served),
        });
        let Some(verdict) = verdict else {
            let decisions = gates.iter().map(|gate| gate.unavailable()).collect();
            return self.store.wire.reply(GroupDecisions { decisions, charge: None });
        };
        let decisions = verdict.decisions().to_vec();
        let charge = verdict.into_permit().ok().map(|permit| Undelivered(Some(self.charge(permit))));
        let reply = self.store.wire.reply((decisions, charge));
        Pending::new(async move {
            let (decisions, charge) = reply.await;
            GroupDecisions { decisions, charge: charge.and_then(Undelivered::deliver) }
        })
    }

    fn queue(self: Arc<Self>, key: &[u8], costs: &[u64]) -> Pending<Option<Box<dyn StoreCharge>>> {
        let checks: Vec<Check<'_>> =
            costs.iter().map(|cost| Check::new(&self.served, key).cost(*cost)).collect();
        let Some(acquire) = self.call(|| self.store.server.acquire(&checks)) else {
            return self.store.wire.reply(None);
        };
        Pending::new(async move { acquire.await.into_permit().ok().map(|permit| self.charge(permit)) })
    }
}

/// A check as it is sent to the server.
fn served<'a>(gate: &'a WireGate, check: &'a OwnedCheck) -> Check<'a> {
    let served = Check::new(&gate.served, check.key()).cost(check.cost());
    check.limit().map_or(served, |limit| served.limit(limit).expect("a limit that the library has checked"))
}

impl WireGate {
    fn charge(&self, permit: Permit) -> Box<dyn StoreCharge> {
        Box::new(WireCharge { permit, wire: self.store.wire.clone() })
    }
}

/// A charge on its way to the caller. Dropped before it arrives, it goes back.
struct Undelivered(Option<Box<dyn StoreCharge>>);

impl Undelivered {
    fn deliver(mut self) -> Option<Box<dyn StoreCharge>> {
        self.0.take()
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        if let Some(charge) = &mut self.0 {
            // More than any test has checks.
            charge.settle(&[0; 64]);
        }
    }
}

struct WireCharge {
    /// The server's.
    permit: Permit,
    wire: Wire,
}

impl StoreCharge for WireCharge {
    fn settle(&mut self, costs: &[u64]) {
        self.wire.call(|| self.permit.set_costs(costs));
    }

    fn is_lost(&self) -> bool {
        self.permit.is_lost()
    }
}
