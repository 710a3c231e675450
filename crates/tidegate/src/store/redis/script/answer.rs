//! What everyone hears of a call: the script's reply is read, the requests are replayed on the state
//! that it found, and whoever waits is answered.

use super::encode::runs;
use super::replay::{ChargeMark, FoundState};
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionOutcome, DenialReason};
use crate::store::redis::gate::charge::GateCharge;
use crate::store::redis::request::{
    GateKey, KeyUpdate, Operation, Request, RequestGroup, RequestMode, ScriptAnswer, UpdateKind,
};
use crate::store::redis::server::RedisServer;
use crate::store::redis::stats::count;
use crate::store::redis::store::RedisClient;
use redis::Value;
use smallvec::SmallVec;
use std::sync::PoisonError;

/// A call that has been answered.
pub(crate) struct Reply<'a> {
    pub(crate) client: &'a RedisClient,
    pub(crate) server: &'a RedisServer,
    /// When it was sent, on the local clock.
    pub(crate) sent: Timestamp,
    /// When the server did it at the earliest, by its
    /// [clock offset](crate::store::redis::server::clock_offset). What is cached counts from here:
    /// since then at most that much time has passed on the server, so nobody is denied whom it
    /// would let in.
    pub(crate) done: Timestamp,
}

impl Reply<'_> {
    /// Reads the reply to `operations` and answers everyone. Returns the errors of single ones.
    pub(crate) fn read(&self, operations: Vec<Operation>, values: &[Value]) -> Vec<String> {
        let unanswered = self.server.unanswered(self.client);
        let mut reader = ReplyReader { values: values.iter() };
        let Some(now_us) = reader.next().and_then(|now| u64::try_from(now).ok()) else {
            operations.into_iter().for_each(|operation| operation.fail(unanswered));
            return vec!["a reply without a time".to_string()];
        };
        let (mut errors, mut answers) = (Vec::new(), Vec::with_capacity(operations.len()));
        for operation in operations {
            let read = match &operation {
                Operation::Decide(group) if group.is_unit() => group.read_unit(now_us, &mut reader),
                Operation::Decide(group) => reader.status().map(|()| group.read(now_us, &mut reader)),
                Operation::Update(_) => reader.status().map(|()| None),
            };
            match (operation, read) {
                (Operation::Decide(group), Ok(Some((found, taken)))) => {
                    group.answer(now_us, self, found, &taken, &mut answers);
                }
                (Operation::Update(update), Ok(_)) => update.answer(self.sent, &mut reader),
                (operation, Ok(None)) => operation.fail(unanswered),
                (operation, Err(error)) => {
                    errors.push(error);
                    operation.fail(unanswered);
                }
            }
        }
        // In one go: those who are woken find each other's answers there, too.
        self.deliver(answers);
        errors
    }

    /// The script and the replay here decide differently: a defect of ours, or a script that
    /// somebody has changed. Nobody is let through by it.
    fn log_disagreement(&self, keys: &[GateKey], was_taken: bool) {
        count(&self.client.counters.disagreements, 1);
        if self.client.may_warn() {
            let gates: Vec<&str> = keys.iter().map(|key| &*key.gate.name).collect();
            tracing::error!(
                server = self.server.address(),
                gates = gates.join(", "),
                was_taken,
                "the script's decision differs from the one computed here: the call is denied"
            );
        }
    }

    fn deliver(&self, answers: Vec<(Request, ScriptAnswer)>) {
        let now = self.client.now();
        for (mut request, answer) in answers {
            let took_us = now.since(request.since).as_micros();
            self.client.counters.answered(u64::try_from(took_us).unwrap_or(u64::MAX));
            if let Some(Ok(answer)) = request.answer(Ok(answer)) {
                // Nobody waits for it any more: what it was granted goes back. Whoever was answered
                // at the deadline has decided otherwise: that is spent.
                answer.charges.into_iter().for_each(GateCharge::cancel);
            }
        }
    }
}

struct ReplyReader<'a> {
    values: std::slice::Iter<'a, Value>,
}

impl Iterator for ReplyReader<'_> {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        match self.values.next()? {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }
}

impl ReplyReader<'_> {
    /// Zero, or the error.
    fn status(&mut self) -> Result<(), String> {
        match self.number()? {
            0 => Ok(()),
            other => Err(format!("a reply that makes no sense: {other}")),
        }
    }

    /// A number, or the error.
    fn number(&mut self) -> Result<i64, String> {
        match self.values.next() {
            Some(Value::Int(number)) => Ok(*number),
            Some(Value::BulkString(text)) => Err(String::from_utf8_lossy(text).into_owned()),
            Some(Value::SimpleString(text)) => Err(text.clone()),
            other => Err(format!("a reply that makes no sense: {other:?}")),
        }
    }
}

