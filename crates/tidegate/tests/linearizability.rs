//! Decisions on one key are linearizable: what threads were told at the same time has
//! one order in which the model would have told the same.
//!
//! Short episodes on real threads, each on a new key; the clock stands still, or one
//! of the threads moves it. Reading it often hands the processor to another thread, so
//! that calls meet in their middle, also on a machine with few cores.
//! `TIDEGATE_CASES=20` runs twenty times as many.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use testkit::library::{as_seen, of_verdict};
use testkit::linear::{Call, Order, explain};
use testkit::model::State;
use testkit::rng::Rng;
use testkit::suite::cases;
use testkit::{Mode, Seen};
use tidegate::{Clock, Gate, Limit, Limiter, ManualClock, Timer, Timestamp};

const THREADS: usize = 3;
const CALLS: usize = 5;
const EPISODES: usize = 300;

/// One question, and the times that the clock showed while it was answered.
#[derive(Clone, Debug)]
struct Question {
    cost: u64,
    mode: Mode,
    nows_us: Vec<u64>,
}

type History = Vec<Call<Question, Seen>>;

/// A manual clock that is slow to read: the reader may come back with an old time.
struct SlowClock {
    clock: ManualClock,
    readings: AtomicU64,
}

impl Clock for SlowClock {
    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        let reading = self.readings.fetch_add(1, Ordering::Relaxed);
        if Rng::new(reading).percent(40) {
            std::thread::yield_now();
        }
        now
    }

    fn timer(&self) -> &Timer {
        self.clock.timer()
    }
}

/// What the threads share: a clock that moves by fixed steps, and a place to meet.
struct Stage {
    clock: ManualClock,
    step_us: u64,
    order: Order,
    met: AtomicUsize,
}

