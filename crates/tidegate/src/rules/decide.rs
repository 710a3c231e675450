//! The way of a request through the rules.
//!
//! What can be decided at once (memory, no wait, no place to hold) is decided without a
//! future and without an allocation. Everything else is a future that owns what it needs.

use crate::caller::Caller;
use crate::decision::Decision;
use crate::http::extension::Decided;
use crate::http::facts::Facets;
use crate::http::guard::Guard;
use crate::http::response::Protocol;
use crate::http::response::fields::{Brief, Written};
use crate::permit::Permit;
use crate::rules::judge::Judge;
use crate::rules::key::bytes::KeyBytes;
use crate::rules::key::write::Found;
use crate::rules::list::List;
use crate::rules::pending::Asking;
use crate::rules::record::Outcome;
use crate::rules::rule::Missing;
use crate::rules::rule_set::{Ready, RuleSet};
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
pub(crate) struct Passage {
    pub(crate) brief: Option<Brief>,
    pub(crate) caller: Caller,
    pub(crate) more: Option<Box<More>>,
}

/// What few requests take along: a single word for all others.
#[derive(Debug, Default)]
pub(crate) struct More {
    /// Fields that are not brief.
    pub(crate) written: Option<Written>,
    /// Held until the answer's body has ended.
    pub(crate) places: SmallVec<[Permit; 1]>,
    /// For the handler.
    pub(crate) decided: Option<Decided>,
}

impl Passage {
    /// Puts the fields about the allowance into the head of an answer, once.
    #[cfg(feature = "axum")]
    pub(crate) fn add_fields(&mut self, headers: &mut HeaderMap) {
        add_fields(self.brief, &mut self.more, headers);
    }
}

#[inline(always)]
pub(crate) fn add_fields(brief: Option<Brief>, more: &mut Option<Box<More>>, headers: &mut HeaderMap) {
    if let Some(brief) = brief {
        brief.add_to(headers);
    } else if let Some(written) = more.as_mut().and_then(|more| more.written.take()) {
        written.add_to(headers);
    }
}

/// A passage, or the answer.
pub(crate) type Judged = Result<Passage, Box<Response<Bytes>>>;

/// What is known at once.
pub(crate) enum Begun {
    Judged(Judged),
    Asking(Pin<Box<dyn Future<Output = Judged> + Send>>),
}

/// One rule's question.
pub(crate) struct Ask {
    pub(crate) rule: usize,
    pub(crate) key: KeyBytes,
    pub(crate) cost: u64,
}

/// The questions of a request.
#[derive(Default)]
pub(crate) struct Asks {
    /// Of the rules in force.
    pub(crate) live: SmallVec<[Ask; 1]>,
    /// Of those that only watch.
    pub(crate) shadow: SmallVec<[Ask; 1]>,
}

/// A request that is refused before the store is asked.
pub(crate) struct Stop {
    pub(crate) rule: Option<usize>,
    pub(crate) key: KeyBytes,
    pub(crate) outcome: Outcome,
}

/// Whose deny list has the network of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denier {
    Guard,
    /// By its place among the rules.
    Rule(usize),
}

pub(crate) type Decisions = SmallVec<[Decision; 2]>;

impl Guard {
    /// Judges a request by these rules, at once where that is possible.
    pub(crate) fn begin(&self, rules: &Arc<RuleSet>, facets: &Facets<'_>) -> Begun {
        if facets.is_preflight() {
            return self.begin_preflight(rules, facets);
        }
        self.begin_any(rules, facets)
    }

    #[inline]
    fn begin_any(&self, rules: &Arc<RuleSet>, facets: &Facets<'_>) -> Begun {
        let begun = match self.short_way(rules, facets) {
            Some(judged) => Begun::Judged(judged),
            None => self.long_way(rules, facets),
        };
        // After the rules that match were marked; none are while the guard is off.
        if rules.awaits_match() && self.is_on() {
            rules.look_for_unmatched(self.shared.limiter.clock().now());
        }
        begun
    }

    /// A CORS preflight: let through but by rules about `OPTIONS`, or judged as any other
    /// request, with a hint in the log if it is refused.
    #[cold]
    fn begin_preflight(&self, rules: &Arc<RuleSet>, facets: &Facets<'_>) -> Begun {
        if self.shared.passes_preflights {
            facets.set_free_preflight();
        }
        match self.begin_any(rules, facets) {
            Begun::Asking(asking) => {
                let shared = self.shared.clone();
                Begun::Asking(Box::pin(async move {
                    let judged = asking.await;
                    if judged.is_err() {
                        shared.warn_of_preflight();
                    }
                    judged
                }))
            }
            Begun::Judged(judged) => {
                if judged.is_err() {
                    self.shared.warn_of_preflight();
                }
                Begun::Judged(judged)
            }
        }
    }

