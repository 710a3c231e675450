//! One request before one snapshot of the rules: asking, answering, telling.

use crate::algorithm::Mode;
use crate::clock::Timestamp;
use crate::decision::{Decision, Denial};
use crate::http::extension::Decided;
use crate::http::guard::Shared;
use crate::http::response::fields::{Brief, Shown, Written};
use crate::http::response::{Protocol, Refused, whole};
use crate::key::Key;
use crate::limiter::Check;
use crate::rules::decide::{Ask, Decisions, Judged, More, Passage, Stop};
use crate::rules::observe;
use crate::rules::record::{Outcome, Record};
use crate::rules::rule_set::{Policy, Ready, RuleSet};
use crate::sampler::Sampler;
use crate::store::memory;
use bytes::Bytes;
use http::Response;
use smallvec::SmallVec;
use std::time::Duration;

/// One snapshot of the rules, judging one request.
pub(crate) struct Judge<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) rules: &'a RuleSet,
    /// When judging began, if somebody wants to know how long it takes.
    pub(crate) started: Option<Timestamp>,
}

impl<'a> Judge<'a> {
    /// Each question with each policy of its rule, in the order in which they are asked.
    pub(crate) fn policies<'b>(
        &self,
        asks: &'b [Ask],
    ) -> impl Iterator<Item = (&'a Ready, &'a Policy, &'b Ask)> + use<'a, 'b> {
        let rules = self.rules;
        asks.iter().flat_map(move |ask| {
            let rule = &rules.rules[ask.rule];
            rule.policies.iter().map(move |policy| (rule, policy, ask))
        })
    }

    /// Decides all questions in memory, without waits.
    #[inline]
    pub(crate) fn decide_now<'b>(&self, asks: &'b [Ask]) -> Decisions {
        if let [ask] = asks
            && let [policy] = self.rules.rules[ask.rule].policies.as_slice()
        {
            return Decisions::from_slice(&[policy.gate.check_cost(&ask.key, ask.cost)]);
        }
        if asks.is_empty() {
            return Decisions::new();
        }
        // Without the permit that `Limiter::check` makes: there is nothing to give back.
        let question = |(_, policy, ask): (_, &'a Policy, &'b Ask)| {
            let meter = policy.gate.backend().memory()?;
            Some(memory::HashedCheck::new(meter, meter.hash(&ask.key), ask.cost))
        };
        let questions: SmallVec<[memory::HashedCheck<'_>; 4]> =
            self.policies(asks).filter_map(question).collect();
        memory::decide_all(&questions, Mode::Check).iter().map(|result| result.decision).collect()
    }

    pub(crate) fn checks<'b>(&self, asks: &'b [Ask]) -> impl Iterator<Item = Check<'b>>
    where
        'a: 'b,
    {
        self.policies(asks).map(|(_, policy, ask)| Check::new(&policy.gate, &ask.key).cost(ask.cost))
    }

    /// The end of the rules in force: what a request takes along, or its answer.
    #[inline]
    pub(crate) fn settle<'b>(
        &self,
        asks: &'b [Ask],
        decisions: &'b [Decision],
        wait: Duration,
        protocol: impl FnOnce() -> Protocol,
    ) -> Judged {
        if !decisions.iter().all(Decision::is_allowed) {
            return Err(self.refuse(asks, decisions, protocol()));
        }
        if self.is_watched() {
            let outcome = if wait.is_zero() { Outcome::Allowed } else { Outcome::Waited };
            for ((rule, policy, ask), decision) in self.policies(asks).zip(decisions) {
                let record = self.record(rule, policy, &ask.key, decision, outcome);
                self.tell(rule, &Record { wait, ..record });
            }
        }
        let shown = |((rule, policy, ask), decision): ((&'a Ready, &'a Policy, &'b Ask), &'b Decision)| {
            Shown { text: &policy.text, decision, key: rule.shows_keys.then_some(&*ask.key) }
        };
        let shown: SmallVec<[Shown<'_>; 2]> = self.policies(asks).zip(decisions).map(shown).collect();
        let brief = Brief::of(&self.shared.headers, &shown);
        let written = if brief.is_none() { Written::of(&self.shared.headers, &shown) } else { None };
        let decided = self.shared.tells_handlers.then(|| {
            let named =
                |((_, policy, _), decision): ((_, &Policy, _), &Decision)| (policy.name.clone(), *decision);
            Decided::new(self.policies(asks).zip(decisions).map(named), wait)
        });
        let has_more = written.is_some() || decided.is_some();
        let more = has_more.then(|| Box::new(More { written, decided, ..More::default() }));
        Ok(Passage { brief, more, ..Passage::default() })
    }

    #[cold]
    pub(crate) fn refuse(
        &self,
        asks: &[Ask],
        decisions: &[Decision],
        protocol: Protocol,
    ) -> Box<Response<Bytes>> {
        let records: SmallVec<[Record<'_>; 2]> = self
            .policies(asks)
            .zip(decisions)
            .map(|((rule, policy, ask), decision)| {
                self.record(rule, policy, &ask.key, decision, Outcome::of_denied(decision))
            })
            .collect();
        for ((rule, ..), record) in self.policies(asks).zip(&records) {
            self.tell(rule, record);
        }
        let weight = |at: &usize| crate::verdict::weight(&decisions[*at]);
        let binding = (0..decisions.len()).max_by_key(weight).unwrap_or(0);
        self.answer(&records, binding, protocol)
    }

    /// The answer to a request that is refused before the store is asked.
    #[cold]
    pub(crate) fn stop(&self, stop: &Stop, protocol: Protocol) -> Box<Response<Bytes>> {
        let rule = stop.rule.map(|at| &self.rules.rules[at]);
        let record = self.brief(rule, &stop.key, stop.outcome);
        match rule {
            Some(rule) => self.tell(rule, &record),
            None => self.tell_with(&self.shared.sampler, &record),
        }
        self.answer(&[record], 0, protocol)
    }

    fn answer(&self, records: &[Record<'_>], binding: usize, protocol: Protocol) -> Box<Response<Bytes>> {
        let headers = &self.shared.headers;
        let retry_after = records[binding].decision.and_then(|decision| decision.retry_after());
        let told_after = retry_after.map(|after| headers.told_after(after));
        let refused = Refused { records, binding, retry_after, told_after };
        Box::new(whole(&*self.shared.render, headers, &refused, self.rules, protocol))
    }

    /// Records what a rule that only watches would have done.
    pub(crate) fn watch(&self, ask: &Ask, decisions: &[Decision], wait: Duration) {
        let is_allowed = decisions.iter().all(Decision::is_allowed);
        for ((rule, policy, ask), decision) in self.policies(std::slice::from_ref(ask)).zip(decisions) {
            let outcome = match (is_allowed, wait.is_zero()) {
                (true, true) => Outcome::Allowed,
                (true, false) => Outcome::Waited,
                // Who watches does not queue, so all that is known is that there is no place now.
                (false, _)
                    if policy.is_place
                        && policy.waits
                        && decision.is_checked()
                        && decision.denial() == Some(Denial::Busy) =>
                {
                    Outcome::Queued
                }
                (false, _) => Outcome::of_denied(decision),
            };
            let record = self.record(rule, policy, &ask.key, decision, outcome);
            self.tell(rule, &Record { wait, ..record });
        }
    }

    /// Records that a rule was not asked, or what one that only watches thinks of it.
    pub(crate) fn pass(&self, rule: &Ready, key: &[u8], outcome: Outcome) {
        if self.is_watched() || outcome.is_refusal() {
            self.tell(rule, &self.brief(Some(rule), key, outcome));
        }
    }

    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.started.is_some() || tracing::enabled!(target: "tidegate::guard", tracing::Level::TRACE)
    }

    #[inline]
    fn tell(&self, rule: &Ready, record: &Record<'_>) {
        self.tell_with(&rule.sampler, record);
    }

    fn tell_with(&self, sampler: &Sampler, record: &Record<'_>) {
        if let Some(observer) = &self.shared.observer {
            observer.verdict(record);
        }
        if record.outcome.is_refusal() {
            let now = || self.shared.limiter.clock().now();
            observe::log_refused(record, sampler, self.shared.logged_each_second, now);
        } else {
            observe::log_passed(record);
        }
    }

    fn took(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |started| self.shared.limiter.clock().now().since(started))
    }

    fn record<'b>(
        &self,
        rule: &'b Ready,
        policy: &'b Policy,
        key: &'b [u8],
        decision: &Decision,
        outcome: Outcome,
    ) -> Record<'b> {
        Record {
            rule: &rule.name,
            policy: &policy.name,
            key: Some(Key::new(key)),
            limit: Some(&policy.limit),
            decision: Some(*decision),
            outcome,
            is_shadow: rule.is_shadow,
            shows_keys: rule.shows_keys,
            wait: Duration::ZERO,
            took: self.took(),
            expr: None,
        }
    }

    fn brief<'b>(&self, rule: Option<&'b Ready>, key: &'b [u8], outcome: Outcome) -> Record<'b> {
        let name = rule.map_or("", |rule| &*rule.name);
        Record {
            rule: name,
            policy: name,
            key: (!key.is_empty()).then(|| Key::new(key)),
            limit: None,
            decision: None,
            outcome,
            is_shadow: rule.is_some_and(|rule| rule.is_shadow),
            shows_keys: rule.is_some_and(|rule| rule.shows_keys),
            wait: Duration::ZERO,
            took: self.took(),
            expr: rule.map(|rule| &rule.key),
        }
    }
}
