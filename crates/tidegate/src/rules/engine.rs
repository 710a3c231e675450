//! Rules over a limiter, which users build, share between front ends, and change live.
//!
//! How a request is decided is in [`decide`](crate::rules::decide).

use crate::caller::Client;
use crate::clock::Timestamp;
use crate::limiter::Limiter;
use crate::rules::compile;
use crate::rules::error::RulesError;
use crate::rules::list::List;
use crate::rules::matched::{RulesStats, Traffic};
use crate::rules::observe::{self, Observer};
use crate::rules::rule::{Listed, Rule};
use crate::rules::rule_set::{CompiledRule, RuleSet};
use crate::rules::ruling::Ruling;
use crate::rules::validate::{self, ClientText};
use crate::sampler::Sampler;
use crate::sync::lock;
use arc_swap::ArcSwap;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Rules over a limiter. Cheap to clone; clones are the same rules.
///
/// A front end hands the [`Facts`](crate::rules::Facts) of a request to
/// [`decide`](Self::decide), and renders the [`Ruling`]. All rules that apply are charged, or
/// none.
#[derive(Clone)]
pub struct Rules {
    pub(crate) engine: Arc<Engine>,
    pub(crate) choice: Choice,
}

/// What all clones share.
pub(crate) struct Engine {
    pub(crate) limiter: Limiter,
    pub(crate) set: ArcSwap<RuleSet>,
    /// The names that [`Rules::only`] and [`Rules::except`] were called with. Locked while rules are
    /// replaced.
    chosen: Mutex<BTreeSet<Box<str>>>,
    /// Rules that were replaced while requests used them.
    retired: Mutex<Vec<Arc<RuleSet>>>,
    observer: Option<Box<dyn Observer>>,
    /// Samples the log lines about the lists of all rules.
    sampler: Sampler,
    logged_each_second: u32,
    is_off: AtomicBool,
    pub(crate) waiting: AtomicUsize,
    pub(crate) waiting_max: usize,
    pub(crate) allow: List,
    pub(crate) deny: List,
    pub(crate) traffic: Traffic,
    client_text: Box<ClientText>,
}

/// Which of the rules apply.
#[derive(Clone)]
pub(crate) enum Choice {
    All,
    Only(Arc<[Box<str>]>),
    Except(Arc<[Box<str>]>),
}

impl Choice {
    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|own| **own == *name),
            Self::Except(names) => !names.iter().any(|own| **own == *name),
        }
    }
}

impl Rules {
    /// Begins rules over this limiter.
    #[expect(clippy::new_ret_no_self, reason = "without rules there is nothing to decide")]
    pub fn new(limiter: &Limiter) -> RulesBuilder {
        RulesBuilder::over(limiter, ())
    }

    /// Puts other rules in force, all at once. Rules that stay keep what their keys have
    /// used, also under another limit. Everything is checked before anything changes: after an error
    /// no limit has changed, and none had changed in between. Requests that wait already go on under
    /// the old rules.
    ///
    /// Rules made by [`only`](Self::only) look up their names for each request: where a rule is gone,
    /// one rule less applies, down to none. The log has a warning.
    ///
    /// # Errors
    /// As [`RulesBuilder::build`]; and if a concurrency limit would become a rate, or the
    /// other way round, under the same name. If other code defines a gate of a new rule's name with
    /// another limit at the same moment, that is an error, too, and nothing changes.
    pub fn replace(&self, rules: impl IntoIterator<Item = Rule>) -> Result<(), RulesError> {
        let engine = &*self.engine;
        // One at a time.
        let chosen = lock(&engine.chosen);
        let old = engine.set.load_full();
        let drafts = compile::parse(rules.into_iter().collect(), &*engine.client_text)?;
        let new = compile::put_in_force(&engine.limiter, drafts, Some(&old))?;
        new.warn_of_idle_keys("allow_keys", &engine.allow, &*engine.client_text);
        new.warn_of_idle_keys("deny_keys", &engine.deny, &*engine.client_text);
        for gone in chosen.iter().filter(|name| old.get(name).is_some() && new.get(name).is_none()) {
            tracing::warn!(
                target: "tidegate::rules",
                rule = &**gone,
                "the rule `{gone}` is gone, but layers were made for it by name: in those with `only` one rule less applies"
            );
        }
        engine.set.store(Arc::new(new));
        engine.traffic.look_again();
        engine.retire(old);
        Ok(())
    }