/// What the script found of each key, and whether it took each request.
type FoundAndTaken = (SmallVec<[FoundState; 1]>, SmallVec<[bool; 8]>);

impl RequestGroup {
    /// One number for both: the level, or -1 - level if nothing was taken.
    fn read_unit(&self, now_us: u64, reader: &mut ReplyReader<'_>) -> Result<Option<FoundAndTaken>, String> {
        let number = reader.number()?;
        let (level, is_taken) = if number < 0 { (-1 - number, false) } else { (number, true) };
        let found = FoundState::read(&self.keys[0].version.numbers, now_us, &mut std::iter::once(level));
        Ok(found.map(|found| (SmallVec::from_elem(found, 1), SmallVec::from_elem(is_taken, 1))))
    }

    fn read(&self, now_us: u64, reader: &mut ReplyReader<'_>) -> Option<FoundAndTaken> {
        let mut found: SmallVec<[FoundState; 1]> = SmallVec::new();
        for key in &self.keys {
            found.push(FoundState::read(&key.version.numbers, now_us, reader)?);
        }
        let mut taken = SmallVec::new();
        if self.is_one_rate() {
            for run in runs(&self.requests) {
                let of_run = u64::try_from(reader.next()?).ok()?;
                taken.extend((0..run.count).map(|nth| nth < of_run));
            }
        } else {
            for _ in &self.requests {
                taken.push(reader.next()? == 1);
            }
        }
        Some((found, taken))
    }

    /// The answer to every request, replaying them on what the script found.
    fn answer(
        self,
        now_us: u64,
        reply: &Reply<'_>,
        mut found: SmallVec<[FoundState; 1]>,
        taken: &[bool],
        answers: &mut Vec<(Request, ScriptAnswer)>,
    ) {
        let Self { keys, requests } = self;
        let mut is_denied: SmallVec<[bool; 1]> = SmallVec::from_elem(false, keys.len());
        let mut has_look = false;
        for (request, was_taken) in requests.into_iter().zip(taken) {
            let mut decisions: SmallVec<[Decision; 1]> = SmallVec::new();
            let mut steps: SmallVec<[_; 1]> = SmallVec::new();
            let mut is_allowed = true;
            for (at, key) in keys.iter().enumerate() {
                let capacity = key.version.limit.capacity();
                let (cost, mode) = (request.costs[at], request.mode.decides_as(&key.version));
                let mut answer = found[at].decide(now_us, cost, mode, capacity);
                if !request.mode.takes() {
                    // Nothing was taken: how full the key is says so.
                    answer.gauge = found[at].decide(now_us, 0, mode, capacity).gauge;
                }
                if let DecisionOutcome::Deny(DenialReason::Later { .. }) = answer.outcome {
                    is_denied[at] |= request.mode != RequestMode::Peek;
                }
                is_allowed &= answer.is_allowed();
                decisions.push(answer.decision(capacity));
                steps.push(answer.step);
            }
            has_look |= matches!(request.mode, RequestMode::Look(_));
            let mut charges = SmallVec::new();
            if request.mode.takes() && is_allowed != *was_taken {
                reply.log_disagreement(&keys, *was_taken);
                for decision in &mut decisions {
                    decision.outcome = DecisionOutcome::Deny(DenialReason::Busy);
                }
            } else if request.mode.takes() && is_allowed {
                let mut slots = 0;
                for (at, key) in keys.iter().enumerate() {
                    let mark = found[at].apply(steps[at]);
                    let slot = key.version.has_slots().then(|| request.slot_number(slots));
                    slots += usize::from(slot.is_some());
                    if request.wants_charges {
                        let start_us = now_us.saturating_add(decisions[at].wait_us());
                        let cost = request.costs[at];
                        charges.push(GateCharge::new(key, cost, start_us, mark, slot, reply.sent));
                    }
                }
            }
            answers.push((request, ScriptAnswer { decisions, now_us, charges }));
        }
        // Before anyone hears of it: whoever gives something back upon a denial must find it
        // forgotten, not cached afterwards. What was found beside a denial is cached with it.
        has_look |= is_denied.contains(&true);
        for (at, key) in keys.iter().enumerate() {
            key.gate.cache_found(key, &found[at], is_denied[at] || has_look, reply.done);
            key.gate.set_answered(reply.server);
        }
    }
}

