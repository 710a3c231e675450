//! What a user builds and shares: a limiter, rules, and how refusals are answered.

use crate::caller::{Caller, Client, User};
use crate::clock::Timestamp;
use crate::http::client_ip::ClientIp;
use crate::http::facts::{ClientFinder, Facets};
use crate::http::json::layer::JsonLayer;
use crate::http::layer::GuardLayer;
use crate::http::response::headers::Headers;
use crate::http::response::{Render, problem};
use crate::limiter::Limiter;
use crate::rules::error::GuardError;
use crate::rules::list::List;
use crate::rules::matched::GuardStats;
use crate::rules::observe::Observer;
use crate::rules::rule::{Listed, Rule};
use crate::rules::rule_set::{RuleSet, list};
use crate::rules::validate;
use crate::sampler::Sampler;
use arc_swap::ArcSwap;
use http::Extensions;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Rules over a limiter, and how refusals are answered. Cheap to clone; clones are the
/// same guard.
///
/// ```
/// use tidegate::Limiter;
/// use tidegate::http::Guard;
/// use tidegate::rules::Rule;
///
/// let limiter = Limiter::new();
/// let guard = Guard::new(&limiter)
///     .rule(Rule::new("checkout", "1000/s burst 1s wait 1s").on("POST /goods/{id}/order").by("number(path:2)"))
///     .rule(Rule::new("per-user", "5/s").by("user else ip"))
///     .build()?;
/// let layer = guard.layer(); // for a tower service or an axum router
///
/// // later, live: what keys have used stays used
/// guard.replace([Rule::new("per-user", "50/s").by("user else ip")])?;
/// # Ok::<(), tidegate::rules::GuardError>(())
/// ```
///
/// All rules that apply to a request are charged, or none. A guard that is layered twice
/// around one service charges twice: use [`only`](Self::only) and
/// [`except`](Self::except) to give each place its rules.
#[derive(Clone)]
pub struct Guard {
    pub(crate) shared: Arc<Shared>,
    pub(crate) choice: Choice,
}

/// What all clones share.
pub(crate) struct Shared {
    pub(crate) limiter: Limiter,
    pub(crate) rules: ArcSwap<RuleSet>,
    /// How often the rules were replaced.
    pub(crate) version: AtomicU64,
    /// Held by whoever replaces the rules: the names that [`Guard::only`] and
    /// [`Guard::except`] were asked for.
    chosen: Mutex<BTreeSet<Box<str>>>,
    pub(crate) finder: ClientFinder,
    pub(crate) headers: Headers,
    pub(crate) render: Box<dyn Render>,
    pub(crate) observer: Option<Box<dyn Observer>>,
    pub(crate) sampler: Sampler,
    pub(crate) logged_each_second: u32,
    pub(crate) is_off: AtomicBool,
    pub(crate) waiting: AtomicUsize,
    pub(crate) waiting_max: usize,
    pub(crate) allow: List,
    pub(crate) deny: List,
    /// Whether most of the above is not there: what the short way needs to know.
    pub(crate) is_plain: bool,
    pub(crate) tells_handlers: bool,
    pub(crate) serves_grpc: bool,
    pub(crate) passes_preflights: bool,
    /// Whether it was said that a preflight was refused.
    is_warned_of_preflights: AtomicBool,
    scopes_callers: bool,
}

impl Shared {
    /// When judging begins, if an observer wants to know how long it takes.
    #[inline]
    pub(crate) fn started(&self) -> Option<Timestamp> {
        self.observer.is_some().then(|| self.limiter.clock().now())
    }

    /// Who calls, for the service; nobody known if it does not want to know.
    #[inline(always)]
    pub(crate) fn caller<'a>(
        &self,
        client: impl FnOnce() -> Option<Client>,
        user: impl FnOnce() -> Option<&'a User>,
    ) -> Caller {
        if !self.scopes_callers {
            return Caller::default();
        }
        Caller { client: client(), user: user().cloned() }
    }

    pub(crate) fn caller_of(&self, facets: &Facets<'_>) -> Caller {
        self.caller(|| facets.client(), || facets.user())
    }

    /// Says, once, that a preflight was refused: a browser shows it as a fault of CORS, and
    /// nobody looks for a limit there.
    #[cold]
    pub(crate) fn warn_of_preflight(&self) {
        if !self.passes_preflights && !self.is_warned_of_preflights.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "tidegate::guard",
                "a CORS preflight was refused, which a browser shows as a CORS error: put the CORS layer outside of \
                 the guard, so that it answers preflights itself, or write `.pass_preflights()` if handlers answer them"
            );
        }
    }
}

