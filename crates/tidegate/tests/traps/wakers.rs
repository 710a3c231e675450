//! Traps of wakers, which may own anything: what is dropped under a lock may want that lock.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tidegate::{Limiter, Permit, Timestamp};

/// A waker that owns the place that its task waits for, and lets it go with its last clone.
struct Owner(#[expect(dead_code, reason = "it is there to be dropped")] Mutex<Option<Permit>>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

fn owner(permit: Permit) -> Waker {
    Arc::new(Owner(Mutex::new(Some(permit)))).into()
}

/// Runs on a thread of its own; a deadlock is a failure, not a test that hangs.
fn ends(run: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        run();
        let _ = done.send(());
    });
    is_done.recv_timeout(Duration::from_secs(20)).expect("a waker was dropped under a lock that it wants");
}

#[test]
fn a_waker_that_is_replaced_in_a_queue_is_dropped_without_a_lock() {
    ends(|| {
        let (clock, gate) = crate::gate_at_zero("1 concurrent queue 5 wait 1min");
        let waker = owner(gate.reserve("db").into_permit().unwrap());
        let mut waiting = gate.acquire("db");
        assert!(Pin::new(&mut waiting).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        // The timer lets its clone go; then the clock jumps back, so that the wait goes on.
        clock.advance(crate::seconds(60));
        clock.set(Timestamp::from_micros(0));
        // The last clone of it goes here, and with it the place: it is this waiter's.
        let polled = Pin::new(&mut waiting).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled.map(|verdict| verdict.is_allowed()), Poll::Ready(true));
    });
}

#[test]
fn a_waker_that_leaves_a_queue_is_dropped_without_a_lock() {
    ends(|| {
        let gate = Limiter::new().gate("places", "1 concurrent queue 5 wait 1min").unwrap();
        let waker = owner(gate.reserve("db").into_permit().unwrap());
        let mut waiting = gate.acquire("db");
        assert!(Pin::new(&mut waiting).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        drop(waiting);
        assert!(gate.reserve("db").is_allowed());
    });
}
