//! The crowd: connections that do what is due, and one pace that tells them.
//!
//! All of it runs on one thread, so nothing is locked and a hand-over costs a wake-up. A
//! connection that is done takes what is due next by itself; those that found nothing wait until
//! the pace, once a millisecond, has something for them.

use super::answer::Answer;
use super::reply::{Fault, Reply};
use super::request::Requests;
use super::schedule::{Action, Arrivals, Schedule, Step};
use super::tally::Tally;
use super::wire::Wire;
use indicatif::ProgressBar;
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, MissedTickBehavior};

/// What the crowd does.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) users: u32,
    pub(super) span: Duration,
    /// After the span, for what still waits; then all stops.
    pub(super) grace: Duration,
    /// Between a path and the order, on average.
    pub(super) think: Duration,
    pub(super) retries: u8,
    /// So many in a hundred buyers repeat their order.
    pub(super) repeats: u8,
    pub(super) seed: u64,
}

/// How often the pace looks.
const TICK: Duration = Duration::from_millis(1);
/// How often the bar moves, in ticks.
const BAR_TICKS: u64 = 250;
/// A sale that says "later" without saying when means this.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The least that those who were all told the same time spread over.
const JITTER_MIN: Duration = Duration::from_millis(100);
/// Before a lost order, or one to be repeated, is asked for again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// After a connection could not be made.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// How it went.
pub(super) struct Outcome {
    pub(super) tally: Tally,
    pub(super) took: Duration,
    pub(super) was_interrupted: bool,
}

/// Lets the crowd loose over these connections, until all is done, `stopped` comes, or the hard
/// stop.
pub(super) async fn run(
    plan: Plan,
    requests: Rc<Requests>,
    wires: Vec<Wire>,
    bar: &ProgressBar,
    stopped: impl Future<Output = ()>,
) -> Outcome {
    let crowd = Rc::new(Crowd::new(plan, requests, wires.len()));
    let local = LocalSet::new();
    let was_interrupted = local
        .run_until(async {
            let mut desks = JoinSet::new();
            for (desk, wire) in wires.into_iter().enumerate() {
                desks.spawn_local(serve(crowd.clone(), desk, wire));
            }
            tokio::select! {
                () = pace(&crowd, bar) => false,
                () = stopped => true,
            }
        })
        .await;
    let took = crowd.start.elapsed();
    let tally = crowd.state.borrow_mut().close(crowd.now_us());
    Outcome { tally, took, was_interrupted }
}

struct Crowd {
    plan: Plan,
    requests: Rc<Requests>,
    start: Instant,
    /// Nothing is begun after this.
    stop_us: u64,
    state: RefCell<State>,
}

struct State {
    schedule: Schedule,
    tally: Tally,
    rng: fastrand::Rng,
    desks: Vec<Desk>,
    /// Desks with nothing to do; the one that was busy last is on top, and its memory still warm.
    idle: Vec<usize>,
}

/// What a connection is busy with.
#[derive(Default)]
struct Desk {
    action: Option<Action>,
    /// How to wake it, while it is idle.
    waker: Option<Waker>,
}

