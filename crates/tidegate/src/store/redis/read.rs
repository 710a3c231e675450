//! How the script's answer is read, and everyone answered.

use super::charge::Charge;
use super::core::Core;
use super::job::{Change, Fault, Group, How, Job, Key, Told, What};
use super::plan::{Found, Mark};
use super::promise::Promise;
use super::shard::Shard;
use super::stats::count;
use super::write::runs;
use crate::clock::Timestamp;
use crate::decision::{Decision, Outcome, Refused};
use redis::Value;
use smallvec::SmallVec;
use std::sync::PoisonError;

/// A call that has been answered.
pub(crate) struct Reply<'a> {
    pub(crate) core: &'a Core,
    pub(crate) shard: &'a Shard,
    /// When it was sent, on the local clock.
    pub(crate) sent: Timestamp,
    /// When the server did it at the earliest, as far as that can be reckoned (see
    /// [`Lead`](super::lead::Lead)). What is remembered counts from here: since then at most
    /// that much time has passed on the server, so nobody is denied whom it would let in.
    pub(crate) done: Timestamp,
}

/// What someone is to be told, and since when they wait.
type Answer = (Promise<Result<Told, Fault>>, Timestamp, Told);

impl Reply<'_> {
    /// Reads the answer to `jobs` and answers everyone. Tells what went wrong with single
    /// jobs.
    pub(crate) fn read(&self, jobs: Vec<Job>, answer: &[Value]) -> Vec<String> {
        let fault = self.shard.fault(self.core);
        let mut reader = Reader { values: answer.iter() };
        let Some(now_us) = reader.next().and_then(|now| u64::try_from(now).ok()) else {
            jobs.into_iter().for_each(|job| job.fail(fault));
            return vec!["an answer without a time".to_string()];
        };
        let (mut errors, mut answers) = (Vec::new(), Vec::with_capacity(jobs.len()));
        for job in jobs {
            let read = match &job {
                Job::Decide(group) if group.is_unit() => group.read_unit(now_us, &mut reader),
                Job::Decide(group) => reader.status().map(|()| group.read(now_us, &mut reader)),
                Job::Change(_) => reader.status().map(|()| None),
            };
            match (job, read) {
                (Job::Decide(group), Ok(Some((founds, takens)))) => {
                    group.answer(now_us, self, founds, &takens, &mut answers);
                }
                (Job::Change(change), Ok(_)) => change.answer(self.sent, &mut reader),
                (job, Ok(None)) => job.fail(fault),
                (job, Err(error)) => {
                    errors.push(error);
                    job.fail(fault);
                }
            }
        }
        // In one go: those who are woken find each other's answers there, too.
        self.keep(answers);
        errors
    }

    /// The script and the replay here say different things: a defect of ours, or a script
    /// that somebody has changed. Nobody is let through by it.
    fn disagrees(&self, keys: &[Key], was_taken: bool) {
        count(&self.core.counters.disagreements, 1);
        if self.core.may_warn() {
            let gates: Vec<&str> = keys.iter().map(|key| &*key.meter.name).collect();
            tracing::error!(
                server = self.shard.address(),
                gates = gates.join(", "),
                was_taken,
                "the script's decision differs from the one computed here: the call is denied"
            );
        }
    }

    fn keep(&self, answers: Vec<Answer>) {
        let now = self.core.now();
        for (promise, since, told) in answers {
            let took_us = now.since(since).as_micros();
            self.core.counters.answered(u64::try_from(took_us).unwrap_or(u64::MAX));
            if let Some(Ok(told)) = promise.keep(Ok(told))
                && promise.is_forsaken()
            {
                // Nobody waits for it any more: what it was granted goes back. Who was
                // told that there is no answer has decided otherwise: that is spent.
                told.charges.into_iter().for_each(Charge::cancel);
            }
        }
    }
}

struct Reader<'a> {
    values: std::slice::Iter<'a, Value>,
}

impl Iterator for Reader<'_> {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        match self.values.next()? {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }
}

impl Reader<'_> {
    /// Zero, or what went wrong.
    fn status(&mut self) -> Result<(), String> {
        match self.told()? {
            0 => Ok(()),
            other => Err(format!("an answer that makes no sense: {other}")),
        }
    }

    /// A number, or what went wrong.
    fn told(&mut self) -> Result<i64, String> {
        match self.values.next() {
            Some(Value::Int(number)) => Ok(*number),
            Some(Value::BulkString(text)) => Err(String::from_utf8_lossy(text).into_owned()),
            Some(Value::SimpleString(text)) => Err(text.clone()),
            other => Err(format!("an answer that makes no sense: {other:?}")),
        }
    }
}