/// Which of the rules a guard asks.
#[derive(Clone)]
pub(crate) enum Choice {
    All,
    Only(Arc<[Box<str>]>),
    Except(Arc<[Box<str>]>),
}

impl Choice {
    #[inline]
    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|own| **own == *name),
            Self::Except(names) => !names.iter().any(|own| **own == *name),
        }
    }
}

impl Guard {
    /// Begins a guard over this limiter.
    #[expect(clippy::new_ret_no_self, reason = "a guard without rules guards nothing")]
    pub fn new(limiter: &Limiter) -> GuardBuilder {
        GuardBuilder {
            limiter: limiter.clone(),
            rules: Vec::new(),
            finder: ClientFinder::default(),
            headers: Headers::standard(),
            render: Box::new(problem),
            observer: None,
            logged_each_second: 10,
            waiting_max: 10_000,
            allow: Listed::default(),
            deny: Listed::default(),
            tells_handlers: false,
            serves_grpc: false,
            passes_preflights: false,
            scopes_callers: true,
        }
    }

    /// The tower layer.
    pub fn layer(&self) -> GuardLayer {
        GuardLayer::new(self.clone())
    }

    /// The layer that reads JSON bodies for rules with `json:` parts. It goes outside of
    /// [`layer`](Self::layer).
    pub fn json_layer(&self) -> JsonLayer {
        JsonLayer::new(self.clone())
    }