/// Hands out what is due, until there is nothing left or the time is up.
async fn pace(crowd: &Crowd, bar: &ProgressBar) {
    let mut ticks = tokio::time::interval_at(crowd.start, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for tick in 0_u64.. {
        ticks.tick().await;
        let now_us = crowd.now_us();
        let state = &mut *crowd.state.borrow_mut();
        state.hand_out(now_us);
        let is_done = state.idle.len() == state.desks.len() && state.schedule.is_empty();
        if is_done || now_us >= crowd.stop_us {
            return;
        }
        if tick % BAR_TICKS == 0 && !bar.is_hidden() {
            let tally = &state.tally;
            bar.set_position(u64::from(state.schedule.arrived()));
            let (paths, orders) = (tally.admissions.count(), tally.given.len());
            bar.set_message(format!("{paths} paths, {orders} orders, {} refused", tally.refusals.count()));
        }
    }
}

/// One connection: does what is due, one thing after the other.
async fn serve(crowd: Rc<Crowd>, desk: usize, mut wire: Wire) {
    loop {
        crowd.next(desk).await;
        crowd.write(desk, &mut wire.out);
        let before = wire.reconnects;
        let outcome = wire.exchange().await;
        crowd.state.borrow_mut().tally.reconnects += wire.reconnects - before;
        match &outcome {
            Ok(reply) => crowd.answered(desk, reply, wire.body(reply)),
            Err(fault) => crowd.failed(desk, *fault),
        }
        if outcome == Err(Fault::Connect) {
            tokio::time::sleep(CONNECT_PAUSE).await;
        }
    }
}

impl Crowd {
    fn new(plan: Plan, requests: Rc<Requests>, desks: usize) -> Self {
        let arrivals = Arrivals::new(plan.users, plan.span, plan.seed);
        let state = State {
            schedule: Schedule::new(arrivals),
            tally: Tally::default(),
            rng: fastrand::Rng::with_seed(!plan.seed),
            desks: (0..desks).map(|_| Desk::default()).collect(),
            idle: Vec::with_capacity(desks),
        };
        let stop_us = micros(plan.span.saturating_add(plan.grace));
        Self { plan, requests, start: Instant::now(), stop_us, state: RefCell::new(state) }
    }

    fn now_us(&self) -> u64 {
        micros(self.start.elapsed())
    }

    /// Waits until there is something to do at this desk.
    async fn next(&self, desk: usize) {
        poll_fn(|context| {
            let state = &mut *self.state.borrow_mut();
            if state.desks[desk].action.is_some() {
                return Poll::Ready(());
            }
            let now_us = self.now_us();
            if state.desks[desk].waker.is_none() && now_us < self.stop_us {
                state.desks[desk].action = state.schedule.take_due(now_us);
                if state.desks[desk].action.is_some() {
                    return Poll::Ready(());
                }
                state.idle.push(desk);
            }
            state.desks[desk].waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn write(&self, desk: usize, out: &mut Vec<u8>) {
        let state = &mut *self.state.borrow_mut();
        let Some(action) = &state.desks[desk].action else { return };
        self.requests.write(action, out);
        state.tally.sent += 1;
        state.tally.retries += u64::from(action.tries > 0);
        state.tally.late.record(action.due_us, self.now_us());
    }

    fn answered(&self, desk: usize, reply: &Reply, body: &[u8]) {
        let state = &mut *self.state.borrow_mut();
        let Some(action) = state.desks[desk].action.take() else { return };
        let (now_us, answer) = (self.now_us(), Answer::read(body));
        let tally = &mut state.tally;
        tally.answered((reply.status, answer.code));
        if reply.status != 200 {
            tally.refusals.record(action.due_us, now_us);
            if !matches!(reply.status, 425 | 429 | 503) {
                if let Step::Again { order, .. } = &action.step {
                    tally.given.refused(order, (reply.status, answer.code), action.user);
                }
                return tally.end(&action);
            }
            let told = reply.retry_after_s.map_or(RETRY_AFTER, Duration::from_secs);
            return self.retry(state, action, now_us, told);
        }
        let Some(text) = answer.text() else {
            tally.odd += 1;
            return tally.end(&action.lost());
        };
        let Action { due_us, user, step, .. } = action;
        match step {
            Step::Ask => {
                tally.admissions.record(due_us, now_us);
                tally.admitted_at_us.push(now_us);
                let think = spread(&mut state.rng, self.plan.think);
                let step = Step::Order { path: text.into() };
                self.later(state, Action::new(now_us + micros(think), user, step));
            }
            Step::Order { path } => {
                tally.orders.record(due_us, now_us);
                tally.given.order(&text, user);
                if state.rng.u8(..100) < self.plan.repeats {
                    let step = Step::Again { path, order: text.into() };
                    let due_us = now_us + micros(spread(&mut state.rng, AGAIN_AFTER));
                    self.later(state, Action::new(due_us, user, step));
                }
            }
            Step::Again { order, .. } => tally.given.again(&order, &text, user),
        }
    }

    /// No answer. A path or an order is asked for again: both may be, and nobody knows whether
    /// the order was taken until it is.
    fn failed(&self, desk: usize, fault: Fault) {
        let state = &mut *self.state.borrow_mut();
        state.tally.fault(fault);
        let Some(action) = state.desks[desk].action.take() else { return };
        let now_us = self.now_us();
        state.tally.unanswered.record(action.due_us, now_us);
        self.retry(state, action.lost(), now_us, AGAIN_AFTER);
    }

    /// The same once more, not before it was told to; later by up to half as much again, so that
    /// those who were told the same do not come back as one.
    fn retry(&self, state: &mut State, action: Action, now_us: u64, after: Duration) {
        if action.tries >= self.plan.retries {
            state.tally.tries_spent += 1;
            return state.tally.end(&action);
        }
        let jitter_us = state.rng.u64(..=micros((after / 2).max(JITTER_MIN)));
        let due_us = now_us.saturating_add(micros(after)).saturating_add(jitter_us);
        self.later(state, Action { due_us, tries: action.tries + 1, ..action });
    }

    fn later(&self, state: &mut State, action: Action) {
        if action.due_us < self.stop_us {
            state.schedule.add(action);
        } else {
            state.tally.too_late += 1;
            state.tally.end(&action);
        }
    }
}

impl State {
    fn hand_out(&mut self, now_us: u64) {
        while let Some(desk) = self.idle.pop() {
            let Some(action) = self.schedule.take_due(now_us) else {
                self.idle.push(desk);
                return;
            };
            let desk = &mut self.desks[desk];
            desk.action = Some(action);
            if let Some(waker) = desk.waker.take() {
                waker.wake();
            }
        }
    }

    /// Counts what is left when all has stopped.
    fn close(&mut self, now_us: u64) -> Tally {
        let mut tally = std::mem::take(&mut self.tally);
        for action in self.desks.iter_mut().filter_map(|desk| desk.action.take()) {
            tally.unanswered.record(action.due_us, now_us);
            tally.end(&action.lost());
        }
        while let Some(action) = self.schedule.take_due(now_us) {
            tally.unanswered.record(action.due_us, now_us);
            tally.unsent += 1;
            tally.end(&action);
        }
        for action in self.schedule.drain() {
            tally.too_late += 1;
            tally.end(&action);
        }
        tally.arrived = u64::from(self.schedule.arrived());
        tally
    }
}

/// A length around this one: from half of it to half as much again.
fn spread(rng: &mut fastrand::Rng, length: Duration) -> Duration {
    length / 2 + Duration::from_micros(rng.u64(..=micros(length)))
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}