/// What the script found of each key, and whether it took each request.
type FoundAndTaken = (SmallVec<[Found; 1]>, SmallVec<[bool; 8]>);

impl Group {
    /// One number for both: the level, or -1 - level if nothing was taken.
    fn read_unit(&self, now_us: u64, reader: &mut Reader<'_>) -> Result<Option<FoundAndTaken>, String> {
        let told = reader.told()?;
        let (level, is_taken) = if told < 0 { (-1 - told, false) } else { (told, true) };
        let found = self.keys[0].version.plan.read(now_us, &mut std::iter::once(level));
        Ok(found.map(|found| (SmallVec::from_elem(found, 1), SmallVec::from_elem(is_taken, 1))))
    }

    fn read(&self, now_us: u64, reader: &mut Reader<'_>) -> Option<FoundAndTaken> {
        let mut founds: SmallVec<[Found; 1]> = SmallVec::new();
        for key in &self.keys {
            founds.push(key.version.plan.read(now_us, reader)?);
        }
        let mut takens = SmallVec::new();
        if self.is_plain() {
            for run in runs(&self.requests) {
                let taken = u64::try_from(reader.next()?).ok()?;
                takens.extend((0..run.count).map(|nth| nth < taken));
            }
        } else {
            for _ in &self.requests {
                takens.push(reader.next()? == 1);
            }
        }
        Some((founds, takens))
    }

    /// The answer to every request, replaying them on what the script found.
    fn answer(
        self,
        now_us: u64,
        reply: &Reply<'_>,
        mut founds: SmallVec<[Found; 1]>,
        takens: &[bool],
        answers: &mut Vec<Answer>,
    ) {
        let Self { keys, requests } = self;
        let mut denied: SmallVec<[bool; 1]> = SmallVec::from_elem(false, keys.len());
        let mut is_looked_at = false;
        for (request, was_taken) in requests.into_iter().zip(takens) {
            let mut decisions: SmallVec<[Decision; 1]> = SmallVec::new();
            let mut steps: SmallVec<[_; 1]> = SmallVec::new();
            let mut is_allowed = true;
            for (at, key) in keys.iter().enumerate() {
                let capacity = key.version.limit.capacity();
                let (cost, mode) = (request.costs[at], request.how.mode(&key.version));
                let plan = &key.version.plan;
                let mut answer = plan.answer(now_us, &mut founds[at], cost, mode, capacity);
                if !request.how.takes() {
                    // Nothing was taken, and that is what it shows.
                    answer.gauge = plan.answer(now_us, &mut founds[at], 0, mode, capacity).gauge;
                }
                if let Outcome::Deny(Refused::Later { .. }) = answer.outcome {
                    denied[at] |= request.how != How::Peek;
                }
                is_allowed &= answer.is_allowed();
                decisions.push(answer.decision(capacity));
                steps.push(answer.step);
            }
            let mut charges = SmallVec::new();
            is_looked_at |= matches!(request.how, How::Look(_));
            if request.how.takes() {
                if is_allowed != *was_taken {
                    reply.disagrees(&keys, *was_taken);
                    is_allowed = false;
                    for decision in &mut decisions {
                        decision.outcome = Outcome::Deny(Refused::Busy);
                    }
                }
                if is_allowed {
                    for (at, key) in keys.iter().enumerate() {
                        let mark = key.version.plan.apply(&mut founds[at], steps[at]);
                        if request.wants_charges {
                            let place = key.version.is_place().then(|| request.number(place_at(&keys, at)));
                            let start_us = now_us.saturating_add(decisions[at].wait_us());
                            let cost = request.costs[at];
                            charges.push(Charge::new(key, cost, start_us, mark, place, reply.sent));
                        }
                    }
                }
            }
            let told = Told { decisions, now_us, charges };
            answers.push((request.promise, request.since, told));
        }
        // Before anyone hears of it: whoever gives something back upon a denial must find
        // it forgotten, not remembered afterwards.
        // What was found beside a denial is told beside it when that is remembered.
        is_looked_at |= denied.contains(&true);
        for (at, key) in keys.iter().enumerate() {
            key.meter.learn(key, &founds[at], denied[at] || is_looked_at, reply.done);
            key.meter.answered(reply.shard);
        }
    }
}

