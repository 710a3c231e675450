//! Variants that count right and answer wrong, and those that a jumping clock fools.

use crate::{BUCKETS, EVERY, decides_wrong, jumps_wrong};
use std::collections::BTreeMap;
use testkit::model::State;
use testkit::{Denied, Mode, Seen};

#[test]
fn two_calls_in_the_same_microsecond_that_count_as_one_are_caught() {
    for text in EVERY {
        let mut last: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let merged = move |model: &mut testkit::Model, question: &crate::Question<'_>| {
            if last.get(question.key) == Some(&question.now_us) {
                return model.clone().decide(question.now_us, question.key, question.cost, question.mode);
            }
            let seen = question.ask(model);
            if seen.allowed && question.mode != Mode::Peek && question.cost > 0 {
                last.insert(question.key.to_vec(), question.now_us);
            }
            seen
        };
        assert!(decides_wrong(text, merged), "{text}");
    }
}

/// The time, one microsecond short where the exact one is not whole.
fn cut(us: u64, ticks: i128, drain: i128) -> u64 {
    us - u64::from(us > 0 && ticks.rem_euclid(drain) != 0)
}

#[test]
fn a_wait_rounded_down_is_caught() {
    assert!(decides_wrong("7/s burst 3 wait 1s", |model, question| {
        let mut seen = question.ask(model);
        if let Some(State::Bucket(bucket)) = model.account(question.key) {
            let above = bucket.level(i128::from(question.now_us)) - bucket.burst * bucket.unit;
            seen.wait_us = cut(seen.wait_us, above, bucket.drain);
        }
        seen
    }));
}

#[test]
fn a_retry_after_and_a_reset_rounded_down_are_caught() {
    for text in BUCKETS {
        assert!(decides_wrong(text, |model, question| {
            let mut seen = question.ask(model);
            if let (Some(State::Bucket(bucket)), Some(Denied::Later(us))) =
                (model.account(question.key), seen.denial)
            {
                let over =
                    bucket.level(i128::from(question.now_us)) + i128::from(question.cost) * bucket.unit;
                seen.denial = Some(Denied::Later(cut(us, over - bucket.burst * bucket.unit, bucket.drain)));
            }
            seen
        }));
        assert!(decides_wrong(text, |model, question| {
            let mut seen = question.ask(model);
            if let Some(State::Bucket(bucket)) = model.account(question.key) {
                seen.reset_us = cut(seen.reset_us, bucket.level(i128::from(question.now_us)), bucket.drain);
            }
            seen
        }));
    }
}

#[test]
fn a_call_that_never_fits_and_is_told_to_come_back_is_caught() {
    for text in EVERY {
        assert!(decides_wrong(text, |model, question| {
            let seen = question.ask(model);
            let told = seen.denial.map(|why| if why == Denied::Never { Denied::Later(1) } else { why });
            Seen { denial: told, ..seen }
        }));
    }
}

#[test]
fn a_peek_that_writes_is_caught() {
    for text in EVERY {
        assert!(decides_wrong(text, |model, question| {
            let mode = if question.mode == Mode::Peek { Mode::Check } else { question.mode };
            model.decide(question.now_us, question.key, question.cost, mode)
        }));
    }
}

#[test]
fn a_check_that_reserves_is_caught() {
    assert!(decides_wrong("7/s burst 3 wait 1s", |model, question| {
        let mode = if question.mode == Mode::Check { Mode::Reserve } else { question.mode };
        model.decide(question.now_us, question.key, question.cost, mode)
    }));
}

#[test]
fn keys_that_share_one_allowance_are_caught() {
    for text in EVERY {
        assert!(decides_wrong(text, |model, question| {
            model.decide(question.now_us, b"everybody", question.cost, question.mode)
        }));
    }
}

#[test]
fn a_clock_that_drains_while_it_runs_backwards_is_caught() {
    for text in EVERY {
        let (mut last, mut passed) = (0, 0);
        let drains = move |model: &mut testkit::Model, question: &crate::Question<'_>| {
            passed += question.now_us.abs_diff(last);
            last = question.now_us;
            model.decide(passed, question.key, question.cost, question.mode)
        };
        assert!(jumps_wrong(text, drains), "{text}");
    }
}

#[test]
fn a_key_that_a_backward_jump_makes_new_is_caught() {
    for text in EVERY {
        let mut last: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let forgets = move |model: &mut testkit::Model, question: &crate::Question<'_>| {
            if last.insert(question.key.to_vec(), question.now_us).is_some_and(|at| at > question.now_us) {
                model.reset(question.key);
            }
            question.ask(model)
        };
        assert!(jumps_wrong(text, forgets), "{text}");
    }
}

#[test]
fn a_key_locked_out_until_the_clock_has_caught_up_is_caught() {
    // The state stays where the jump left it, and is not cut to a full drain.
    assert!(jumps_wrong("7/s burst 3", |model, question| {
        let before = match model.account(question.key) {
            Some(State::Bucket(bucket)) => bucket.empty_at,
            _ => 0,
        };
        let seen = question.ask(model);
        if let (false, Some(State::Bucket(bucket))) = (seen.allowed, model.account(question.key)) {
            bucket.empty_at = before;
        }
        seen
    }));
}
