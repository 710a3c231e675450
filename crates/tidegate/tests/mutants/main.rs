//! Every checker can fail: variants that are broken in one way each, and the suite
//! that catches them. A variant is the model with one decision, or one way of giving
//! back, done wrong; the suite is the one that the stores pass.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod answers;
mod changing;
mod counting;
mod giving_back;
mod together;

use testkit::suite::conforms;
use testkit::trace::Traffic;
use testkit::{Mode, Model, Seen, Subject};
use tidegate::Limit;

/// One question, as a broken variant gets it.
struct Question<'a> {
    now_us: u64,
    key: &'a [u8],
    cost: u64,
    mode: Mode,
}

impl Question<'_> {
    fn ask(&self, model: &mut Model) -> Seen {
        model.decide(self.now_us, self.key, self.cost, self.mode)
    }
}

/// The model, decided through `decide` and changed through `change`.
struct Mutant<D, C> {
    model: Model,
    decide: D,
    change: C,
}

impl<D, C> Subject for Mutant<D, C>
where
    D: FnMut(&mut Model, &Question) -> Seen,
    C: FnMut(&mut Model, &Change),
{
    fn decide(&mut self, now_us: u64, key: &[u8], cost: u64, mode: Mode) -> Seen {
        (self.decide)(&mut self.model, &Question { now_us, key, cost, mode })
    }
    fn refund(&mut self, now_us: u64, grant: usize, units: u64) {
        (self.change)(&mut self.model, &Change::Refund(now_us, grant, units));
    }
    fn settle(&mut self, now_us: u64, grant: usize, cost: u64) {
        (self.change)(&mut self.model, &Change::Settle(now_us, grant, cost));
    }
    fn cancel(&mut self, now_us: u64, grant: usize) {
        (self.change)(&mut self.model, &Change::Settle(now_us, grant, 0));
    }
    fn release(&mut self, now_us: u64, grant: usize) {
        self.model.release(now_us, grant);
    }
    fn reset(&mut self, _now_us: u64, key: &[u8]) {
        (self.change)(&mut self.model, &Change::Reset(key));
    }
    fn change(&mut self, now_us: u64, limit: &Limit) {
        (self.change)(&mut self.model, &Change::Limit(now_us, limit));
    }
    fn turn_to(&mut self, node: usize) {
        self.model.turn_to(node);
    }
    fn restart(&mut self, now_us: u64, limit: &Limit) {
        self.model.restart(now_us, limit);
    }
}

enum Change<'a> {
    Refund(u64, usize, u64),
    Settle(u64, usize, u64),
    Reset(&'a [u8]),
    Limit(u64, &'a Limit),
}

impl Change<'_> {
    fn apply(&self, model: &mut Model) {
        match *self {
            Self::Refund(now_us, grant, units) => model.refund(now_us, grant, units),
            Self::Settle(now_us, grant, cost) => model.settle(now_us, grant, cost),
            Self::Reset(key) => model.reset(key),
            Self::Limit(now_us, limit) => model.change(now_us, limit),
        }
    }
}

const SEED: u64 = 20_240_611;
const TRACES: u64 = 40;

fn is_caught_with<D, C>(text: &str, traffic: &Traffic, decide: D, change: C) -> bool
where
    D: FnMut(&mut Model, &Question) -> Seen + Clone + 'static,
    C: FnMut(&mut Model, &Change) + Clone + 'static,
{
    let limit: Limit = text.parse().unwrap();
    let make = |limit: &Limit| -> Box<dyn Subject> {
        Box::new(Mutant { model: Model::new(limit), decide: decide.clone(), change: change.clone() })
    };
    conforms(&limit, traffic, SEED, TRACES, &make).is_err()
}

/// Broken in how it decides.
fn decides_wrong(text: &str, decide: impl FnMut(&mut Model, &Question) -> Seen + Clone + 'static) -> bool {
    is_caught_with(text, &Traffic::plain(), decide, |model, change| change.apply(model))
}

/// Broken when the clock jumps.
fn jumps_wrong(text: &str, decide: impl FnMut(&mut Model, &Question) -> Seen + Clone + 'static) -> bool {
    let traffic = Traffic { jumps: true, ..Traffic::plain() };
    is_caught_with(text, &traffic, decide, |model, change| change.apply(model))
}

fn changed_to() -> Vec<Limit> {
    vec!["3/s burst 2 wait 1s".parse().unwrap(), "40/s".parse().unwrap()]
}

/// Broken in how it gives back, forgets or changes.
fn changes_wrong(text: &str, change: impl FnMut(&mut Model, &Change) + Clone + 'static) -> bool {
    let traffic = Traffic { gives_back: true, changes: changed_to(), ..Traffic::plain() };
    is_caught_with(text, &traffic, |model, question| question.ask(model), change)
}

const BUCKETS: [&str; 3] = ["7/s burst 3", "7/s burst 3 wait 1s", "999983/s burst 5"];
const EVERY: [&str; 8] = [
    "7/s burst 3",
    "7/s burst 3 wait 1s",
    "leaky 7/s queue 4",
    "5 every 1s cap 8",
    "5 per 1s fixed-window wait 2s",
    "5 per 1s sliding-window slices 4",
    "5 per 1s sliding-log wait 300ms",
    "7/s warmup 3s wait 1s",
];

#[test]
fn the_model_itself_is_not_caught() {
    for text in EVERY {
        assert!(!decides_wrong(text, |model, question| question.ask(model)), "{text}");
        assert!(!jumps_wrong(text, |model, question| question.ask(model)), "{text}");
    }
    assert!(!changes_wrong("7/s burst 3 wait 1s", |model, change| change.apply(model)));
}
