//! What strangers send: absurd keys and costs, floods of keys, crowds of waiters.
//!
//! `TIDEGATE_CASES` multiplies the crowds: 10 makes the flood a hundred million keys.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate::{Acquire, Denial, GateOptions, Limiter, ManualClock, Overflow, Timestamp};

fn cases() -> u64 {
    std::env::var("TIDEGATE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Resident memory of this process, where the system tells.
fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/statm").ok()?;
    status.split_whitespace().nth(1)?.parse::<usize>().ok().map(|pages| pages * 4096)
}

#[test]
fn a_flood_of_strangers_neither_frees_a_limited_key_nor_grows_memory() {
    let limiter = Limiter::builder().max_keys(100_000).build();
    let gate = limiter.gate("gate", "1/h").unwrap();
    assert!(gate.check("known").is_allowed());
    let flood = 10_000_000 * cases();
    let mut early = None;
    for stranger in 0..flood {
        let _ = gate.check(&stranger.to_le_bytes());
        if stranger == flood / 10 {
            early = resident_bytes();
            assert!(!gate.check("known").is_allowed());
        }
    }
    assert!(!gate.check("known").is_allowed(), "a limited key stays limited");
    let (held, most) = limiter.long_keys();
    assert!(held <= most, "{held} of {most}");
    if let (Some(early), Some(late)) = (early, resident_bytes()) {
        assert!(late < early + (8 << 20), "grew from {early} to {late} bytes");
    }
    assert!(!gate.check("one more stranger").is_allowed(), "strangers share an allowance, and it is used");
}

#[test]
fn a_gate_can_refuse_strangers_beyond_its_cap_and_spares_the_others() {
    let limiter = Limiter::builder().max_keys(1_000).build();
    let options = GateOptions::new().max_keys(1_000).overflow(Overflow::Refuse);
    let public = limiter.gate_with("public", "1/h", options).unwrap();
    let inner = limiter.gate("inner", "1/h").unwrap();
    let denied =
        (0..20_000u32).filter(|i| public.check(&i.to_le_bytes()).denial() == Some(Denial::Full)).count();
    assert!(denied > 10_000, "{denied}");
    let refused =
        (0..20_000u32).find(|i| public.check(&i.to_le_bytes()).denial() == Some(Denial::Full)).unwrap();
    assert_eq!(public.peek(&refused.to_le_bytes()).denial(), Some(Denial::Full), "a look says the same");
    assert!(public.check(&0u32.to_le_bytes()).retry_after().is_some(), "known ones are limited as ever");
    assert!(
        (0..1_000u32).all(|i| inner.check(&i.to_le_bytes()).is_allowed()),
        "below the cap nobody overflows"
    );
}

#[test]
fn below_the_cap_nobody_meets_the_overflow_policy() {
    for keys in [1usize, 7, 100, 10_000, 300_000] {
        for limit in ["1/h", "1 per 1h sliding-log"] {
            let limiter = Limiter::builder().max_keys(keys).build();
            let options = GateOptions::new().overflow(Overflow::Refuse);
            let gate = limiter.gate_with("gate", limit, options).unwrap();
            let allowed = (0..keys as u64).filter(|i| gate.check(&i.to_le_bytes()).is_allowed()).count();
            assert_eq!(allowed, keys, "{limit}");
        }
    }
}

#[test]
fn strangers_beyond_the_cap_share_places_and_the_queue_for_them() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock).max_keys(1).build();
    let gate = limiter.gate("gate", "1 concurrent queue 5 wait 10s").unwrap();
    let (_, most) = limiter.long_keys();
    let mut held: Vec<_> = (0..most as u64)
        .map(|i| gate.reserve(&i.to_le_bytes()).into_permit().expect("a place each"))
        .collect();
    held.push(gate.reserve("first stranger").into_permit().expect("the strangers' place"));
    let mut waiting = gate.acquire("second stranger");
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut waiting).poll(&mut context).is_pending(), "it is taken");
    held.pop();
    assert!(Pin::new(&mut waiting).poll(&mut context).is_ready());
    assert!(limiter.long_keys().0 <= most + 1, "one more, for all strangers");
}

