//! The steps of a trace, and how they are run on a subject.

use crate::{Mode, Seen, Subject};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use tidegate::Limit;

/// One thing that happens to one key.
#[derive(Clone, Debug)]
pub struct Step {
    /// Names the step, also when others have been left out.
    pub id: usize,
    /// When.
    pub now_us: u64,
    /// At which node.
    pub node: usize,
    /// Whose.
    pub key: Vec<u8>,
    /// What.
    pub act: Act,
}

/// What can happen. Grants are named by the step that made them.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Act {
    Decide { cost: u64, mode: Mode },
    Refund { of: usize, units: u64 },
    Settle { of: usize, cost: u64 },
    Cancel { of: usize },
    Release { of: usize },
    Reset,
    Change(Box<Limit>),
    Restart(Box<Limit>),
}

/// Runs a trace's steps on one subject, and knows which grant a step made.
#[derive(Default)]
pub struct Runner {
    granted: BTreeMap<usize, usize>,
    grants: usize,
    now_us: u64,
    keys: BTreeSet<Vec<u8>>,
}

impl Runner {
    /// One step. Shows the decision, if the step was one, and then the key as it
    /// stands, so that what a step wrote is compared too.
    pub fn step(&mut self, subject: &mut dyn Subject, step: &Step) -> Vec<Seen> {
        let (now, key) = (step.now_us, step.key.as_slice());
        subject.turn_to(step.node);
        let mut results = if now < self.now_us { self.forget_idle(subject) } else { Vec::new() };
        self.now_us = now;
        self.keys.insert(step.key.clone());
        match &step.act {
            Act::Decide { cost, mode } => {
                let seen = subject.decide(now, key, *cost, *mode);
                if seen.allowed && *mode == Mode::Reserve {
                    self.granted.insert(step.id, self.grants);
                    self.grants += 1;
                }
                results.push(seen);
            }
            // A step whose grant does not exist (any more) does nothing.
            Act::Refund { of, units } => {
                self.granted.get(of).iter().for_each(|grant| subject.refund(now, **grant, *units));
            }
            Act::Settle { of, cost } => {
                self.granted.remove(of).iter().for_each(|grant| subject.settle(now, *grant, *cost));
            }
            Act::Cancel { of } => {
                self.granted.remove(of).iter().for_each(|grant| subject.cancel(now, *grant));
            }
            Act::Release { of } => {
                self.granted.remove(of).iter().for_each(|grant| subject.release(now, *grant));
            }
            Act::Reset => subject.reset(now, key),
            Act::Change(limit) => subject.change(now, limit),
            Act::Restart(limit) => subject.restart(now, limit),
        }
        subject.turn_to(step.node);
        if !matches!(step.act, Act::Decide { mode: Mode::Peek, .. } | Act::Change(_) | Act::Restart(_)) {
            results.push(subject.decide(now, key, 1, Mode::Peek));
        }
        results
    }

    /// Before the clock goes back: a key that is as good as new may have been
    /// forgotten or not, and each would be right, so it is forgotten for sure.
    fn forget_idle(&self, subject: &mut dyn Subject) -> Vec<Seen> {
        let mut results = Vec::new();
        for key in &self.keys {
            let seen = subject.decide(self.now_us, key, 1, Mode::Peek);
            if seen.reset_us == 0 {
                subject.reset(self.now_us, key);
            }
            results.push(seen);
        }
        results
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = String::from_utf8_lossy(&self.key[..self.key.len().min(16)]).into_owned();
        write!(f, "#{} at {}us node {} {key:?} ", self.id, self.now_us, self.node)?;
        match &self.act {
            Act::Decide { cost, mode } => write!(f, "{mode:?} {cost}"),
            Act::Refund { of, units } => write!(f, "refund {units} of #{of}"),
            Act::Settle { of, cost } => write!(f, "settle #{of} at {cost}"),
            Act::Cancel { of } => write!(f, "cancel #{of}"),
            Act::Release { of } => write!(f, "release #{of}"),
            Act::Reset => write!(f, "reset"),
            Act::Change(limit) => write!(f, "change to `{limit}`"),
            Act::Restart(limit) => write!(f, "restart under `{limit}`"),
        }
    }
}