impl KeyUpdate {
    fn answer(self, sent: Timestamp, reader: &mut ReplyReader<'_>) {
        // Whatever was cached of the key while this was in flight may be outdated.
        if let Some(key) = &self.key {
            key.gate.forget_denial(key.hash);
        }
        let expected = match &self.kind {
            UpdateKind::Refund { charges, .. } => 3 + charges.len(),
            UpdateKind::Heartbeat { .. } => 2,
            UpdateKind::Release { .. } | UpdateKind::Queue { .. } => 1,
            UpdateKind::Renew { holders } => holders.len(),
            UpdateKind::ChargeDebt { .. } | UpdateKind::Reset | UpdateKind::Leave { .. } => 0,
        };
        let numbers: SmallVec<[i64; 2]> = reader.by_ref().take(expected).collect();
        match (self.kind, numbers.as_slice()) {
            (UpdateKind::Refund { charges, has_own }, [m1, m2, span, came_back @ ..]) => {
                if let (Some(own), Ok(m1), Ok(m2), Ok(span)) = (
                    charges.first().filter(|_| has_own),
                    u64::try_from(*m1),
                    u64::try_from(*m2),
                    u64::try_from(*span),
                ) {
                    let mut mark = own.mark.lock().unwrap_or_else(PoisonError::into_inner);
                    *mark = ChargeMark { end: (m1, m2), span, ..*mark };
                }
                let came_back: SmallVec<[bool; 4]> = came_back.iter().map(|one| *one == 1).collect();
                if let Some(key) = &self.key {
                    key.refunded(charges, &came_back);
                }
            }
            (UpdateKind::Renew { holders }, renewed) => {
                for ((holder, member), renewed) in holders.iter().zip(renewed) {
                    holder.renewed(member, *renewed, sent);
                }
            }
            _ => {}
        }
        if let Some(sender) = self.answer {
            let _ = sender.send(Ok(numbers));
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/support/logged.rs"]
mod logged;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]
mod tests {
    use super::*;
    use crate::algorithm::Mode;
    use crate::clock::{ManualClock, StoreClock};
    use crate::store::redis::config::{Redis, RedisGateOptions};
    use crate::store::redis::gate::RedisGate;
    use crate::store::redis::store::RedisStore;
    use std::sync::Arc;
    use tokio::sync::oneshot;

    /// A reply that says that a unit was taken of a bucket that it says is full.
    fn disagree(store: &Arc<RedisStore>, gate: &Arc<RedisGate>) -> ScriptAnswer {
        let client = &store.client;
        let (answer, mut answered) = oneshot::channel();
        let request = Request {
            mode: RequestMode::Take(Mode::Check),
            costs: SmallVec::from_elem(1, 1),
            wants_charges: false,
            slots_from: 0,
            since: client.now(),
            answer: Some(answer),
        };
        let keys = SmallVec::from_elem(gate.key(b"a", 7), 1);
        let group = RequestGroup { keys, requests: vec![request] };
        let server = client.server_of(|| 0).unwrap();
        let reply = Reply { client, server: &server, sent: client.clock.now(), done: client.clock.now() };
        let full = i64::try_from(gate.version().encoded.numbers[3]).unwrap();
        reply.read(vec![Operation::Decide(group)], &[Value::Int(1_000), Value::Int(full)]);
        answered.try_recv().unwrap().ok().unwrap()
    }

    #[test]
    fn a_script_that_disagrees_is_logged_and_lets_nobody_in() {
        let clock = StoreClock::Other(Arc::new(ManualClock::new()));
        let store = Arc::new(RedisStore::new(Redis::at("redis://127.0.0.1:1").unwrap(), Some(clock)));
        let limit = "1/s burst 1".parse().unwrap();
        let gate = Arc::new(RedisGate::new(1, "odd", limit, store.clone(), &RedisGateOptions::default()));
        let lines = logged::logged("tidegate::store::redis::script::answer", tracing::Level::ERROR, || {
            for _ in 0..10 {
                assert!(!disagree(&store, &gate).decisions[0].is_allowed());
            }
        });
        assert_eq!(store.stats().disagreements, 10);
        assert_eq!(lines.len(), 1, "once a second: {lines:?}");
        assert!(lines[0].contains("odd") && lines[0].contains("differs"), "{lines:?}");
    }
}
