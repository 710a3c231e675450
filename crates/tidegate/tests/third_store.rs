//! A store that is no part of the library, behind the same boundary as Redis: the suite of the
//! memory store, unchanged, and what a slow and lossy wire may not do.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use testkit::library::{Clocked, Gates, Library, Way};
use testkit::limits::{CHANGES, FIXED, HELD, LEAKY, LOGS, SMOOTH, TICKED, TOGETHER, WARM, WINDOWS};
use testkit::suite::conforms;
use testkit::together;
use testkit::trace::{Traffic, YEAR_US};
use testkit::wire::Loss;
use tidegate::{Check, Decision, Denial, Limit, Limiter};

fn assert_conforms(texts: &[&str], traffic: &Traffic, way: Way) {
    let (clocked, _) = Clocked::over_a_wire();
    for text in texts {
        let limit: Limit = text.parse().unwrap();
        let make = |limit: &Limit| Box::new(Library::on(&clocked, limit, way)) as Box<dyn testkit::Subject>;
        if let Err(mismatch) = conforms(&limit, traffic, 1, 2, &make) {
            panic!("{mismatch}");
        }
    }
}

macro_rules! every_algorithm {
    ($($name:ident: $texts:ident),* $(,)?) => {$(
        mod $name {
            use super::*;

            #[test]
            fn decides_as_the_model() {
                for begins_us in [0, 123_456_789, 2 * YEAR_US + 7] {
                    assert_conforms(&$texts, &Traffic { begins_us, ..Traffic::plain() }, Way::Both);
                }
            }

            #[test]
            fn gives_back_as_the_model() {
                for (begins_us, steps) in [(YEAR_US, 120), (YEAR_US + 123_456_789, 15)] {
                    let traffic = Traffic { gives_back: true, begins_us, steps, ..Traffic::plain() };
                    assert_conforms(&$texts, &traffic, Way::Both);
                }
            }

            #[test]
            fn survives_a_jumping_clock_as_the_model() {
                for begins_us in [0, 3 * YEAR_US] {
                    let traffic = Traffic { jumps: true, begins_us, ..Traffic::plain() };
                    assert_conforms(&$texts, &traffic, Way::Key);
                }
            }
        }
    )*};
}

testkit::for_every_algorithm!(every_algorithm);

#[test]
fn concurrency_without_a_queue_decides_as_the_model() {
    assert_conforms(&HELD, &Traffic::plain(), Way::Both);
}

#[test]
fn a_changed_limit_takes_over_as_the_model() {
    let changes: Vec<Limit> = CHANGES.iter().map(|text| text.parse().unwrap()).collect();
    for begins_us in [0, 123_456_789] {
        let traffic = Traffic { changes: changes.clone(), begins_us, ..Traffic::plain() };
        assert_conforms(&CHANGES, &traffic, Way::Key);
    }
}

#[test]
fn several_limits_are_charged_all_or_none_as_the_models() {
    let limits: Vec<Limit> = TOGETHER.iter().map(|text| text.parse().unwrap()).collect();
    let (clocked, _) = Clocked::over_a_wire();
    if let Err(split) = together::conforms(&limits, 1, 300, &|limits| Box::new(Gates::on(&clocked, limits))) {
        panic!("{split}");
    }
}

#[test]
fn a_lost_request_is_answered_and_spends_nothing() {
    let (clocked, wire) = Clocked::over_a_wire();
    let gate = clocked.limiter.gate("gate", "5/s").unwrap();
    wire.lose(Loss::Request);
    assert!(matches!(gate.check("ann").denial(), Some(Denial::Unavailable(_))));
    assert!(gate.reserve("ann").is_degraded());
    wire.lose(Loss::None);
    assert_eq!(gate.peek("ann").remaining(), 5);
}

#[test]
fn a_lost_reply_counts_as_spent() {
    let (clocked, wire) = Clocked::over_a_wire();
    let gate = clocked.limiter.gate("gate", "5/s").unwrap();
    wire.lose(Loss::Reply);
    assert!(!gate.check("ann").is_allowed() && !gate.reserve("ann").is_allowed());
    wire.lose(Loss::None);
    assert_eq!(gate.peek("ann").remaining(), 3);
}

