//! Several limits on one request: charged all, or none.
//!
//! The suite's second half, for whatever decides on a list of questions at once.

use crate::rng::Rng;
use crate::suite::cases;
use crate::{Mode, Model, Seen};
use std::fmt;
use tidegate::Limit;

/// Several limits, each over its own keys.
pub trait Together {
    /// Decides on all questions as one.
    fn decide(&mut self, now_us: u64, asks: &[LimitCheck], mode: Mode) -> Outcome;
    /// One key under one limit, as it stands.
    fn peek(&mut self, now_us: u64, limit: usize, key: &[u8]) -> Seen;
}

/// One question of several.
#[derive(Clone, Debug)]
pub struct LimitCheck {
    /// Which limit, by its place in the list.
    pub limit: usize,
    /// Whose allowance.
    pub key: Vec<u8>,
    /// Units.
    pub cost: u64,
}

/// The one answer to several questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// All limits allow it.
    pub allowed: bool,
    /// The longest of their waits.
    pub wait_us: u64,
}

/// A list of models: tries all, and writes only if all allow.
pub struct Models(pub Vec<Model>);

impl Together for Models {
    fn decide(&mut self, now_us: u64, asks: &[LimitCheck], mode: Mode) -> Outcome {
        let mut tried = self.0.clone();
        let seen: Vec<Seen> =
            asks.iter().map(|ask| tried[ask.limit].decide(now_us, &ask.key, ask.cost, mode)).collect();
        if seen.iter().all(|one| one.allowed) {
            self.0 = tried;
            Outcome { allowed: true, wait_us: seen.iter().map(|one| one.wait_us).max().unwrap_or(0) }
        } else {
            Outcome { allowed: false, wait_us: 0 }
        }
    }

    fn peek(&mut self, now_us: u64, limit: usize, key: &[u8]) -> Seen {
        self.0[limit].decide(now_us, key, 1, Mode::Peek)
    }
}

/// Makes a fresh subject under a list of limits.
pub type MakeTogether<'a> = &'a dyn Fn(&[Limit]) -> Box<dyn Together>;

/// Where several limits differ from the models.
#[derive(Clone, Debug)]
pub struct Split(String);

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Replays `traces` random traces over two to four of `limits`.
///
/// # Errors
/// With what was asked up to the first difference.
pub fn conforms(limits: &[Limit], seed: u64, traces: u64, make: MakeTogether<'_>) -> Result<(), Split> {
    for nth in 0..traces * cases() {
        one_trace(limits, seed.wrapping_add(nth), make)?;
    }
    Ok(())
}

fn one_trace(from: &[Limit], seed: u64, make: MakeTogether<'_>) -> Result<(), Split> {
    let mut rng = Rng::new(seed);
    let limits: Vec<Limit> = (0..rng.between(2, 4)).map(|_| rng.pick(from).clone()).collect();
    let mut models = Models(limits.iter().map(Model::new).collect());
    let mut subject = make(&limits);
    let texts: Vec<String> = limits.iter().map(ToString::to_string).collect();
    let mut story = format!("limits {texts:?}, seed {seed}\n");
    let mut now_us = 0;
    for _ in 0..60 {
        now_us += *rng.pick(&[0, 0, 1, 1_000, 100_000, 999_999, 1_000_000, 3_000_000]);
        let asks = questions(&mut rng, limits.len());
        let mode = *rng.pick(&[Mode::Check, Mode::Reserve]);
        let expected = models.decide(now_us, &asks, mode);
        let actual = subject.decide(now_us, &asks, mode);
        story += &format!("  at {now_us}us {mode:?} {asks:?}: model {expected:?}, subject {actual:?}\n");
        if expected != actual {
            return Err(Split(story));
        }
        for ask in &asks {
            let expected = models.peek(now_us, ask.limit, &ask.key);
            let actual = subject.peek(now_us, ask.limit, &ask.key);
            if expected != actual {
                story += &format!("    then {ask:?} shows {actual:?}, the model {expected:?}");
                return Err(Split(story));
            }
        }
    }
    Ok(())
}

/// Some of the limits, each at most once, in any order.
fn questions(rng: &mut Rng, limits: usize) -> Vec<LimitCheck> {
    let mut asks = Vec::new();
    let first = rng.below(limits as u64);
    for at in (0..limits).map(|nth| (nth + usize::try_from(first).unwrap_or(0)) % limits) {
        if rng.percent(75) {
            let key = if rng.percent(70) { b"ada".to_vec() } else { b"bob".to_vec() };
            let cost = *rng.pick(&[1, 1, 1, 2, 3, 7, 0]);
            asks.push(LimitCheck { limit: at, key, cost });
        }
    }
    asks
}
