//! Reserve and wait, under any executor: the future behind `acquire`.
//!
//! A rate is reserved at once and then slept for. A place of a concurrency limit is
//! queued for; when several gates are asked, places are taken in a fixed order first
//! and the rates last, so that nothing is charged to somebody who gets no place.

use crate::algorithm::{Mode, Plan, State, Waiter};
use crate::ask::{MemoryAsk, OwnedAsk, all_in_memory, in_memory};
use crate::clock::{MonotonicClock, StoreClock, Timestamp};
use crate::decision::Denial;
use crate::permit::{Charge, Permit};
use crate::store::memory::{Write, home_of, with_state};
use crate::timer::Alarm;
use crate::verdict::Verdict;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Waits for its start and then is the [`Verdict`]. Dropped before, it gives back
/// what it holds, as [`Permit::cancel`] does.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Acquire(Inner);

#[cfg_attr(feature = "redis", expect(clippy::large_enum_variant, reason = "memory is not made to allocate"))]
enum Inner {
    Memory(InMemory),
    #[cfg(feature = "redis")]
    Parts(Pin<Box<dyn Future<Output = Verdict> + Send>>),
}

/// All gates are in memory.
struct InMemory {
    asks: Vec<MemoryAsk>,
    phase: Phase,
    /// The alarm that stands, and the clock that it stands on.
    alarm: Option<(Alarm, StoreClock)>,
}

enum Phase {
    Start,
    /// Queued for a place.
    Queued(Queued),
    /// Everything is held; the start is to come.
    Reserved {
        verdict: Verdict,
        until: Timestamp,
        clock: StoreClock,
    },
    Done,
}

struct Queued {
    waiter: Arc<Waiter>,
    until: Timestamp,
    /// When the queue was entered, and how long others were waited in before.
    since: Timestamp,
    waited: Duration,
    /// The ask that is queued for, and those still to come, last first.
    ask: MemoryAsk,
    to_come: Vec<MemoryAsk>,
    /// The places that are held already.
    held: Vec<Permit>,
    /// What to say if no place comes.
    denied: Verdict,
}

impl Acquire {
    pub(crate) fn new(asks: Vec<OwnedAsk>) -> Self {
        Self(match all_in_memory(asks) {
            Ok(asks) => Inner::Memory(InMemory { asks, phase: Phase::Start, alarm: None }),
            #[cfg(feature = "redis")]
            Err(asks) => Inner::Parts(Box::pin(crate::parts::acquire(asks))),
            #[cfg(not(feature = "redis"))]
            Err(_) => Inner::Memory(InMemory { asks: Vec::new(), phase: Phase::Start, alarm: None }),
        })
    }

    /// Waits on this thread, for code without an executor. Holds the thread all the
    /// while: in async code, await instead.
    pub fn blocking(self) -> Verdict {
        block_on(self)
    }
}

/// Waits for a future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

impl InMemory {
    fn start(&mut self, waker: &Waker) -> Phase {
        let verdict = in_memory(&mut self.asks, Mode::Reserve);
        let clock = clock_of(&self.asks);
        if verdict.is_allowed() {
            return reserved(verdict, clock);
        }
        match self.places_to_queue_for(&verdict) {
            Some(mut places) => {
                places.sort_by_key(|ask| std::cmp::Reverse((ask.meter.id, ask.hash)));
                queue(places, Vec::new(), Duration::ZERO, verdict, waker)
            }
            None => done(verdict, clock),
        }
    }

    /// All places that are asked for, if only places are missing and may be waited for.
    fn places_to_queue_for(&mut self, denied: &Verdict) -> Option<Vec<MemoryAsk>> {
        let mut places: Vec<MemoryAsk> = Vec::new();
        for (ask, decision) in self.asks.iter_mut().zip(denied.decisions()) {
            let is_place = matches!(ask.meter.version().plan, Plan::Slots(_));
            match decision.denial() {
                Some(Denial::Unknown) if is_place => {}
                Some(_) => return None,
                None => {}
            }
            if is_place {
                // Nothing was charged, so nobody has looked whether there is room for it.
                ask.hash = home_of(&ask.meter, ask.hash, ask.cost)?;
                match places.iter_mut().find(|p| p.is_same_key(ask)) {
                    Some(same) => same.cost = same.cost.saturating_add(ask.cost),
                    None => places.push(ask.clone()),
                }
            }
        }
        Some(places)
    }

    /// A place has come: the next one, or the rates.
    fn go_on(&self, mut queued: Queued, waker: &Waker) -> Phase {
        // Several checks of one key were queued for as one.
        let place =
            self.asks.iter().filter(|ask| ask.is_same_key(&queued.ask)).map(Charge::of_place).collect();
        let now = queued.ask.meter.home.clock.now();
        let waited = queued.waited + now.since(queued.since);
        queued.held.push(Permit::new(place, now, Duration::ZERO));
        if !queued.to_come.is_empty() {
            return queue(queued.to_come, queued.held, waited, queued.denied, waker);
        }
        let is_rate = |ask: &&MemoryAsk| !matches!(ask.meter.version().plan, Plan::Slots(_));
        let mut rates: Vec<MemoryAsk> = self.asks.iter().filter(is_rate).cloned().collect();
        let verdict = in_memory(&mut rates, Mode::Reserve);
        // Without rates it starts now, on the clock of the last place.
        let clock = if rates.is_empty() { queued.ask.meter.home.clock.clone() } else { clock_of(&rates) };
        reserved(verdict.spread(&self.asks, queued.held).after(waited), clock)
    }
}

