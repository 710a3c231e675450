//! Variants that charge some limits of a request that another one refuses.

use testkit::together::{LimitCheck, MakeTogether, Models, Outcome, Together, conforms};
use testkit::{Mode, Model, Seen};
use tidegate::Limit;

fn limits() -> Vec<Limit> {
    ["7/s burst 3", "20/s burst 9 wait 1s", "5 per 1s fixed-window", "5 per 1s sliding-log"]
        .map(|text| text.parse().unwrap())
        .to_vec()
}

fn is_caught(make: MakeTogether<'_>) -> bool {
    conforms(&limits(), 5, 40, make).is_err()
}

/// Charges one limit after the other, and stops at the first that refuses.
struct OneByOne(Models);

impl Together for OneByOne {
    fn decide(&mut self, now_us: u64, asks: &[LimitCheck], mode: Mode) -> Outcome {
        let mut wait_us = 0;
        for ask in asks {
            let seen = self.0.0[ask.limit].decide(now_us, &ask.key, ask.cost, mode);
            if !seen.allowed {
                return Outcome { allowed: false, wait_us: 0 };
            }
            wait_us = seen.wait_us.max(wait_us);
        }
        Outcome { allowed: true, wait_us }
    }

    fn peek(&mut self, now_us: u64, limit: usize, key: &[u8]) -> Seen {
        self.0.peek(now_us, limit, key)
    }
}

/// Charges rightly, and tells the wait of the last limit.
struct LastWait(Models);

impl Together for LastWait {
    fn decide(&mut self, now_us: u64, asks: &[LimitCheck], mode: Mode) -> Outcome {
        let last = asks
            .last()
            .map(|ask| self.0.0[ask.limit].clone().decide(now_us, &ask.key, ask.cost, mode).wait_us);
        let outcome = self.0.decide(now_us, asks, mode);
        Outcome { wait_us: if outcome.allowed { last.unwrap_or(0) } else { 0 }, ..outcome }
    }

    fn peek(&mut self, now_us: u64, limit: usize, key: &[u8]) -> Seen {
        self.0.peek(now_us, limit, key)
    }
}

fn models(limits: &[Limit]) -> Models {
    Models(limits.iter().map(Model::new).collect())
}

#[test]
fn the_models_themselves_are_not_caught() {
    assert!(!is_caught(&|limits| Box::new(models(limits))));
}

#[test]
fn some_charged_and_some_not_is_caught() {
    assert!(is_caught(&|limits| Box::new(OneByOne(models(limits)))));
}

#[test]
fn a_wait_that_is_not_the_longest_is_caught() {
    assert!(is_caught(&|limits| Box::new(LastWait(models(limits)))));
}