/// The how manieth place of a request a key is.
fn place_at(keys: &[Key], at: usize) -> usize {
    keys[..at].iter().filter(|key| key.version.is_place()).count()
}

impl Change {
    fn answer(self, sent: Timestamp, reader: &mut Reader<'_>) {
        // Whatever was learned of the key while this was on its way may be outdated.
        if let Some(key) = &self.key {
            key.meter.forget(key.hash);
        }
        let mut told: SmallVec<[i64; 2]> = SmallVec::new();
        let expected = match &self.what {
            What::GiveBack { given, .. } => 3 + given.len(),
            What::Beat { .. } => 2,
            What::Release { .. } | What::Queue { .. } => 1,
            What::Renew { holders } => holders.len(),
            What::Owe { .. } | What::Reset | What::Leave { .. } => 0,
        };
        told.extend(reader.by_ref().take(expected));
        match (self.what, told.as_slice()) {
            (What::GiveBack { given, has_own }, [m1, m2, span, is_given @ ..]) => {
                if let (Some(own), Ok(m1), Ok(m2), Ok(span)) = (
                    given.first().filter(|_| has_own),
                    u64::try_from(*m1),
                    u64::try_from(*m2),
                    u64::try_from(*span),
                ) {
                    let mut mark = own.mark.lock().unwrap_or_else(PoisonError::into_inner);
                    *mark = Mark { end: (m1, m2), span, ..*mark };
                }
                let is_given: SmallVec<[bool; 4]> = is_given.iter().map(|is_given| *is_given == 1).collect();
                if let Some(key) = &self.key {
                    key.gave_back(given, &is_given);
                }
            }
            (What::Renew { holders }, held) => {
                for ((holder, member), held) in holders.iter().zip(held) {
                    holder.renewed(member, *held, sent);
                }
            }
            _ => {}
        }
        if let Some(promise) = self.promise {
            promise.keep(Ok(told));
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/support/logged.rs"]
mod logged;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]
mod tests {
    use super::super::config::{GateOptions, Redis};
    use super::super::core::RedisStore;
    use super::super::gate::RedisGate;
    use super::super::job::Request;
    use super::super::promise::promise;
    use super::*;
    use crate::algorithm::Mode;
    use crate::clock::{ManualClock, StoreClock};
    use std::sync::Arc;

    /// A reply that says that a unit was taken of a bucket that it says is full.
    fn disagree(store: &Arc<RedisStore>, meter: &Arc<RedisGate>) -> Option<Result<Told, Fault>> {
        let core = &store.core;
        let (promise, awaited) = promise();
        let request = Request {
            how: How::Take(Mode::Check),
            costs: SmallVec::from_elem(1, 1),
            wants_charges: false,
            places_from: 0,
            since: core.now(),
            promise,
        };
        let group = Group { keys: SmallVec::from_elem(meter.key(b"a", 7), 1), requests: vec![request] };
        let shard = core.shard_of(|| 0).unwrap();
        let reply = Reply { core, shard: &shard, sent: core.clock.now(), done: core.clock.now() };
        let full = i64::try_from(meter.version().numbers.plan[3]).unwrap();
        reply.read(vec![Job::Decide(group)], &[Value::Int(1_000), Value::Int(full)]);
        awaited.leave()
    }

    #[test]
    fn a_script_that_disagrees_is_logged_and_lets_nobody_in() {
        let clock = StoreClock::Other(Arc::new(ManualClock::new()));
        let store = Arc::new(RedisStore::new(Redis::at("redis://127.0.0.1:1").unwrap(), Some(clock)));
        let limit = "1/s burst 1".parse().unwrap();
        let meter = Arc::new(RedisGate::new(1, "odd", limit, store.clone(), &GateOptions::default()));
        let lines = logged::logged("tidegate::store::redis::read", tracing::Level::ERROR, || {
            for _ in 0..10 {
                let told = disagree(&store, &meter).unwrap().unwrap();
                assert!(!told.decisions[0].is_allowed());
            }
        });
        assert_eq!(store.core.stats().disagreements, 10);
        assert_eq!(lines.len(), 1, "once a second: {lines:?}");
        assert!(lines[0].contains("odd") && lines[0].contains("differs"), "{lines:?}");
    }
}
