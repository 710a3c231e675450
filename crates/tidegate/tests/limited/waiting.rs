//! Waits, slots, and callers who go away.

use crate::{on_manual_clock, poll, ready};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;
use tidegate::{Limiter, Refusal, limited};

#[limited("1/s burst 1 wait 1s", limiter = limiter)]
async fn patient(limiter: &Limiter, ran: &AtomicUsize) -> Result<(), Refusal> {
    ran.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

#[test]
fn an_async_function_runs_when_its_wait_is_over_and_not_before() {
    let (clock, limiter) = on_manual_clock();
    let ran = AtomicUsize::new(0);
    assert!(ready(patient(&limiter, &ran)).is_ok());
    let mut second = pin!(patient(&limiter, &ran));
    assert!(poll(&mut second).is_pending());
    assert!(ready(patient(&limiter, &ran)).is_err(), "the wait is at most a second");
    clock.advance(Duration::from_micros(999_999));
    assert!(poll(&mut second).is_pending());
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    clock.advance(Duration::from_micros(1));
    assert!(matches!(poll(&mut second), Poll::Ready(Ok(()))));
    assert_eq!(ran.load(Ordering::SeqCst), 2);
}

#[test]
fn a_caller_who_goes_away_gives_the_start_back() {
    let (_, limiter) = on_manual_clock();
    let ran = AtomicUsize::new(0);
    assert!(ready(patient(&limiter, &ran)).is_ok());
    {
        let mut gone = pin!(patient(&limiter, &ran));
        assert!(poll(&mut gone).is_pending());
    }
    let mut next = pin!(patient(&limiter, &ran));
    assert!(poll(&mut next).is_pending(), "there is room to wait again");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[limited("1/s burst 1 wait 1s", limiter = limiter, blocking)]
fn blocked(limiter: &Limiter, ran: &AtomicUsize) -> Result<(), Refusal> {
    ran.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

#[test]
fn a_blocking_function_waits_on_its_thread() {
    let (clock, limiter) = on_manual_clock();
    let ran = AtomicUsize::new(0);
    assert!(blocked(&limiter, &ran).is_ok());
    std::thread::scope(|threads| {
        let waits = threads.spawn(|| blocked(&limiter, &ran));
        while clock.waiting() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(ran.load(Ordering::SeqCst), 1);
        clock.advance(Duration::from_secs(1));
        assert!(waits.join().unwrap().is_ok());
    });
    assert_eq!(ran.load(Ordering::SeqCst), 2);
}

/// Holds its slot until `go` is set.
#[limited("1 concurrent queue 1 wait 1s", limiter = limiter)]
async fn in_turn(limiter: &Limiter, go: &AtomicUsize) -> Result<u64, Refusal> {
    std::future::poll_fn(|_| match go.load(Ordering::SeqCst) {
        0 => Poll::Pending,
        _ => Poll::Ready(()),
    })
    .await;
    Ok(7)
}

#[test]
fn a_slot_is_held_until_the_function_returns_or_is_dropped() {
    let (_, limiter) = on_manual_clock();
    let (stay, go) = (AtomicUsize::new(0), AtomicUsize::new(1));
    {
        let mut first = pin!(in_turn(&limiter, &stay));
        assert!(poll(&mut first).is_pending());
        let mut second = pin!(in_turn(&limiter, &go));
        assert!(poll(&mut second).is_pending(), "queued");
        assert!(ready(in_turn(&limiter, &go)).is_err(), "the queue is full");
        stay.store(1, Ordering::SeqCst);
        assert!(matches!(poll(&mut first), Poll::Ready(Ok(7))));
        assert!(matches!(poll(&mut second), Poll::Ready(Ok(7))), "the slot went to the next waiter");
        stay.store(0, Ordering::SeqCst);
        let mut dropped = pin!(in_turn(&limiter, &stay));
        assert!(poll(&mut dropped).is_pending());
    }
    assert!(ready(in_turn(&limiter, &go)).is_ok());
}

#[limited("1 concurrent", limiter = limiter)]
fn nested(limiter: &Limiter, depth: u32) -> Result<u32, Refusal> {
    if depth == 0 {
        return Ok(0);
    }
    Ok(nested(limiter, depth - 1).map_or(99, |inner| inner + 1))
}

#[test]
fn a_sync_function_holds_its_slot_while_it_runs() {
    let (_, limiter) = on_manual_clock();
    assert_eq!(nested(&limiter, 1).unwrap(), 99, "the inner call found no slot");
    assert_eq!(nested(&limiter, 0).unwrap(), 0, "and it came back");
}

#[limited("1 concurrent", limiter = limiter)]
fn panics(limiter: &Limiter, is_bad: bool) -> Result<(), Refusal> {
    assert!(!is_bad, "it was to panic");
    Ok(())
}

#[test]
fn a_panic_gives_the_slot_back() {
    let (_, limiter) = on_manual_clock();
    assert!(std::panic::catch_unwind(AssertUnwindSafe(|| panics(&limiter, true))).is_err());
    assert!(panics(&limiter, false).is_ok());
}

#[limited("1 concurrent", limiter = limiter, and(limit = "2/day"))]
async fn slot_and_rate(limiter: &Limiter) -> Result<(), Refusal> {
    Ok(())
}

#[test]
fn slots_and_rates_are_charged_together() {
    let (_, limiter) = on_manual_clock();
    assert!(ready(slot_and_rate(&limiter)).is_ok());
    assert!(ready(slot_and_rate(&limiter)).is_ok());
    let refusal = ready(slot_and_rate(&limiter)).unwrap_err();
    assert_eq!(refusal.limit().to_string(), "2/day");
}

#[limited("10 concurrent", limiter = limiter, and(limit = "1/s burst 1", name = "sync-rate"))]
fn at_once(limiter: &Limiter) -> Result<(), Refusal> {
    Ok(())
}

#[limited("1 concurrent", name = "slots", limiter = limiter, and(limit = "1/s burst 1", name = "async-rate"))]
async fn at_once_async(limiter: &Limiter, go: &AtomicUsize) -> Result<(), Refusal> {
    std::future::poll_fn(|_| match go.load(Ordering::SeqCst) {
        0 => Poll::Pending,
        _ => Poll::Ready(()),
    })
    .await;
    Ok(())
}

#[test]
fn a_function_that_does_not_say_wait_is_refused_at_once_after_any_change() {
    let (clock, limiter) = on_manual_clock();
    let go = AtomicUsize::new(1);
    assert!(at_once(&limiter).is_ok());
    assert!(ready(at_once_async(&limiter, &go)).is_ok());
    for rate in ["sync-rate", "async-rate"] {
        limiter.get(rate).unwrap().change("1/s burst 1 wait 10s").unwrap();
    }
    for second in 0..3 {
        for _ in 0..5 {
            let refusal = at_once(&limiter).unwrap_err();
            assert_eq!((refusal.gate(), refusal.retry_after()), ("sync-rate", Some(Duration::from_secs(1))));
            let refusal = ready(at_once_async(&limiter, &go)).unwrap_err();
            assert_eq!((refusal.gate(), refusal.retry_after()), ("async-rate", Some(Duration::from_secs(1))));
        }
        clock.advance(Duration::from_secs(1));
        assert!(at_once(&limiter).is_ok(), "the refused took nothing, in second {second}");
        assert!(ready(at_once_async(&limiter, &go)).is_ok());
    }
    let path = "limited::waiting::at_once";
    assert_eq!(limiter.get(path).unwrap().peek_cost("", 0).remaining(), 10, "no slot is left behind");
}

#[test]
fn a_function_that_does_not_say_wait_queues_for_no_slot_after_a_change() {
    let (clock, limiter) = on_manual_clock();
    let (stay, go) = (AtomicUsize::new(0), AtomicUsize::new(1));
    let mut first = pin!(at_once_async(&limiter, &stay));
    assert!(poll(&mut first).is_pending());
    clock.advance(Duration::from_secs(1));
    limiter.get("slots").unwrap().change("1 concurrent queue 5 wait 10s").unwrap();
    assert_eq!(ready(at_once_async(&limiter, &go)).unwrap_err().gate(), "slots");
}

#[test]
fn a_function_that_says_wait_waits_as_long_as_the_limit_in_force() {
    let (clock, limiter) = on_manual_clock();
    let ran = AtomicUsize::new(0);
    assert!(ready(patient(&limiter, &ran)).is_ok());
    let gate = limiter.get("limited::waiting::patient").unwrap();
    gate.change("1/s burst 1").unwrap();
    assert!(ready(patient(&limiter, &ran)).is_err(), "there is no wait any more");
    gate.change("1/s burst 1 wait 2s").unwrap();
    let mut second = pin!(patient(&limiter, &ran));
    let mut third = pin!(patient(&limiter, &ran));
    assert!(poll(&mut second).is_pending() && poll(&mut third).is_pending());
    clock.advance(Duration::from_secs(2));
    assert!(matches!(poll(&mut third), Poll::Ready(Ok(()))));
}

fn is_send<T: Send>(_: &T) {}

#[test]
fn limited_futures_can_move_between_threads() {
    let (_, limiter) = on_manual_clock();
    let ran = AtomicUsize::new(0);
    is_send(&patient(&limiter, &ran));
    is_send(&in_turn(&limiter, &ran));
    is_send(&slot_and_rate(&limiter));
}