    /// True if rules are all that is asked: no lists, nobody watches, nothing unusual is told.
    #[inline(always)]
    fn is_plain_now(&self, rules: &RuleSet) -> bool {
        let shared = &*self.shared;
        let judge = Judge { shared, rules, started: None };
        shared.is_plain && !shared.is_off.load(Ordering::Relaxed) && !judge.is_watched()
    }

    /// Everything that [`short_way`](Self::short_way) leaves. Kept apart, so that it takes
    /// no room on the stack of that.
    #[inline(never)]
    fn long_way(&self, rules: &Arc<RuleSet>, facets: &Facets<'_>) -> Begun {
        let shared = &*self.shared;
        let judge = Judge { shared, rules, started: shared.started() };
        if shared.is_off.load(Ordering::Relaxed) {
            self.pass_all(&judge, facets);
            // A handler that wants to know is told that nobody was asked.
            let decided = shared.tells_handlers.then(Decided::default);
            let more = decided.map(|decided| Box::new(More { decided: Some(decided), ..More::default() }));
            return Begun::Judged(Ok(Passage {
                caller: shared.caller_of(facets),
                more,
                ..Passage::default()
            }));
        }
        let mut asks = Asks::default();
        if let Err(stop) = self.find(&judge, facets, &mut asks) {
            return Begun::Judged(Err(judge.stop(&stop, Protocol::of(shared, facets))));
        }
        let is_instant = |ask: &Ask| rules.rules[ask.rule].is_instant;
        if asks.live.iter().all(is_instant) && asks.shadow.iter().all(is_instant) {
            let decisions = judge.decide_now(&asks.live);
            let protocol = || Protocol::of(shared, facets);
            let judged = judge.settle(&asks.live, &decisions, Duration::ZERO, protocol);
            if judged.is_ok() {
                for ask in &asks.shadow {
                    judge.watch(ask, &judge.decide_now(std::slice::from_ref(ask)), Duration::ZERO);
                }
            }
            return Begun::Judged(
                judged.map(|passage| Passage { caller: shared.caller_of(facets), ..passage }),
            );
        }
        let asking = Asking {
            shared: self.shared.clone(),
            protocol: Protocol::of(shared, facets),
            caller: shared.caller_of(facets),
            started: judge.started,
            rules: rules.clone(),
            asks,
        };
        Begun::Asking(Box::pin(asking.run()))
    }

    /// The common case, without anything that is only needed otherwise: no rule applies, or
    /// a simple one that finds its key, and nobody watches. None if it is another one.
    fn short_way(&self, rules: &RuleSet, facets: &Facets<'_>) -> Option<Judged> {
        if !self.is_plain_now(rules) {
            return None;
        }
        let shared = &*self.shared;
        let mut one = None;
        for (index, rule) in rules.rules.iter().enumerate() {
            if self.choice.has(&rule.name)
                && let Some(route) = rule.applies(facets)
                && one.replace((index, rule, route)).is_some()
            {
                return None;
            }
        }
        let passage = |brief| Some(Ok(Passage { brief, caller: shared.caller_of(facets), more: None }));
        let Some((index, rule, route)) = one else { return passage(None) };
        let policy = rule.policies.first().filter(|_| rule.is_simple)?;
        let text = if shared.headers.standard { Some(policy.text.lasting?) } else { None };
        let mut ask = Ask { rule: index, key: KeyBytes::new(), cost: rule.cost(facets) };
        if rule.write_key(facets, route, &mut ask.key) != Found::Whole {
            return None;
        }
        let decision = policy.gate.check_cost(&ask.key, ask.cost);
        if !decision.is_allowed() {
            let judge = Judge { shared, rules, started: None };
            return Some(Err(judge.refuse(&[ask], &[decision], Protocol::of(shared, facets))));
        }
        passage(text.map(|text| Brief::new(text, &decision)))
    }

