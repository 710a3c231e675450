//! The trap of sleeping while holding a thread: here a hundred thousand wait on one.

use crate::{gate_at_zero, micros, seconds};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use tidegate::{Acquire, Verdict};

/// Polls only what was woken, on the thread that calls it.
struct Tasks {
    tasks: Vec<Option<Pin<Box<Acquire>>>>,
    woken: Arc<Mutex<Vec<usize>>>,
}

struct Ring {
    task: usize,
    woken: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap().push(self.task);
    }
}

impl Tasks {
    fn new(acquires: impl Iterator<Item = Acquire>) -> Self {
        let tasks: Vec<_> = acquires.map(|acquire| Some(Box::pin(acquire))).collect();
        let woken = Arc::new(Mutex::new((0..tasks.len()).collect()));
        Self { tasks, woken }
    }

    /// Polls whoever was woken; what became ready, in order.
    fn run(&mut self) -> Vec<(usize, Verdict)> {
        let mut ready = Vec::new();
        loop {
            let woken = std::mem::take(&mut *self.woken.lock().unwrap());
            if woken.is_empty() {
                return ready;
            }
            for task in woken {
                let waker = Waker::from(Arc::new(Ring { task, woken: self.woken.clone() }));
                let Some(future) = &mut self.tasks[task] else { continue };
                if let Poll::Ready(verdict) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    self.tasks[task] = None;
                    ready.push((task, verdict));
                }
            }
        }
    }
}

#[test]
fn a_hundred_thousand_wait_without_a_thread_each() {
    let (clock, gate) = gate_at_zero("1000/s burst 1 wait 200s");
    let mut tasks = Tasks::new((0..100_000).map(|_| gate.acquire("hot")));
    assert_eq!(tasks.run().len(), 1, "the first starts at once");
    assert_eq!(clock.waiting(), 99_999);
    clock.advance(micros(999));
    assert!(tasks.run().is_empty(), "nobody starts early");
    clock.advance(micros(1));
    assert_eq!(
        tasks.run().iter().map(|(task, _)| *task).collect::<Vec<_>>(),
        [1],
        "who came first starts first"
    );
    for _ in 0..99 {
        clock.advance(seconds(1));
        let ready = tasks.run();
        assert_eq!(ready.len(), 1_000);
        assert!(ready.iter().all(|(_, verdict)| verdict.is_allowed()));
        assert!(ready.is_sorted_by_key(|(task, _)| *task));
    }
    clock.advance(seconds(1));
    assert_eq!(tasks.run().len(), 998);
    assert_eq!(clock.waiting(), 0);
}

#[test]
fn who_would_wait_too_long_is_told_at_once() {
    let (clock, gate) = gate_at_zero("10/s burst 1 wait 1s");
    let mut tasks = Tasks::new((0..20).map(|_| gate.acquire("hot")));
    let refused = tasks.run().iter().filter(|(_, verdict)| !verdict.is_allowed()).count();
    assert_eq!(refused, 9, "one starts, ten wait");
    clock.advance(seconds(1));
    assert_eq!(tasks.run().len(), 10);
}

#[test]
fn a_waiter_that_goes_away_gives_back_what_nobody_builds_on() {
    let (clock, gate) = gate_at_zero("10/s burst 1 wait 10s");
    clock.advance(seconds(5));
    let mut tasks = Tasks::new((0..4).map(|_| gate.acquire("hot")));
    tasks.run();
    tasks.tasks[1] = None;
    assert_eq!(gate.reserve("hot").wait(), micros(400_000), "later ones stand on the second");
    tasks.tasks[3] = None;
    assert_eq!(gate.reserve("hot").wait(), micros(500_000), "and the fifth on the fourth");
    assert_eq!(clock.waiting(), 1);
}

#[test]
fn a_place_that_comes_back_goes_to_who_waited_first() {
    let (clock, gate) = gate_at_zero("2 concurrent queue 3 wait 1s");
    let held: Vec<_> = (0..2).map(|_| gate.reserve("hot").into_permit().unwrap()).collect();
    let mut tasks = Tasks::new((0..4).map(|_| gate.acquire("hot")));
    let told = tasks.run();
    assert_eq!(told.len(), 1, "the queue holds three");
    assert!(told[0].0 == 3 && !told[0].1.is_allowed());
    assert!(!gate.reserve("hot").is_allowed());
    drop(held);
    assert!(!gate.reserve("hot").is_allowed(), "nobody overtakes who waits");
    let mut ready = tasks.run();
    assert_eq!(ready.iter().map(|(task, _)| *task).collect::<Vec<_>>(), [0, 1]);
    clock.advance(seconds(1));
    let late = tasks.run();
    assert!(late.len() == 1 && !late[0].1.is_allowed(), "the third waited its second");
    ready.clear();
    assert!(gate.reserve("hot").is_allowed());
}