#[test]
fn a_slow_decision_that_is_dropped_gives_back_what_it_took() {
    let (clocked, wire) = Clocked::over_a_wire();
    let gate = clocked.limiter.gate("gate", "5/s").unwrap();
    wire.delay(Duration::from_secs(3600));
    let mut context = Context::from_waker(Waker::noop());
    {
        let mut reserving = pin!(gate.reserve_cost_async("ann", 3));
        assert!(reserving.as_mut().poll(&mut context).is_pending(), "the reply is on its way");
        wire.delay(Duration::ZERO);
        assert_eq!(gate.peek("ann").remaining(), 2);
    }
    assert_eq!(gate.peek("ann").remaining(), 5);
}

#[test]
fn a_slow_store_answers_in_the_end() {
    let (clocked, wire) = Clocked::over_a_wire();
    let gate = clocked.limiter.gate("gate", "5/s").unwrap();
    wire.delay(Duration::from_millis(20));
    assert!(gate.check("ann").is_allowed() && gate.reserve("ann").is_allowed());
    wire.delay(Duration::ZERO);
    assert_eq!(gate.peek("ann").remaining(), 3);
}

#[test]
fn what_memory_charged_goes_back_when_the_other_store_refuses_or_is_lost() {
    let (clocked, wire) = Clocked::over_a_wire();
    let remote = clocked.limiter.gate("remote", "1/min").unwrap();
    let memory = Limiter::builder().clock(clocked.clock.clone()).build();
    let local = memory.gate("local", "5/min").unwrap();
    let checks = [Check::new(&remote, "ann"), Check::new(&local, "ann")];
    assert!(memory.check(&checks).is_allowed());
    let refused = memory.check(&checks);
    assert_eq!((refused.is_allowed(), refused.bound_by()), (false, "remote"));
    assert_eq!(local.peek("ann").remaining(), 4, "denied means that nothing was spent");
    wire.lose(Loss::Request);
    assert!(!memory.check(&checks).is_allowed());
    assert_eq!(local.peek("ann").remaining(), 4, "unanswered means that nothing was spent");
}

#[test]
fn memory_that_refuses_spares_the_other_store_the_question() {
    let (clocked, wire) = Clocked::over_a_wire();
    let remote = clocked.limiter.gate("remote", "5/min").unwrap();
    let memory = Limiter::builder().clock(clocked.clock.clone()).build();
    let local = memory.gate("local", "1/min").unwrap();
    assert!(local.check("ann").is_allowed());
    let before = wire.calls();
    let refused = memory.check(&[Check::new(&remote, "ann"), Check::new(&local, "ann")]);
    assert!(!refused.is_allowed() && wire.calls() == before);
    let asked: Vec<bool> = refused.decisions().iter().map(Decision::is_checked).collect();
    assert_eq!(asked, [false, true]);
}

#[test]
fn slots_are_queued_for_over_the_wire_and_beside_memory() {
    let (clocked, _) = Clocked::over_a_wire();
    let remote = clocked.limiter.gate("remote", "1 concurrent queue 5 wait 10s").unwrap();
    let memory = Limiter::builder().clock(clocked.clock.clone()).build();
    let local = memory.gate("local", "1 concurrent queue 5 wait 10s").unwrap();
    let rate = memory.gate("rate", "5/min").unwrap();
    let checks = [Check::new(&remote, "a"), Check::new(&local, "a"), Check::new(&rate, "a")];
    let first = memory.acquire(&checks).blocking().into_permit().unwrap();
    assert_eq!(rate.peek("a").remaining(), 4);
    let mut second = pin!(memory.acquire(&checks));
    let mut context = Context::from_waker(Waker::noop());
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert_eq!(rate.peek("a").remaining(), 4, "nothing is charged to somebody who has no slot");
    drop(first);
    let Poll::Ready(verdict) = second.as_mut().poll(&mut context) else { panic!("both slots are free") };
    let permit = verdict.into_permit().unwrap();
    assert_eq!(rate.peek("a").remaining(), 3);
    assert!(!remote.reserve("a").is_allowed() && !local.reserve("a").is_allowed());
    drop(permit);
    assert!(remote.reserve("a").is_allowed() && local.reserve("a").is_allowed());
}