impl Stage {
    fn new(step_us: u64) -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(1_000 * step_us));
        Self { clock, step_us, order: Order::default(), met: AtomicUsize::new(0) }
    }

    /// Waits for the others, so that the calls that follow really overlap.
    fn meet(&self, meeting: usize) {
        self.met.fetch_add(1, Ordering::SeqCst);
        let mut spins = 0;
        while self.met.load(Ordering::SeqCst) < (meeting + 1) * THREADS {
            spins += 1;
            if spins % 100 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    fn call(
        &self,
        thread: usize,
        cost: u64,
        mode: Mode,
        run: impl Fn(u64, Mode) -> Seen,
    ) -> Call<Question, Seen> {
        let mut nows_us = Vec::new();
        let question = Question { cost, mode, nows_us: Vec::new() };
        let mut call = self.order.call(thread, question, |_| {
            let before_us = self.clock.now().as_micros();
            let seen = run(cost, mode);
            let after_us = self.clock.now().as_micros();
            nows_us.extend((before_us..=after_us).step_by(usize::try_from(self.step_us).unwrap()));
            seen
        });
        call.op.nows_us = nows_us;
        call
    }
}

/// Runs episodes: `player(episode)` gives a thread its way to ask. Thread 0 moves the
/// clock between its calls, if it moves.
fn histories<P, A>(stage: &Stage, moves: bool, largest: u64, player: P) -> Vec<History>
where
    P: Fn(usize, usize) -> A + Sync,
    A: Fn(u64, Mode) -> Seen,
{
    let episodes = EPISODES * usize::try_from(cases()).unwrap();
    let play = |thread: usize| {
        let mut rng = Rng::new(thread as u64);
        let mut calls = Vec::new();
        for episode in 0..episodes {
            let ask = player(thread, episode);
            stage.meet(episode);
            let mut history = History::new();
            for _ in 0..CALLS {
                let cost = if rng.percent(70) { 1 } else { rng.between(0, largest) };
                let mode = *rng.pick(&[Mode::Check, Mode::Check, Mode::Reserve, Mode::Peek]);
                history.push(stage.call(thread, cost, mode, &ask));
                (0..rng.below(60)).for_each(|_| std::hint::spin_loop());
                if moves && thread == 0 && rng.percent(40) {
                    stage.clock.advance(Duration::from_micros(stage.step_us));
                }
            }
            calls.push(history);
        }
        calls
    };
    let by_thread: Vec<Vec<History>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || play(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (0..episodes).map(|episode| by_thread.iter().flat_map(|calls| calls[episode].clone()).collect()).collect()
}

/// The first history that no order explains.
fn inexplicable(histories: &[History], limit: &Limit) -> Option<History> {
    let next = |state: &State, question: &Question| {
        let outcome = |now_us: &u64| {
            let mut after = state.clone();
            let (seen, _) = after.decide(*now_us, question.cost, question.mode);
            (after, seen)
        };
        question.nows_us.iter().map(outcome).collect()
    };
    histories.iter().find(|history| explain(history, &State::new(limit), next).is_none()).cloned()
}

fn overlaps(history: &History) -> bool {
    let overlap = |a: &Call<_, _>, b: &Call<_, _>| a.invoked < b.invoked && b.invoked < a.returned;
    history.iter().any(|a| history.iter().any(|b| overlap(a, b)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Key,
    Handle,
    Both,
}

fn assert_linearizable(text: &str, moves: bool, way: Way) {
    let limit: Limit = text.parse().unwrap();
    let step_us = u64::try_from(limit.period().as_micros()).unwrap().div_ceil(limit.amount());
    let stage = Stage::new(step_us);
    let clock = SlowClock { clock: stage.clock.clone(), readings: AtomicU64::new(0) };
    let limiter = Limiter::builder().clock(clock).max_keys(100_000).build();
    let gate: Gate = limiter.gate("linear", limit.clone()).unwrap();
    let player = |thread: usize, episode: usize| {
        let (gate, key) = (gate.clone(), format!("key {episode}"));
        let by_handle = way == Way::Handle || way == Way::Both && thread.is_multiple_of(2);
        let handle = by_handle.then(|| gate.handle(&key));
        move |cost, mode| match (mode, &handle) {
            (Mode::Check, Some(handle)) => as_seen(&handle.check_cost(cost)),
            (Mode::Check, None) => as_seen(&gate.check_cost(&key, cost)),
            (Mode::Reserve, Some(handle)) => of_verdict(&handle.reserve_cost(cost)),
            (Mode::Reserve, None) => of_verdict(&gate.reserve_cost(&key, cost)),
            (Mode::Peek, _) => as_seen(&gate.peek_cost(&key, cost)),
        }
    };
    let histories = histories(&stage, moves, limit.capacity() + 1, player);
    let overlapping = histories.iter().filter(|history| overlaps(history)).count();
    assert!(overlapping * 10 > histories.len(), "only {overlapping} episodes had calls at the same time");
    if let Some(history) = inexplicable(&histories, &limit) {
        panic!("`{text}`: no order explains {history:#?}");
    }
}

fn assert_linearizable_in_all_ways(text: &str) {
    for way in [Way::Key, Way::Handle, Way::Both] {
        assert_linearizable(text, false, way);
        assert_linearizable(text, true, way);
    }
}

#[test]
fn a_bucket_of_one_word_is_linearizable() {
    assert_linearizable_in_all_ways("7/s burst 3 wait 300ms");
    assert_linearizable_in_all_ways("leaky 7/s queue 3");
}

#[test]
fn a_bucket_of_two_words_is_linearizable() {
    assert_linearizable_in_all_ways("999983/s burst 4 wait 3us");
}

#[test]
fn a_fixed_window_is_linearizable() {
    assert_linearizable_in_all_ways("4 per 1s fixed-window wait 1s");
}

#[test]
fn a_sliding_window_is_linearizable() {
    assert_linearizable_in_all_ways("4 per 1s sliding-window slices 4 wait 1s");
}

#[test]
fn a_sliding_log_is_linearizable() {
    assert_linearizable_in_all_ways("4 per 1s sliding-log wait 1s");
}

#[test]
fn a_warm_up_is_linearizable() {
    assert_linearizable_in_all_ways("7/s warmup 1s wait 500ms");
}

#[test]
fn a_check_and_an_add_in_two_steps_are_caught() {
    let limit: Limit = "4 per 1000s fixed-window".parse().unwrap();
    let stage = Stage::new(1);
    let used: Vec<AtomicU64> =
        (0..EPISODES * usize::try_from(cases()).unwrap()).map(|_| AtomicU64::new(0)).collect();
    let player = |_: usize, episode: usize| {
        let used = &used[episode];
        move |cost: u64, mode: Mode| {
            let before = used.load(Ordering::SeqCst);
            let allowed = before + cost <= 4;
            if allowed && mode != Mode::Peek {
                std::thread::yield_now();
                used.store(before + cost, Ordering::SeqCst);
            }
            let mut state = State::new(&"4 per 1000s fixed-window".parse().unwrap());
            state.decide(1_000, before, Mode::Check);
            state.decide(1_000, cost, mode).0
        }
    };
    let histories = histories(&stage, false, 5, player);
    assert!(inexplicable(&histories, &limit).is_some());
}
