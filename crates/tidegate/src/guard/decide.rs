//! The way of a request through the rules.
//!
//! What can be decided at once (memory, no wait, no place to hold) is decided without a
//! future and without an allocation. Everything else is a future that owns what it needs.

use super::answer::Protocol;
use super::asking::Asking;
use super::decided::Decided;
use super::facets::Facets;
use super::fields::{Brief, Written};
use super::guarded::Guard;
use super::judge::Judge;
use super::key_bytes::KeyBytes;
use super::key_write;
use super::list::List;
use super::record::Outcome;
use super::rule::Missing;
use super::rules::{Ready, RuleSet};
use crate::ask::Side;
use crate::caller::Caller;
use crate::decision::Decision;
use crate::permit::Permit;
use bytes::Bytes;
use http::{HeaderMap, Response};
use smallvec::SmallVec;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a request that may go on takes along.
#[derive(Debug, Default)]
pub(super) struct Passage {
    pub(super) brief: Option<Brief>,
    pub(super) caller: Caller,
    pub(super) more: Option<Box<More>>,
}

/// What few requests take along: a single word for all others.
#[derive(Debug, Default)]
pub(super) struct More {
    /// Fields that are not brief.
    pub(super) written: Option<Written>,
    /// Held until the answer's body has ended.
    pub(super) places: SmallVec<[Permit; 1]>,
    /// For the handler.
    pub(super) decided: Option<Decided>,
}

impl Passage {
    /// Puts the fields about the allowance into the head of an answer, once.
    #[cfg(feature = "axum")]
    pub(super) fn add_fields(&mut self, headers: &mut HeaderMap) {
        add_fields(self.brief, &mut self.more, headers);
    }
}

#[inline(always)]
pub(super) fn add_fields(brief: Option<Brief>, more: &mut Option<Box<More>>, headers: &mut HeaderMap) {
    if let Some(brief) = brief {
        brief.add_to(headers);
    } else if let Some(written) = more.as_mut().and_then(|more| more.written.take()) {
        written.add_to(headers);
    }
}

/// A passage, or the answer.
pub(super) type Judged = Result<Passage, Box<Response<Bytes>>>;

/// What is known at once.
pub(super) enum Begun {
    Judged(Judged),
    Asking(Pin<Box<dyn Future<Output = Judged> + Send>>),
}

/// What the short way knows.
pub(super) enum Short {
    /// It may go on, and this is what its answer says.
    Passes(Option<Brief>),
    Refused(Box<Response<Bytes>>),
    /// Nothing was decided.
    Undecided,
}

/// One rule's question.
pub(super) struct Ask {
    pub(super) rule: usize,
    pub(super) key: KeyBytes,
    pub(super) cost: u64,
}

/// The questions of a request.
#[derive(Default)]
pub(super) struct Asks {
    /// Of the rules in force.
    pub(super) live: SmallVec<[Ask; 1]>,
    /// Of those that only watch.
    pub(super) shadow: SmallVec<[Ask; 1]>,
}

/// A request that is refused before the store is asked.
pub(super) struct Stop {
    pub(super) rule: Option<usize>,
    pub(super) key: KeyBytes,
    pub(super) outcome: Outcome,
}

pub(super) type Decisions = SmallVec<[Decision; 2]>;

impl Guard {
    /// Judges a request by these rules, at once where that is possible.
    #[cfg(feature = "axum")]
    pub(super) fn begin(&self, rules: &Arc<RuleSet>, facets: &Facets<'_>) -> Begun {
        match self.short_way(rules, facets) {
            Short::Passes(brief) => {
                Begun::Judged(Ok(Passage { brief, caller: self.shared.caller(facets), more: None }))
            }
            Short::Refused(answer) => Begun::Judged(Err(answer)),
            Short::Undecided => self.long_way(rules, facets),
        }
    }

    /// Everything that [`short_way`](Self::short_way) leaves. Kept apart, so that it takes
    /// no room on the stack of those.
    #[inline(never)]
    pub(super) fn long_way(&self, rules: &Arc<RuleSet>, facets: &Facets<'_>) -> Begun {
        let shared = &*self.shared;
        let judge = Judge { shared, rules, started: shared.started() };
        if shared.is_off.load(Ordering::Relaxed) {
            self.pass_all(&judge, facets);
            // A handler that wants to know is told that nobody was asked.
            let decided = shared.tells_handlers.then(Decided::default);
            let more = decided.map(|decided| Box::new(More { decided: Some(decided), ..More::default() }));
            return Begun::Judged(Ok(Passage { caller: shared.caller(facets), more, ..Passage::default() }));
        }
        let mut asks = Asks::default();
        if let Err(stop) = self.find(&judge, facets, &mut asks) {
            return Begun::Judged(Err(judge.stop(&stop, Protocol::of(facets.headers()))));
        }
        let is_instant = |ask: &Ask| rules.rules[ask.rule].is_instant;
        if asks.live.iter().all(is_instant) && asks.shadow.iter().all(is_instant) {
            let decisions = judge.decide_now(&asks.live);
            let protocol = || Protocol::of(facets.headers());
            let judged = judge.settle(&asks.live, &decisions, Duration::ZERO, protocol);
            if judged.is_ok() {
                for ask in &asks.shadow {
                    judge.watch(ask, &judge.decide_now(std::slice::from_ref(ask)), Duration::ZERO);
                }
            }
            return Begun::Judged(judged.map(|passage| Passage { caller: shared.caller(facets), ..passage }));
        }
        let asking = Asking {
            shared: self.shared.clone(),
            protocol: Protocol::of(facets.headers()),
            caller: shared.caller(facets),
            started: judge.started,
            rules: rules.clone(),
            asks,
        };
        Begun::Asking(Box::pin(asking.run()))
    }

