//! The limiter of the process, and two lines that contradict each other.

use crate::ready;
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;
use tidegate::{Limiter, ManualClock, Refusal, limited};

/// The process's limiter, on a manual clock.
fn process() -> &'static Limiter {
    static SET: OnceLock<()> = OnceLock::new();
    SET.get_or_init(|| {
        let limiter = Limiter::builder().clock(ManualClock::new()).max_keys(100).build();
        assert!(Limiter::set_global(limiter).is_ok(), "nobody used it before");
    });
    Limiter::global()
}

#[limited("2/day")]
fn for_all() -> Result<(), Refusal> {
    Ok(())
}

#[limited("2/day", name = "named")]
async fn for_all_named() -> Result<(), Refusal> {
    Ok(())
}

#[limited("1/day", key = id)]
fn keyed(id: u32) -> Result<(), Refusal> {
    Ok(())
}

#[test]
fn without_a_limiter_of_its_own_a_function_uses_the_processs() {
    let limiter = process();
    assert!(for_all().is_ok() && for_all().is_ok());
    assert_eq!(
        for_all().unwrap_err().to_string().split(',').next().unwrap(),
        "denied by `limited::process::for_all`: 2/day"
    );
    assert_eq!(limiter.get("limited::process::for_all").unwrap().peek("").remaining(), 0);

    assert!(ready(for_all_named()).is_ok() && ready(for_all_named()).is_ok());
    let refusal = ready(for_all_named()).unwrap_err();
    assert_eq!((refusal.gate(), refusal.key()), ("named", "limited::process::for_all_named"));

    assert!(keyed(1).is_ok() && keyed(2).is_ok());
    assert_eq!(keyed(1).unwrap_err().key(), "1");
    assert!(Limiter::set_global(Limiter::builder().max_keys(10).build()).is_err(), "it is in use");
}

#[limited("1/day", name = "quarrel", limiter = limiter)]
fn says_one(limiter: &Limiter) -> Result<(), Refusal> {
    Ok(())
}

#[limited("2/day", name = "quarrel", limiter = limiter)]
fn says_two(limiter: &Limiter) -> Result<(), Refusal> {
    Ok(())
}

#[test]
fn two_limits_under_one_name_are_a_panic_at_the_second_and_nobody_gets_through() {
    let limiter = Limiter::builder().max_keys(10).build();
    assert!(says_one(&limiter).is_ok());
    for _ in 0..2 {
        let panic = std::panic::catch_unwind(AssertUnwindSafe(|| says_two(&limiter))).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains("process.rs:"), "{text}");
        assert!(
            text.contains("gate `quarrel` is in force as `1/day`, not as `2/day`; write another `name`"),
            "{text}"
        );
    }
}