    /// Puts other rules in force, all at once. Rules that stay keep what their keys have
    /// used, also under another limit. Everything is checked before anything changes: without
    /// success no limit was another one, not even for a moment. Whoever waits already goes on
    /// under the rules as they were.
    ///
    /// A layer made by [`only`](Self::only) asks the rules that have its names now: where one
    /// is gone, it asks one rule less, down to none. The log is warned of it.
    ///
    /// # Errors
    /// As [`GuardBuilder::build`]; and if a concurrency limit would become a rate, or the
    /// other way round, under the same name. A gate of a new rule's name that somebody else
    /// defines with another limit at the same moment is an error, too, and changes nothing.
    pub fn replace(&self, rules: impl IntoIterator<Item = Rule>) -> Result<(), GuardError> {
        // One at a time.
        let chosen = self.shared.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = rules.into_iter().collect();
        let old = self.shared.rules.load_full();
        let client_ip = &self.shared.finder.client_ip;
        let new = RuleSet::replace(&self.shared.limiter, rules, Some(&old), client_ip)?;
        new.warn_of_idle_keys("allow_keys", &self.shared.allow, client_ip);
        new.warn_of_idle_keys("deny_keys", &self.shared.deny, client_ip);
        for gone in chosen.iter().filter(|name| old.has(name) && !new.has(name)) {
            tracing::warn!(
                target: "tidegate::guard",
                rule = &**gone,
                "the rule `{gone}` is gone, but layers were made for it by name: those with `only` ask one rule less"
            );
        }
        self.shared.rules.store(Arc::new(new));
        self.shared.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// This guard with only these of its rules, for one route. The state is shared.
    ///
    /// # Errors
    /// If there is no rule of such a name, or none is named.
    pub fn only<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<Self, GuardError> {
        let names = self.names(names)?;
        if names.is_empty() {
            let what = "`only` without a name guards nothing; write for example `guard.only([\"checkout\"])`";
            return Err(GuardError::new(what));
        }
        Ok(Self { shared: self.shared.clone(), choice: Choice::Only(names) })
    }

    /// This guard without these of its rules. The state is shared.
    ///
    /// # Errors
    /// If there is no rule of such a name.
    pub fn except<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<Self, GuardError> {
        Ok(Self { shared: self.shared.clone(), choice: Choice::Except(self.names(names)?) })
    }

    fn names<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Arc<[Box<str>]>, GuardError> {
        let known = self.rules();
        let check = |name: N| match known.iter().any(|known| known == name.as_ref()) {
            true => Ok(name.as_ref().into()),
            false => {
                let name = crate::Key::new(name.as_ref()).to_string();
                Err(GuardError::new(format!("there is no rule `{name}`; there are `{}`", known.join("`, `"))))
            }
        };
        let names: Arc<[Box<str>]> = names.into_iter().map(check).collect::<Result<_, _>>()?;
        let mut chosen = self.shared.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.extend(names.iter().cloned());
        Ok(names)
    }

    /// The names of the rules in force.
    pub fn rules(&self) -> Vec<String> {
        self.shared.rules.load().rules.iter().map(|rule| rule.name.to_string()).collect()
    }

    /// Lets everything through from now on, recorded as [`Outcome::Off`](crate::rules::Outcome).
    pub fn switch_off(&self) {
        self.shared.is_off.store(true, Ordering::Relaxed);
    }

    /// Guards again.
    pub fn switch_on(&self) {
        self.shared.is_off.store(false, Ordering::Relaxed);
    }

    /// True if it guards.
    pub fn is_on(&self) -> bool {
        !self.shared.is_off.load(Ordering::Relaxed)
    }

    /// Figures as of now, among them which rules have matched no request.
    ///
    /// ```
    /// # use tidegate::http::Guard;
    /// # use tidegate::rules::Rule;
    /// # let limiter = tidegate::Limiter::new();
    /// let order = Rule::new("order", "10/s").on("POST /goods/{id}/order").by("user else ip");
    /// let guard = Guard::new(&limiter).rule(order).build()?;
    /// // no request has come yet
    /// assert_eq!(guard.stats().unmatched().collect::<Vec<_>>(), ["order"]);
    /// # Ok::<(), tidegate::rules::GuardError>(())
    /// ```
    ///
    /// Such a rule is logged once, after an hour of requests (WARN).
    pub fn stats(&self) -> GuardStats {
        let rules = self.shared.rules.load();
        let rules = rules.rules.iter().map(|rule| rule.matched.stats(&rule.name)).collect();
        GuardStats { waiting: self.waiting(), rules }
    }

    /// Requests that wait for their start now.
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// The limiter that holds the state.
    pub fn limiter(&self) -> &Limiter {
        &self.shared.limiter
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("rules", &self.rules()).field("is_on", &self.is_on()).finish()
    }
}

/// Collects what a [`Guard`] is made of. Everything is checked by
/// [`build`](Self::build).
#[must_use = "a builder does nothing until `build`"]
pub struct GuardBuilder {
    limiter: Limiter,
    rules: Vec<Rule>,
    finder: ClientFinder,
    headers: Headers,
    render: Box<dyn Render>,
    observer: Option<Box<dyn Observer>>,
    logged_each_second: u32,
    waiting_max: usize,
    allow: Listed,
    deny: Listed,
    tells_handlers: bool,
    serves_grpc: bool,
    passes_preflights: bool,
    scopes_callers: bool,
}

impl GuardBuilder {
    /// One rule more.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// How the client's address is found; the peer's unless said.
    pub fn client_ip(mut self, client_ip: ClientIp) -> Self {
        self.finder.client_ip = client_ip;
        self
    }

    /// Where the peer's address is, if not a [`Peer`](crate::http::Peer) or axum's
    /// `ConnectInfo` in the request's extensions: for tonic, its `TcpConnectInfo`.
    pub fn peer(mut self, find: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.finder.peer = Some(Arc::new(find));
        self
    }

    /// Which header fields answers carry; [`Headers::standard`] unless said.
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// The service behind speaks gRPC: gRPC requests are refused by a gRPC status instead of
    /// an HTTP one. Off unless said, so that a client cannot choose a refusal that says 200
    /// and goes past [`render`](Self::render).
    ///
    /// gRPC is POST over HTTP/2 with the content type `application/grpc`, gRPC-Web is POST
    /// with `application/grpc-web` or `application/grpc-web-text`; each alone or followed by
    /// `+` or `;`. Routes that do not speak gRPC want another guard: there, too, whoever sends
    /// such a request would be refused by a gRPC status.
    pub fn grpc(mut self) -> Self {
        self.serves_grpc = true;
        self
    }

