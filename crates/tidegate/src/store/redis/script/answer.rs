//! What everyone hears of a call: the script's reply is read, the requests are replayed on the state
//! that it found, and whoever waits is answered.

use super::encode::runs;
use super::numbers::RENEWED_NOT;
use super::replay::{ChargeMark, FoundState};
use crate::algorithm::Step;
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionOutcome, DenialReason};
use crate::store::redis::gate::charge::GateCharge;
use crate::store::redis::lock;
use crate::store::redis::request::{
    GateKey, KeyUpdate, Operation, Request, RequestGroup, RequestMode, ScriptAnswer, UpdateKind,
};
use crate::store::redis::server::RedisServer;
use crate::store::redis::stats::count;
use crate::store::redis::store::RedisClient;
use redis::Value;
use smallvec::{SmallVec, smallvec};

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
        let mut values = values.iter();
        let Some(now_us) = values.next().and_then(number).and_then(|now| u64::try_from(now).ok()) else {
            return vec!["a reply without a time".to_string()];
        };
        let (mut errors, mut answers) = (Vec::new(), Vec::with_capacity(operations.len()));
        for operation in operations {
            match (values.next(), operation) {
                (Some(Value::Int(first)), Operation::Decide(group)) if *first == 0 || group.is_unit() => {
                    if let Some((found, taken)) = group.read(now_us, *first, &mut values) {
                        group.answer(now_us, self, found, &taken, &mut answers);
                    }
                }
                (Some(Value::Int(0)), Operation::Update(update)) => update.answer(self.sent, &mut values),
                (Some(Value::BulkString(error)), _) => {
                    errors.push(String::from_utf8_lossy(error).into_owned());
                }
                (Some(Value::SimpleString(error)), _) => errors.push(error.clone()),
                (other, _) => errors.push(format!("a reply that makes no sense: {other:?}")),
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
            if let Some(sender) = request.answer.take()
                && let Err(answer) = sender.send(answer)
            {
                // Nobody waits for it any more: what it was granted goes back. Whoever was answered
                // at the deadline has decided otherwise: that is spent.
                answer.charges.into_iter().for_each(GateCharge::cancel);
            }
        }
    }
}

type Values<'a> = std::slice::Iter<'a, Value>;

fn number(value: &Value) -> Option<i64> {
    if let Value::Int(number) = value { Some(*number) } else { None }
}

/// What the script found of each key, and whether it took each request.
type FoundAndTaken = (SmallVec<[FoundState; 1]>, SmallVec<[bool; 8]>);

impl RequestGroup {
    /// Reads what follows behind the first number, which is zero: of a unit it is the level, or
    /// -1 - level if nothing was taken.
    fn read(&self, now_us: u64, first: i64, values: &mut Values<'_>) -> Option<FoundAndTaken> {
        if self.is_unit() {
            let level = if first < 0 { -1 - first } else { first };
            let found = FoundState::read(&self.keys[0].version, now_us, &mut std::iter::once(level))?;
            return Some((smallvec![found], smallvec![first >= 0]));
        }
        let mut numbers = values.map_while(number);
        let mut found: SmallVec<[FoundState; 1]> = SmallVec::new();
        for key in &self.keys {
            found.push(FoundState::read(&key.version, now_us, &mut numbers)?);
        }
        let mut taken = SmallVec::new();
        if self.is_one_rate() {
            for run in runs(&self.requests) {
                let of_run = usize::try_from(numbers.next()?).ok()?;
                taken.extend((0..run.len()).map(|nth| nth < of_run));
            }
        } else {
            for _ in &self.requests {
                taken.push(numbers.next()? == 1);
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
            let mut steps: SmallVec<[Step; 1]> = SmallVec::new();
            let mut is_allowed = true;
            for (at, key) in keys.iter().enumerate() {
                let (cost, mode) = (request.costs[at], request.mode.decides_as(&key.version));
                let answer = match request.mode {
                    RequestMode::Take(_) => found[at].decide(now_us, cost, mode),
                    RequestMode::Peek | RequestMode::Look(_) => found[at].look(now_us, cost, mode),
                };
                if let DecisionOutcome::Deny(DenialReason::Later { .. }) = answer.outcome {
                    is_denied[at] |= request.mode != RequestMode::Peek;
                }
                is_allowed &= answer.is_allowed();
                decisions.push(answer.decision(found[at].capacity));
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
                let mut numbers = request.slots_from..;
                for (at, key) in keys.iter().enumerate() {
                    let mark = found[at].apply(steps[at]);
                    let slot = if key.version.has_slots() { numbers.next() } else { None };
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
            key.cache_found(&found[at], is_denied[at] || has_look, reply.done);
            key.gate.set_answered(reply.server);
        }
    }
}

impl KeyUpdate {
    fn answer(self, sent: Timestamp, values: &mut Values<'_>) {
        // Whatever was cached of the key while this was in flight may be outdated.
        if let Some(key) = &self.key {
            key.forget_denial();
        }
        let mut returned = values.map_while(number);
        let mut numbers = SmallVec::new();
        match self.kind {
            UpdateKind::Refund { charges, has_own } => {
                let mut natural = || returned.next().and_then(|number| u64::try_from(number).ok());
                if let (Some(m1), Some(m2), Some(span)) = (natural(), natural(), natural())
                    && let Some(own) = charges.first().filter(|_| has_own)
                {
                    let mut mark = lock(&own.mark);
                    *mark = ChargeMark { end: (m1, m2), span, ..*mark };
                }
                let came_back: SmallVec<[bool; 4]> =
                    returned.by_ref().take(charges.len()).map(|came_back| came_back == 1).collect();
                if let Some(key) = &self.key {
                    key.refunded(charges, &came_back);
                }
            }
            UpdateKind::Renew(holders) => {
                for (holder, member) in holders {
                    holder.renewed(&member, returned.next().unwrap_or(RENEWED_NOT), sent);
                }
            }
            UpdateKind::Heartbeat => numbers.extend(returned.by_ref().take(2)),
            UpdateKind::Release { .. } | UpdateKind::Queue { .. } => numbers.extend(returned.next()),
            UpdateKind::ChargeDebt(_) | UpdateKind::Reset | UpdateKind::Leave(_) => {}
        }
        if let Some(sender) = self.answer {
            let _ = sender.send(numbers);
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
        let keys = SmallVec::from_elem(gate.key(b"a"), 1);
        let group = RequestGroup { keys, requests: vec![request] };
        let server = client.server_of(|| 0).unwrap();
        let reply = Reply { client, server: &server, sent: client.clock.now(), done: client.clock.now() };
        let full = i64::try_from(gate.version().encoded.numbers[3]).unwrap();
        reply.read(vec![Operation::Decide(group)], &[Value::Int(1_000), Value::Int(full)]);
        answered.try_recv().unwrap()
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