    /// Only these of the rules, for one route. The state is shared.
    ///
    /// # Errors
    /// If there is no rule of such a name, or none is named.
    pub fn only<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<Self, RulesError> {
        let names = self.choose(names)?;
        if names.is_empty() {
            let what = "`only` without a name limits nothing; write for example `only([\"checkout\"])`";
            return Err(RulesError::new(what));
        }
        Ok(Self { engine: self.engine.clone(), choice: Choice::Only(names) })
    }

    /// All but these of the rules. The state is shared.
    ///
    /// # Errors
    /// If there is no rule of such a name.
    pub fn except<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<Self, RulesError> {
        Ok(Self { engine: self.engine.clone(), choice: Choice::Except(self.choose(names)?) })
    }

    fn choose<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Arc<[Box<str>]>, RulesError> {
        let set = self.engine.set.load();
        let check = |name: N| match set.get(name.as_ref()) {
            Some(rule) => Ok(rule.name.clone()),
            None => {
                let name = crate::Key::new(name.as_ref()).to_string();
                let what = format!("there is no rule `{name}`; there are `{}`", self.names().join("`, `"));
                Err(RulesError::new(what))
            }
        };
        let names: Arc<[Box<str>]> = names.into_iter().map(check).collect::<Result<_, _>>()?;
        lock(&self.engine.chosen).extend(names.iter().cloned());
        Ok(names)
    }

    /// The names of the rules in force.
    pub fn names(&self) -> Vec<String> {
        self.engine.set.load().rules.iter().map(|rule| rule.name.to_string()).collect()
    }

    /// Lets every request through from now on, recorded as [`Outcome::Off`](crate::rules::Outcome).
    pub fn switch_off(&self) {
        self.engine.is_off.store(true, Ordering::Relaxed);
    }

    /// Limits again.
    pub fn switch_on(&self) {
        self.engine.is_off.store(false, Ordering::Relaxed);
    }

    /// True if the rules are in force.
    pub fn is_on(&self) -> bool {
        !self.engine.is_off.load(Ordering::Relaxed)
    }

    /// Figures as of now, including which rules have matched no request.
    ///
    /// ```
    /// # use tidegate::rules::{Rule, Rules};
    /// # let limiter = tidegate::Limiter::new();
    /// let order = Rule::new("order", "10/s").on("POST /goods/{id}/order").by("user else ip");
    /// let rules = Rules::new(&limiter).rule(order).build()?;
    /// // no request has come yet
    /// assert_eq!(rules.stats().unmatched().collect::<Vec<_>>(), ["order"]);
    /// # Ok::<(), tidegate::rules::RulesError>(())
    /// ```
    ///
    /// Such a rule is logged once, after an hour of requests (WARN).
    pub fn stats(&self) -> RulesStats {
        let (engine, set) = (&*self.engine, self.engine.set.load());
        let rules = set.rules.iter().map(|rule| rule.matched.stats(&rule.name, &engine.traffic)).collect();
        RulesStats { waiting: engine.waiting.load(Ordering::Relaxed), rules }
    }

    /// The limiter that holds the state.
    pub fn limiter(&self) -> &Limiter {
        &self.engine.limiter
    }
}

impl Engine {
    /// The time at which deciding begins, if there is an observer, which gets how long it takes.
    pub(crate) fn started(&self) -> Option<Timestamp> {
        self.observer.is_some().then(|| self.limiter.clock().now())
    }

    /// Frees rules that were replaced once no request uses them: whoever replaces rules next, if not
    /// this one. Freeing ten thousand takes milliseconds, for which no request should be late.
    fn retire(&self, old: Arc<RuleSet>) {
        let mut retired = lock(&self.retired);
        retired.push(old);
        retired.retain(|set| Arc::strong_count(set) > 1);
    }

    /// True if an observer or the log records requests that were let through.
    pub(crate) fn is_watched(&self) -> bool {
        self.observer.is_some() || observe::is_traced()
    }

    /// True if there are lists for all rules.
    pub(crate) fn has_lists(&self) -> bool {
        !self.allow.is_empty() || !self.deny.is_empty()
    }

    /// Hands the records of a ruling to the observer and the log.
    pub(crate) fn record(&self, ruling: &mut Ruling) {
        let is_watched = self.is_watched();
        if ruling.is_allowed && !is_watched && !ruling.has_shadow_refusal() {
            return;
        }
        let now = || self.limiter.clock().now();
        if let Some(started) = ruling.started {
            ruling.took = now().since(started);
        }
        for applied in &ruling.applied {
            let sampler = ruling.rule_of(applied).map_or(&self.sampler, |rule| &rule.sampler);
            for record in ruling.records_of(applied) {
                if let Some(observer) = &self.observer {
                    observer.verdict(&record);
                }
                observe::log(&record, sampler, self.logged_each_second, now);
            }
        }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("names", &self.names()).field("is_on", &self.is_on()).finish()
    }
}

