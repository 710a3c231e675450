//! A guard, which users build and share: rules, how HTTP requests are read, and how they are
//! answered.
//!
//! It decides nothing itself: [`Rules`] do.

use crate::caller::Caller;
use crate::http::client_ip::ClientIp;
use crate::http::extension::Decided;
use crate::http::facts::{FactSources, RequestFacts, warn_once};
use crate::http::future::{Admission, AdmissionResult};
use crate::http::json::layer::JsonLayer;
use crate::http::layer::GuardLayer;
use crate::http::response::fields::Fields;
use crate::http::response::headers::Headers;
use crate::http::response::{self, Render, ResponseForm, grpc, problem};
use crate::limiter::Limiter;
use crate::pending::Pending;
use crate::rules::{Record, Rule, Rules, RulesBuilder, RulesError, Ruling};
use bytes::Bytes;
use http::{Extensions, Request, Response};
use smallvec::SmallVec;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Rules over a limiter, and how HTTP requests are answered. Cheap to clone; clones are the
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
/// # Ok::<(), tidegate::rules::RulesError>(())
/// ```
///
/// All rules that apply to a request are charged, or none. A guard that is layered twice
/// around one service charges twice: use [`only`](Self::only) and [`except`](Self::except) to
/// give each layer its own rules.
#[derive(Clone)]
pub struct Guard {
    pub(crate) rules: Rules,
    pub(crate) options: Arc<HttpOptions>,
}

/// How requests are read and answered.
pub struct HttpOptions {
    pub(crate) sources: FactSources,
    pub(crate) headers: Headers,
    pub(crate) render: Box<dyn Render>,
    has_decided_extension: bool,
    serves_grpc: bool,
    scopes_callers: bool,
    /// Whether it was logged that a preflight was refused.
    is_warned_of_preflights: AtomicBool,
}

impl Guard {
    /// Begins a guard over this limiter.
    #[expect(clippy::new_ret_no_self, reason = "a guard without rules guards nothing")]
    pub fn new(limiter: &Limiter) -> GuardBuilder {
        let options = HttpOptions {
            sources: FactSources::default(),
            headers: Headers::standard(),
            render: Box::new(problem),
            has_decided_extension: false,
            serves_grpc: false,
            scopes_callers: true,
            is_warned_of_preflights: AtomicBool::new(false),
        };
        GuardBuilder::over(limiter, options)
    }

    /// The tower layer.
    pub fn layer(&self) -> GuardLayer {
        GuardLayer { guard: self.clone() }
    }

    /// The layer that reads JSON bodies for rules with `json:` parts. It goes outside of
    /// [`layer`](Self::layer).
    pub fn json_layer(&self) -> JsonLayer {
        JsonLayer::new(self.clone())
    }

    /// The rules: switched off and on, their figures, and for other front ends.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Puts other rules in force: [`Rules::replace`].
    ///
    /// # Errors
    /// As [`Rules::replace`].
    pub fn replace(&self, rules: impl IntoIterator<Item = Rule>) -> Result<(), RulesError> {
        self.rules.replace(rules)
    }

    /// This guard with only these of its rules, for one route. The state is shared.
    ///
    /// # Errors
    /// If there is no rule of such a name, or none is named.
    pub fn only<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<Self, RulesError> {
        Ok(Self { rules: self.rules.only(names)?, options: self.options.clone() })
    }

    /// This guard without these of its rules. The state is shared.
    ///
    /// # Errors
    /// If there is no rule of such a name.
    pub fn except<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<Self, RulesError> {
        Ok(Self { rules: self.rules.except(names)?, options: self.options.clone() })
    }

    pub(crate) fn facts<'a, B>(&'a self, request: &'a Request<B>) -> RequestFacts<'a> {
        RequestFacts::new(request, &self.options.sources)
    }

    /// Decides a request.
    #[inline]
    pub(crate) fn decide(&self, facts: &RequestFacts<'_>) -> Pending<AdmissionResult> {
        let allowed = |record: Record<'_>| self.admission(std::slice::from_ref(&record), Duration::ZERO);
        let ruling = match self.rules.allow_or_decide(facts, allowed) {
            Ok(admission) => return Pending::ready(Ok(admission)),
            Err(ruling) => ruling,
        };
        let form = self.response_form(facts);
        match ruling.try_ready() {
            Ok(ruling) => Pending::ready(self.admit(ruling, form)),
            Err(pending) => {
                let guard = self.clone();
                Pending::new(async move { guard.admit(pending.await, form) })
            }
        }
    }

    /// The caller, for the service; an empty one if `caller_scope` is off.
    #[inline]
    pub(crate) fn caller(&self, facts: &RequestFacts<'_>) -> Caller {
        if !self.options.scopes_callers {
            return Caller::default();
        }
        Caller { client: facts.caller_client(), user: facts.caller_user().cloned() }
    }

    /// The form of a refusal of this request. A client can choose gRPC only where the guard has
    /// [`grpc`](GuardBuilder::grpc): these responses bypass the renderer, and have status 200.
    fn response_form(&self, facts: &RequestFacts<'_>) -> ResponseForm {
        let grpc_type = if self.options.serves_grpc { grpc::response_type(facts) } else { None };
        match grpc_type {
            Some(content_type) => ResponseForm::Grpc(content_type),
            None if facts.is_preflight() => ResponseForm::Preflight,
            None => ResponseForm::Http,
        }
    }