    /// The questions of all rules that apply.
    fn find(&self, judge: &Judge<'_>, facets: &Facets<'_>, asks: &mut Asks) -> Result<(), Box<Stop>> {
        let (shared, rules) = (judge.shared, judge.rules);
        match self.network_denier(rules, facets) {
            None => {}
            Some(Denier::Guard) => {
                return Err(Box::new(Stop { rule: None, key: client_key(facets), outcome: Outcome::Listed }));
            }
            Some(Denier::Rule(index)) => return Err(Box::new(stop_by_network(rules, index, facets))),
        }
        let is_exempt = shared.allow.exempts_client_of(facets);
        for (index, rule) in rules.rules.iter().enumerate() {
            if !self.choice.has(&rule.name) {
                continue;
            }
            let Some(route) = rule.applies(facets) else { continue };
            let list = if rule.is_shadow { &mut asks.shadow } else { &mut asks.live };
            // Written where it stays: keys are large to move.
            list.push(Ask { rule: index, key: KeyBytes::new(), cost: 0 });
            let Some(ask) = list.last_mut() else { continue };
            let found = rule.write_key(facets, route, &mut ask.key);
            let is_found = found == Found::Whole;
            let is_key_on = |own: &List, all: &List| {
                let has_keys = is_found && (own.has_keys() || all.has_keys());
                let has = |key: &[u8]| own.has_key(key) || all.has_key(key);
                has_keys && has(&rule.listed_key(&ask.key))
            };
            let end = if rule.deny.has_client_of(facets) || is_key_on(&rule.deny, &shared.deny) {
                Some(Outcome::Listed)
            } else if found == Found::Unclear && (rule.deny.has_keys() || shared.deny.has_keys()) {
                // It may be one of those.
                Some(Outcome::Unclear)
            } else if is_exempt
                || rule.allow.exempts_client_of(facets)
                || (is_key_on(&rule.allow, &shared.allow) && !facets.is_address_forged())
            {
                Some(Outcome::Exempt)
            } else {
                without_key(found, rule.missing)
            };
            let Some(end) = end else {
                if !is_found {
                    ask.key = KeyBytes::from_slice(&rule.shared_key);
                }
                ask.cost = rule.cost(facets);
                continue;
            };
            if !is_found {
                ask.key.clear();
            }
            let key = list.pop().map(|ask| ask.key).unwrap_or_default();
            if end.is_refusal() && !rule.is_shadow {
                return Err(Box::new(Stop { rule: Some(index), key, outcome: end }));
            }
            judge.pass(rule, &key, end);
        }
        Ok(())
    }

    /// Whose deny list has the client's network, if it is refused for that. It needs no key, so
    /// it is asked first, and nobody reads a body of such a client.
    pub(crate) fn network_denier(&self, rules: &RuleSet, facets: &Facets<'_>) -> Option<Denier> {
        if self.shared.deny.has_client_of(facets) {
            return Some(Denier::Guard);
        }
        let denies = |rule: &Ready| {
            !rule.is_shadow
                && rule.deny.has_client_of(facets)
                && self.choice.has(&rule.name)
                && rule.is_about(facets).is_some()
        };
        rules.rules.iter().position(denies).map(Denier::Rule)
    }

    /// Records that the guard is switched off.
    fn pass_all(&self, judge: &Judge<'_>, facets: &Facets<'_>) {
        if judge.is_watched() {
            let applies = |rule: &&Ready| self.choice.has(&rule.name) && rule.is_about(facets).is_some();
            for rule in judge.rules.rules.iter().filter(applies) {
                judge.pass(rule, &[], Outcome::Off);
            }
        }
    }
}

/// A request that the deny list of a rule refuses by its client's network.
fn stop_by_network(rules: &RuleSet, index: usize, facets: &Facets<'_>) -> Stop {
    let (rule, mut key) = (&rules.rules[index], KeyBytes::new());
    if let Some(route) = rule.applies(facets)
        && rule.write_key(facets, route, &mut key) != Found::Whole
    {
        key.clear();
    }
    Stop { rule: Some(index), key, outcome: Outcome::Listed }
}

/// What becomes of a request by its key alone; none if it is asked for, under its own key or
/// the one that is shared.
fn without_key(found: Found, missing: Missing) -> Option<Outcome> {
    match (found, missing) {
        (Found::Whole, _) | (Found::Missing, Missing::Share) => None,
        (Found::Missing, Missing::Skip) => Some(Outcome::Skipped),
        (Found::Missing, Missing::Refuse) => Some(Outcome::Incomplete),
        // Skipped would be what a client gains by it.
        (Found::Unclear, Missing::Share | Missing::Skip) => None,
        (Found::Unclear, Missing::Refuse) => Some(Outcome::Unclear),
    }
}

fn client_key(facets: &Facets<'_>) -> KeyBytes {
    let text = facets.client().map(|client| format!("ip:{client}")).unwrap_or_default();
    KeyBytes::from_slice(text.as_bytes())
}