/// The clock by which a verdict on these questions was made.
fn clock_of(asks: &[MemoryAsk]) -> StoreClock {
    asks.first()
        .map_or_else(|| StoreClock::Monotonic(MonotonicClock::new()), |ask| ask.meter.home.clock.clone())
}

fn done(verdict: Verdict, clock: StoreClock) -> Phase {
    Phase::Reserved { verdict, until: Timestamp::default(), clock }
}

fn reserved(verdict: Verdict, clock: StoreClock) -> Phase {
    let until = verdict.starts_at();
    Phase::Reserved { verdict, until, clock }
}

/// Queues for the last of `places`.
///
/// The queue may be full: then the verdict is what it was. `waited` is how long others were
/// waited in before, if this is another one.
fn queue(
    mut places: Vec<MemoryAsk>,
    held: Vec<Permit>,
    waited: Duration,
    denied: Verdict,
    waker: &Waker,
) -> Phase {
    let Some(ask) = places.pop() else { return done(denied, clock_of(&[])) };
    let waiter = Waiter::new(ask.cost, waker.clone());
    let queued = with_state(&ask.meter, ask.hash, |version, now_us, state| match (&version.plan, state) {
        (Plan::Slots(slots), State::Slots(state)) => {
            let is_queued = slots.enqueue(state, &waiter);
            let now = Timestamp::from_micros(now_us);
            // A place may have come back between the question and the queue.
            let queued = is_queued.then(|| (now, now + version.limit.wait(), slots.hand_on(state)));
            (queued, Write::Charged(0))
        }
        _ => (None, Write::Nothing),
    });
    let Some((since, until, wakers)) = queued else { return done(denied, ask.meter.home.clock.clone()) };
    wakers.into_iter().for_each(Waker::wake);
    Phase::Queued(Queued { waiter, until, since, waited, ask, to_come: places, held, denied })
}

/// Takes a waiter out of its queue, or hands on the place that it was just given.
fn leave(ask: &MemoryAsk, waiter: &Waiter) {
    // Its waker may own anything, and must not be dropped under the key's lock.
    waiter.wake_nobody();
    let wakers = with_state(&ask.meter, ask.hash, |version, _, state| match (&version.plan, state) {
        (Plan::Slots(slots), State::Slots(state)) => (slots.leave(state, waiter), Write::Charged(0)),
        _ => (Vec::new(), Write::Nothing),
    });
    wakers.into_iter().for_each(Waker::wake);
}

impl Future for Acquire {
    type Output = Verdict;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Verdict> {
        match &mut self.0 {
            Inner::Memory(acquire) => acquire.poll(context),
            #[cfg(feature = "redis")]
            Inner::Parts(parts) => parts.as_mut().poll(context),
        }
    }
}

impl InMemory {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Verdict> {
        let this = self;
        let waker = context.waker();
        loop {
            let (until, clock) = match std::mem::replace(&mut this.phase, Phase::Done) {
                Phase::Start => {
                    this.phase = this.start(waker);
                    continue;
                }
                Phase::Reserved { verdict, until, clock } => {
                    if clock.now() >= until {
                        this.disarm();
                        return Poll::Ready(verdict);
                    }
                    this.phase = Phase::Reserved { verdict, until, clock: clock.clone() };
                    (until, clock)
                }
                Phase::Queued(queued) if queued.waiter.is_granted(waker) => {
                    this.disarm();
                    this.phase = this.go_on(queued, waker);
                    continue;
                }
                Phase::Queued(queued) => {
                    let clock = queued.ask.meter.home.clock.clone();
                    if clock.now() >= queued.until {
                        this.disarm();
                        leave(&queued.ask, &queued.waiter);
                        return Poll::Ready(queued.denied);
                    }
                    let until = queued.until;
                    this.phase = Phase::Queued(queued);
                    (until, clock)
                }
                Phase::Done => panic!("`Acquire` was polled after it was ready"),
            };
            let timer = clock.timer();
            let is_armed = this.alarm.as_ref().is_some_and(|(alarm, _)| timer.rearm(*alarm, waker));
            if !is_armed {
                this.alarm = Some((timer.arm(until, waker.clone()), clock.clone()));
                // The clock may have passed it before the alarm stood.
                if clock.now() >= until {
                    continue;
                }
            }
            return Poll::Pending;
        }
    }
}

impl InMemory {
    fn disarm(&mut self) {
        if let Some((alarm, clock)) = self.alarm.take() {
            clock.timer().disarm(alarm);
        }
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        self.disarm();
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Queued(queued) => leave(&queued.ask, &queued.waiter),
            Phase::Reserved { verdict, .. } => drop(verdict.into_permit().map(Permit::cancel)),
            Phase::Start | Phase::Done => {}
        }
    }
}

impl std::fmt::Debug for Acquire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Inner::Memory(acquire) => {
                let names: Vec<&str> = acquire.asks.iter().map(|ask| &*ask.meter.name).collect();
                f.debug_struct("Acquire").field("gates", &names).finish()
            }
            #[cfg(feature = "redis")]
            Inner::Parts(_) => f.debug_struct("Acquire").finish_non_exhaustive(),
        }
    }
}