    fn admit(&self, ruling: Ruling, form: ResponseForm) -> AdmissionResult {
        if !ruling.is_allowed() {
            return Err(self.refuse(&ruling, form));
        }
        let records: SmallVec<[Record<'_>; 2]> = ruling.records().collect();
        let admission = self.admission(&records, ruling.wait());
        drop(records);
        Ok(Admission { permits: ruling.into_permits(), ..admission })
    }

    /// What a request that may go on carries, but for its permits.
    #[inline]
    fn admission(&self, records: &[Record<'_>], wait: Duration) -> Admission {
        let fields = Fields::of(&self.options.headers, records);
        let is_asked = self.options.has_decided_extension;
        let decided = is_asked.then(|| Box::new(Decided::of(records, wait)));
        Admission { fields, decided, permits: Vec::new() }
    }

    #[cold]
    pub(crate) fn refuse(&self, ruling: &Ruling, form: ResponseForm) -> Box<Response<Bytes>> {
        let options = &*self.options;
        if form == ResponseForm::Preflight && !options.sources.passes_preflights {
            // A browser displays it as a CORS error, which does not point to a limit.
            warn_once(
                &options.is_warned_of_preflights,
                "a CORS preflight was refused, which a browser displays as a CORS error: put the CORS layer outside of \
                 the guard, so that it answers preflights itself, or write `.pass_preflights()` if handlers answer them",
            );
        }
        Box::new(response::whole(options, ruling, form))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// Collects what a [`Guard`] is made of: rules as for [`Rules`], and how HTTP requests are read and
/// answered. Everything is checked by `build`.
pub type GuardBuilder = RulesBuilder<HttpOptions>;

impl GuardBuilder {
    /// How the client's address is found. Default: it is the peer's.
    pub fn client_ip(mut self, client_ip: ClientIp) -> Self {
        self.front.sources.client_ip = client_ip;
        self
    }

    /// Where the peer's address is, if not a [`Peer`](crate::http::Peer) or axum's
    /// `ConnectInfo` in the request's extensions: for tonic, its `TcpConnectInfo`.
    pub fn peer(mut self, find: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.front.sources.peer = Some(Arc::new(find));
        self
    }

    /// An entry of each request, for [`Rule::when`] and for keys by `entry:name`; the function
    /// returns `None` where it is missing. Use it for values that other layers have put into the
    /// request's extensions, such as the plan of a signed-in user, and for what only the
    /// application can read.
    ///
    /// ```
    /// use tidegate::http::Guard;
    /// use tidegate::rules::Rule;
    ///
    /// #[derive(Clone)]
    /// struct Account {
    ///     plan: String,
    /// }
    ///
    /// let limiter = tidegate::Limiter::new();
    /// let guard = Guard::new(&limiter)
    ///     .entry("plan", |facts| facts.extensions().get().map(|account: &Account| account.plan.clone()))
    ///     .rule(Rule::new("by-plan", "1000/s").by("entry:plan"))
    ///     .build()?;
    /// # Ok::<(), tidegate::rules::RulesError>(())
    /// ```
    pub fn entry(
        mut self,
        name: &str,
        find: impl Fn(&RequestFacts<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.front.sources.entries.push((name.into(), Box::new(find)));
        self
    }

    /// Which header fields responses carry. Default: [`Headers::standard`].
    pub fn headers(mut self, headers: Headers) -> Self {
        self.front.headers = headers;
        self
    }

    /// The service behind speaks gRPC: gRPC requests are refused with a gRPC status instead of an
    /// HTTP one. Default: off, so that a client cannot choose a refusal that has status 200 and
    /// bypasses [`render`](Self::render).
    ///
    /// gRPC is POST over HTTP/2 with the content type `application/grpc`, gRPC-Web is POST
    /// with `application/grpc-web` or `application/grpc-web-text`; each alone or followed by
    /// `+` or `;`. Use another guard for routes that do not speak gRPC: there, too, such a request
    /// would be refused with a gRPC status.
    pub fn grpc(mut self) -> Self {
        self.front.serves_grpc = true;
        self
    }

    /// Renders refusals. Default: as `application/problem+json`.
    pub fn render(mut self, render: impl Render) -> Self {
        self.front.render = Box::new(render);
        self
    }

    /// Puts the decisions into the request's extensions as [`Decided`](crate::http::Decided), for
    /// handlers. Default: off, because it takes an allocation.
    pub fn decided_extension(mut self) -> Self {
        self.front.has_decided_extension = true;
        self
    }

    /// Lets CORS preflights through (`OPTIONS` with `Origin` and `Access-Control-Request-Method`)
    /// without a charge. Only rules that name the method (`.on("OPTIONS")`) and `deny_networks` of
    /// the guard apply to them.
    ///
    /// Use it only for services whose handlers answer preflights themselves: where a CORS layer is
    /// outside of the guard, no preflight reaches it. Default: off, because any client can send a
    /// request like that: a handler that runs for any method would then run without limits.
    pub fn pass_preflights(mut self) -> Self {
        self.front.sources.passes_preflights = true;
        self
    }

    /// Whether the service runs within [`Caller::scope`], so that functions deep inside
    /// can be limited by client or user. Default: true.
    pub fn caller_scope(mut self, scope: bool) -> Self {
        self.front.scopes_callers = scope;
        self
    }

    /// The guard.
    ///
    /// # Errors
    /// If a rule is wrong: the error names it, what is wrong, and what to write instead.
    pub fn build(self) -> Result<Guard, RulesError> {
        let client_ip = self.front.sources.client_ip.clone();
        let (rules, options) = self.client_text(move |text| client_ip.is_client(text)).put_in_force()?;
        Ok(Guard { rules, options: Arc::new(options) })
    }
}