#[test]
fn any_bytes_are_a_key_and_any_number_a_cost() {
    let limiter = Limiter::new();
    let gate = limiter.gate("gate", "2/h wait 1h").unwrap();
    let huge = vec![b'x'; 10_000_000];
    for key in [&b""[..], b"\0", b"\0\0", b"\xff\xfe", "ключ".as_bytes(), &huge] {
        assert!(
            gate.check(key).is_allowed() && gate.check(key).is_allowed() && !gate.check(key).is_allowed()
        );
        assert_eq!(gate.check_cost(key, u64::MAX).denial(), Some(Denial::Never));
        assert_eq!(gate.reserve_cost(key, u64::MAX).decision().denial(), Some(Denial::Never));
        assert!(gate.check_cost(key, 0).is_allowed(), "nothing is always free");
        gate.reset(key);
        assert_eq!(gate.peek(key).remaining(), 2);
    }
    for name in ["", "a b", "a\0", &"x".repeat(65), "ключ"] {
        let error = limiter.gate(name, "1/s").unwrap_err().to_string();
        assert!(error.contains("write 1 to 64 letters"), "{error}");
    }
}

#[test]
fn a_crowd_waits_on_one_key_without_threads_and_is_let_in_at_the_rate() {
    let crowd = 200_000 * cases() as usize;
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).max_keys(10).build();
    let gate = limiter.gate("gate", "1000000/s burst 1 wait 1h").unwrap();
    let mut waiting: Vec<_> = (0..crowd).map(|_| gate.acquire("goods")).collect();
    let pending = |waiting: &mut [Acquire]| {
        let mut context = Context::from_waker(Waker::noop());
        waiting.iter_mut().map(|w| Pin::new(w).poll(&mut context)).filter(Poll::is_pending).count()
    };
    assert_eq!((pending(&mut waiting), clock.waiting()), (crowd - 1, crowd - 1));
    drop(waiting.remove(0));
    clock.advance(Duration::from_micros(crowd as u64 / 2));
    assert_eq!(clock.waiting(), crowd - 1 - crowd / 2);
    let mut late = waiting.split_off(crowd / 2);
    assert_eq!((pending(&mut waiting), pending(&mut late)), (0, crowd - 1 - crowd / 2));
    drop(late);
    drop(waiting);
    assert_eq!(clock.waiting(), 0);
}

#[test]
fn a_clock_at_its_end_stands_still_and_breaks_nothing() {
    for limit in
        ["10/s", "999983/s", "5 per 1s fixed-window", "5 per 1s sliding-log wait 1s", "5/s warmup 1s"]
    {
        let clock = ManualClock::new();
        let limiter = Limiter::builder().clock(clock.clone()).max_keys(10).build();
        clock.set(Timestamp::from_micros(u64::MAX));
        let gate = limiter.gate("gate", limit).unwrap();
        let allowed = (0..100).filter(|_| gate.check("k").is_allowed()).count();
        assert_eq!(allowed, 0, "{limit}");
        clock.advance(Duration::MAX);
        let _ = (gate.check("k"), gate.reserve("k"), gate.peek("k"));
        clock.set(Timestamp::from_micros(0));
        let _ = (gate.check("k"), gate.reserve("k"), gate.peek("k"));
    }
}

#[test]
fn names_and_limits_are_told_apart() {
    let limiter = Limiter::new();
    let gate = limiter.gate("gate", "5/s").unwrap();
    assert!(limiter.gate("gate", "5/s").is_ok(), "the same gate again");
    let error = limiter.gate("gate", "6/s").unwrap_err().to_string();
    assert_eq!(error, "gate `gate` is in force as `5/s`: call `change` on it to make it `6/s`");
    gate.change("6/s").unwrap();
    assert!(limiter.gate("gate", "6/s").is_ok());
    assert!(limiter.gate("gate", "5/s").is_ok(), "code that ships the old limit still finds it");
    assert_eq!(limiter.get("gate").map(|gate| gate.limit().to_string()), Some("6/s".into()));
    assert!(limiter.remove("gate") && !limiter.remove("gate"));
}