    /// The common case, without anything that is only needed otherwise: no rule applies, or
    /// a simple one that finds its key, and nobody watches.
    ///
    /// Inlined, so that what it says never has to be in memory, where a processor would wait
    /// for its pieces before it could move it.
    #[inline(always)]
    pub(super) fn short_way(&self, rules: &RuleSet, facets: &Facets<'_>) -> Short {
        let shared = &*self.shared;
        let judge = Judge { shared, rules, started: None };
        if !shared.is_plain || shared.is_off.load(Ordering::Relaxed) || judge.is_watched() {
            return Short::Undecided;
        }
        let mut one = None;
        for (index, rule) in rules.rules.iter().enumerate() {
            if self.choice.has(&rule.name)
                && let Some(route) = rule.applies(facets)
                && one.replace((index, rule, route)).is_some()
            {
                return Short::Undecided;
            }
        }
        let Some((index, rule, route)) = one else { return Short::Passes(None) };
        let Some(policy) = rule.policies.first().filter(|_| rule.is_simple) else {
            return Short::Undecided;
        };
        let text = if shared.headers.standard { policy.text.lasting } else { None };
        if text.is_none() && shared.headers.standard {
            return Short::Undecided;
        }
        let Side::Memory(meter) = &policy.gate.side else { return Short::Undecided };
        let Some(hash) = key_write::hash(&rule.key, facets, route, meter) else { return Short::Undecided };
        let cost = rule.cost(facets);
        let decision = meter.check(hash, cost);
        if !decision.is_allowed() {
            return Short::Refused(judge.refuse_one(index, route, cost, &decision, facets));
        }
        match text {
            Some(text) => Short::Passes(Some(Brief::new(text, &decision))),
            None => Short::Passes(None),
        }
    }

    /// The questions of all rules that apply.
    fn find(&self, judge: &Judge<'_>, facets: &Facets<'_>, asks: &mut Asks) -> Result<(), Box<Stop>> {
        let (shared, rules) = (judge.shared, judge.rules);
        let client_is_on = |list: &List| list.has_networks() && list.has_client(facets.client());
        if client_is_on(&shared.deny) {
            return Err(Box::new(Stop { rule: None, key: client_key(facets), outcome: Outcome::Listed }));
        }
        let is_exempt = client_is_on(&shared.allow);
        for (index, rule) in rules.rules.iter().enumerate() {
            if !self.choice.has(&rule.name) {
                continue;
            }
            let Some(route) = rule.applies(facets) else { continue };
            let list = if rule.is_shadow { &mut asks.shadow } else { &mut asks.live };
            // Written where it stays: keys are large to move.
            list.push(Ask { rule: index, key: KeyBytes::new(), cost: 0 });
            let Some(ask) = list.last_mut() else { continue };
            let is_found = key_write::write(&rule.key, facets, route, &mut ask.key);
            let is_on = |own: &List, all: &List| {
                client_is_on(own) || (is_found && (own.has_key(&ask.key) || all.has_key(&ask.key)))
            };
            let end = if is_on(&rule.deny, &shared.deny) {
                Outcome::Listed
            } else if is_exempt || is_on(&rule.allow, &shared.allow) {
                Outcome::Exempt
            } else if is_found || rule.missing == Missing::Share {
                if !is_found {
                    ask.key = KeyBytes::from_slice(&rule.shared_key);
                }
                ask.cost = rule.cost(facets);
                continue;
            } else {
                ask.key.clear();
                if rule.missing == Missing::Skip { Outcome::Skipped } else { Outcome::Incomplete }
            };
            let key = list.pop().map(|ask| ask.key).unwrap_or_default();
            if end.is_refusal() && !rule.is_shadow {
                return Err(Box::new(Stop { rule: Some(index), key, outcome: end }));
            }
            judge.pass(rule, &key, end);
        }
        Ok(())
    }

    /// Records that the guard is switched off.
    fn pass_all(&self, judge: &Judge<'_>, facets: &Facets<'_>) {
        if judge.is_watched() {
            let applies = |rule: &&Ready| self.choice.has(&rule.name) && rule.applies(facets).is_some();
            for rule in judge.rules.rules.iter().filter(applies) {
                judge.pass(rule, &[], Outcome::Off);
            }
        }
    }
}

fn client_key(facets: &Facets<'_>) -> KeyBytes {
    let text = facets.client().map(|client| format!("ip:{client}")).unwrap_or_default();
    KeyBytes::from_slice(text.as_bytes())
}