    /// How refusals are answered; as `application/problem+json` unless said.
    pub fn render(mut self, render: impl Render) -> Self {
        self.render = Box::new(render);
        self
    }

    /// Told about every verdict.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// How many refusals of each rule are logged in a second at most; 10 unless said. The
    /// next line says how many were left out.
    pub fn log_refusals(mut self, each_second: u32) -> Self {
        self.logged_each_second = each_second;
        self
    }

    /// How many requests may wait at the same time; 10,000 unless said. Beyond that,
    /// requests are decided without waiting: whoever would have to wait is refused, and
    /// told when to come back.
    pub fn max_waiting(mut self, requests: usize) -> Self {
        self.waiting_max = requests;
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

    /// Clients in these networks are refused (403), whatever the rules say.
    pub fn deny_networks<N: Into<String>>(mut self, networks: impl IntoIterator<Item = N>) -> Self {
        self.deny.networks.extend(networks.into_iter().map(Into::into));
        self
    }

    /// These keys are refused (403) by any rule that finds them.
    pub fn deny_keys<K: Into<Vec<u8>>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.deny.keys.extend(keys.into_iter().map(Into::into));
        self
    }

    /// Puts what was decided into the request's extensions as
    /// [`Decided`](crate::http::Decided), for handlers. It takes an allocation, so it is off
    /// unless said.
    pub fn tell_handlers(mut self) -> Self {
        self.tells_handlers = true;
        self
    }

    /// Lets CORS preflights through (`OPTIONS` with `Origin` and `Access-Control-Request-Method`),
    /// uncounted, but by rules that name the method (`.on("OPTIONS")`), and unless the client is
    /// in `deny_networks`.
    ///
    /// Only for services whose handlers answer preflights themselves: where a CORS layer is
    /// outside of the guard, none gets here. Off unless said, because anybody can send a
    /// request that looks like one: a handler that runs for any method would then run without
    /// limits.
    pub fn pass_preflights(mut self) -> Self {
        self.passes_preflights = true;
        self
    }

    /// Whether the service runs within [`Caller::scope`], so that functions deep inside
    /// can be limited by client or user; true unless said.
    pub fn caller_scope(mut self, scope: bool) -> Self {
        self.scopes_callers = scope;
        self
    }

    /// The guard.
    ///
    /// # Errors
    /// If a rule is wrong: it says which, what, and what to write instead.
    pub fn build(self) -> Result<Guard, GuardError> {
        let listed = |listed: &Listed| list(listed).map_err(GuardError::new);
        let (allow, deny) = (listed(&self.allow)?, listed(&self.deny)?);
        let client_ip = &self.finder.client_ip;
        validate::check_lists(&self.rules, &self.allow, &self.deny, client_ip)?;
        let rules = RuleSet::replace(&self.limiter, self.rules, None, client_ip)?;
        let has_lists = !allow.is_empty() || !deny.is_empty();
        let is_watched = self.tells_handlers || self.observer.is_some();
        let shared = Shared {
            is_plain: !has_lists && !is_watched && self.headers.are_plain(),
            limiter: self.limiter,
            rules: ArcSwap::from_pointee(rules),
            version: AtomicU64::new(0),
            chosen: Mutex::default(),
            finder: self.finder,
            headers: self.headers,
            render: self.render,
            observer: self.observer,
            sampler: Sampler::default(),
            logged_each_second: self.logged_each_second,
            is_off: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            waiting_max: self.waiting_max,
            allow,
            deny,
            tells_handlers: self.tells_handlers,
            serves_grpc: self.serves_grpc,
            passes_preflights: self.passes_preflights,
            is_warned_of_preflights: AtomicBool::new(false),
            scopes_callers: self.scopes_callers,
        };
        Ok(Guard { shared: Arc::new(shared), choice: Choice::All })
    }
}

impl fmt::Debug for GuardBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardBuilder").field("rules", &self.rules).finish_non_exhaustive()
    }
}
