//! Variants that give back too much or too little, or forget by a change of limit.

use crate::{Change, changed_to, changes_wrong, is_caught_with};
use testkit::Model;
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