/// Collects what [`Rules`] are made of. Everything is checked by [`build`](Self::build).
#[must_use = "a builder does nothing until `build`"]
pub struct RulesBuilder<F = ()> {
    /// Without rules and lists.
    engine: Engine,
    rules: Vec<Rule>,
    allow: Listed,
    deny: Listed,
    /// What a front end needs besides the rules.
    pub(crate) front: F,
}

impl<F> RulesBuilder<F> {
    pub(crate) fn over(limiter: &Limiter, front: F) -> Self {
        let engine = Engine {
            limiter: limiter.clone(),
            set: ArcSwap::from_pointee(RuleSet::new(Vec::new())),
            chosen: Mutex::default(),
            retired: Mutex::default(),
            observer: None,
            sampler: Sampler::default(),
            logged_each_second: 10,
            is_off: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            waiting_max: 10_000,
            allow: List::default(),
            deny: List::default(),
            traffic: Traffic::default(),
            client_text: Box::new(|text| {
                let address = text.split_once('/').map_or(text, |(address, _)| address);
                address.parse().is_ok_and(|ip| Client::new(ip).to_string() == text)
            }),
        };
        Self { engine, rules: Vec::new(), allow: Listed::default(), deny: Listed::default(), front }
    }

    /// Adds a rule.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Sets the observer, which gets every verdict.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.engine.observer = Some(Box::new(observer));
        self
    }

    /// How many refusals of each rule are logged in a second at most. The next line has the number of
    /// those that were left out. Default: 10.
    pub fn log_refusals(mut self, each_second: u32) -> Self {
        self.engine.logged_each_second = each_second;
        self
    }

    /// How many requests may wait at the same time. Beyond that, requests are decided without
    /// waiting: a request that would have to wait is refused, with the time until a retry. Default:
    /// 10,000.
    pub fn max_waiting(mut self, requests: usize) -> Self {
        self.engine.waiting_max = requests;
        self
    }

    /// No rule applies to clients in these networks.
    pub fn allow_networks<N: Into<String>>(mut self, networks: impl IntoIterator<Item = N>) -> Self {
        self.allow.networks.extend(networks.into_iter().map(Into::into));
        self
    }

    /// No rule applies to these keys, written as in [`Rule::allow_keys`].
    pub fn allow_keys<K: Into<Vec<u8>>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.allow.keys.extend(keys.into_iter().map(Into::into));
        self
    }

    /// Clients in these networks are refused (403 over HTTP), whichever rules apply.
    pub fn deny_networks<N: Into<String>>(mut self, networks: impl IntoIterator<Item = N>) -> Self {
        self.deny.networks.extend(networks.into_iter().map(Into::into));
        self
    }

    /// These keys are refused (403 over HTTP) by every rule that finds them.
    pub fn deny_keys<K: Into<Vec<u8>>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.deny.keys.extend(keys.into_iter().map(Into::into));
        self
    }

    /// How the front end writes clients, so that keys on lists can be checked.
    #[cfg(feature = "tower")]
    pub(crate) fn client_text(mut self, is_client: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.engine.client_text = Box::new(is_client);
        self
    }

    /// The rules, in force, and what the front end needs besides.
    pub(crate) fn put_in_force(self) -> Result<(Rules, F), RulesError> {
        let Self { mut engine, rules, allow, deny, front } = self;
        let list = |listed: &Listed| List::parse(listed).map_err(|error| RulesError::new(error.to_string()));
        (engine.allow, engine.deny) = (list(&allow)?, list(&deny)?);
        let drafts = compile::parse(rules, &*engine.client_text)?;
        let parsed: Vec<&CompiledRule> = drafts.iter().map(|draft| &draft.rule).collect();
        let checked = validate::check_lists(&allow, &deny, &parsed, &*engine.client_text);
        checked.map_err(RulesError::new)?;
        engine.set.store(Arc::new(compile::put_in_force(&engine.limiter, drafts, None)?));
        Ok((Rules { engine: Arc::new(engine), choice: Choice::All }, front))
    }
}

impl RulesBuilder {
    /// The rules, in force.
    ///
    /// # Errors
    /// If a rule is wrong: the error names it, what is wrong, and what to write instead.
    pub fn build(self) -> Result<Rules, RulesError> {
        Ok(self.put_in_force()?.0)
    }
}

impl<F> fmt::Debug for RulesBuilder<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulesBuilder").field("rules", &self.rules).finish_non_exhaustive()
    }
}
