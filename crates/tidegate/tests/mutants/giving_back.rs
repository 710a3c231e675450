//! Variants that give back too much or too little, or forget by a change of limit.

use crate::{Change, Mutant, Question, changed_to, changes_wrong, is_caught_with};
use testkit::Model;
use testkit::giving_back::{LIMITS as EVERY_KIND, lost_by_a_crowd, overrun};
use testkit::model::State;
use testkit::trace::Traffic;

const LIMITS: [&str; 4] =
    ["7/s burst 9 wait 3s", "leaky 7/s queue 9", "5 every 1s cap 8 wait 2s", "5 per 1s sliding-log wait 1s"];

#[test]
fn a_refund_that_does_not_look_at_the_time_is_caught() {
    // Everything is given back, also what has long flowed out.
    assert!(changes_wrong("7/s burst 9 wait 3s", |model, change| match change {
        Change::Refund(now_us, grant, units) => {
            let mut earlier = model.clone();
            earlier.refund(now_us.saturating_sub(400_000), *grant, *units);
            *model = earlier;
        }
        other => other.apply(model),
    }));
}

#[test]
fn units_that_are_not_given_back_are_caught() {
    for text in LIMITS {
        assert!(changes_wrong(text, |model, change| match change {
            Change::Refund(now_us, grant, _) => model.refund(*now_us, *grant, 0),
            other => other.apply(model),
        }));
    }
}

#[test]
fn a_debt_that_is_forgiven_is_caught() {
    for text in LIMITS {
        assert!(changes_wrong(text, |model, change| match change {
            Change::Settle(now_us, grant, cost) =>
                model.settle(*now_us, *grant, (*cost).min(model.granted(*grant).unwrap_or(0))),
            other => other.apply(model),
        }));
    }
}

#[test]
fn a_grant_that_can_be_ended_twice_is_caught() {
    assert!(changes_wrong("7/s burst 9 wait 3s", |model, change| {
        change.apply(model);
        if let Change::Refund(now_us, grant, units) = change {
            model.refund(*now_us, *grant, *units);
        }
    }));
}

#[test]
fn a_reset_that_forgets_nothing_is_caught() {
    for text in LIMITS {
        assert!(changes_wrong(text, |model, change| match change {
            Change::Reset(_) => {}
            other => other.apply(model),
        }));
    }
}

#[test]
fn a_fresh_burst_after_a_change_is_caught() {
    for text in LIMITS {
        // Grants would lose their model: nothing is given back here.
        let traffic = Traffic { changes: changed_to(), ..Traffic::plain() };
        let fresh = |model: &mut Model, change: &Change<'_>| match change {
            Change::Limit(_, limit) => *model = Model::new(limit),
            other => other.apply(model),
        };
        assert!(is_caught_with(text, &traffic, |model, question| question.ask(model), fresh));
    }
}

#[test]
fn a_change_that_is_not_heard_is_caught() {
    for text in LIMITS {
        assert!(changes_wrong(text, |model, change| match change {
            Change::Limit(..) => {}
            other => other.apply(model),
        }));
    }
}

/// True if callers get more started than the limit's worst case, by one of many traces.
fn overruns(text: &str, change: impl FnMut(&mut Model, &Change) + Clone + 'static) -> bool {
    let limit = text.parse().unwrap();
    (0..200).any(|seed| {
        let decide = |model: &mut Model, question: &Question| question.ask(model);
        let mut mutant = Mutant { model: Model::new(&limit), decide, change: change.clone() };
        overrun(&limit, &mut mutant, seed, 60).is_some()
    })
}

#[test]
fn the_model_itself_keeps_the_worst_case() {
    for text in EVERY_KIND {
        assert!(!overruns(text, |model, change| change.apply(model)), "{text}");
    }
}

/// What is given back: of which grant, and how many units.
fn given(model: &Model, change: &Change) -> Option<(usize, u64)> {
    let (grant, units) = match *change {
        Change::Refund(_, grant, units) => (grant, units.min(model.granted(grant)?)),
        Change::Settle(_, grant, cost) => (grant, model.granted(grant)?.saturating_sub(cost)),
        Change::Reset(_) | Change::Limit(..) => return None,
    };
    Some((grant, units))
}

#[test]
fn units_that_come_back_from_below_those_who_wait_exceed_the_worst_case() {
    // Whoever waits, what was given back is taken off the end.
    for text in [
        "10/s burst 10 wait 3s",
        "leaky 10/s queue 5",
        "5 every 1s cap 10 wait 3s",
        "5 per 10s fixed-window wait 10s",
        "10/s warmup 2s wait 3s",
    ] {
        assert!(
            overruns(text, |model, change| {
                let back = given(model, change);
                let earlier = model.account(b"k").cloned();
                change.apply(model);
                let Some((_, units)) = back else { return };
                let units = i128::from(units);
                match (model.account(b"k"), earlier) {
                    (Some(State::Bucket(now)), Some(State::Bucket(then))) => {
                        now.empty_at = now.empty_at.min(then.empty_at - units * then.unit);
                    }
                    (Some(State::Ticks(now)), Some(State::Ticks(then))) => {
                        now.taken = now.taken.min(then.taken - units);
                    }
                    (Some(State::WarmUp(now)), Some(State::WarmUp(then))) => {
                        if let (Some(now), Some(then)) = (&mut now.last, then.last) {
                            now.0 = now.0.min(then.0 - units * 100_000);
                        }
                    }
                    _ => {}
                }
            }),
            "{text}"
        );
    }
}

#[test]
fn units_that_a_window_or_log_gives_back_twice_exceed_the_worst_case() {
    for text in ["5 per 1s sliding-window slices 4 wait 2s", "5 per 1s sliding-log wait 2s"] {
        assert!(
            overruns(text, |model, change| {
                change.apply(model);
                if let (Change::Settle(..), Some(State::Slices(slices))) = (change, model.account(b"k")) {
                    slices.starts.pop_last();
                }
            }),
            "{text}"
        );
    }
}

#[test]
fn a_crowd_that_hangs_up_and_loses_its_starts_is_caught() {
    for text in ["7/s burst 1 wait 3s", "leaky 7/s queue 9", "1 every 1s wait 9s", "7/s warmup 3s wait 3s"] {
        let limit = text.parse().unwrap();
        assert_eq!(lost_by_a_crowd(&mut Model::new(&limit)), None, "{text}");
        let decide = |model: &mut Model, question: &Question| question.ask(model);
        let forgets = |model: &mut Model, change: &Change<'_>| {
            change.apply(model);
            for nth in 0..256usize {
                match model.account(&nth.to_be_bytes()) {
                    Some(State::Bucket(bucket)) => bucket.cancelled.clear(),
                    Some(State::Ticks(ticks)) => ticks.cancelled.clear(),
                    Some(State::WarmUp(warm)) => warm.cancelled.clear(),
                    Some(State::Slices(_) | State::Slots(_)) | None => {}
                }
            }
        };
        let mut mutant = Mutant { model: Model::new(&limit), decide, change: forgets };
        assert!(lost_by_a_crowd(&mut mutant).is_some(), "{text}");
    }
}
