//! A rule as users write it: plain data. It is checked, whole, when it is put in force
//! ([`compile`](crate::rules::compile)).

use crate::limiter::GateOptions;
use crate::rules::facts::Facts;
use crate::rules::key::{KeyError, KeyExpr};
use crate::{Limit, LimitError};
use std::fmt;
use std::sync::Arc;

/// Which requests are limited, by which limits and under which key.
///
/// ```
/// use tidegate::rules::{Missing, Rule};
///
/// let checkout = Rule::new("checkout", "1000/s burst 1s wait 1s")
///     .on("POST /goods/{id}/order")
///     .by("number(path:2)");
/// let by_key = Rule::new("api", "100/s")
///     .limit("10000/h")                    // both are charged, or none
///     .by("header:x-api-key")
///     .missing(Missing::Refuse)
///     .cost_from("query:count", 50);
/// # let _ = (checkout, by_key);
/// ```
///
/// A rule without [`on`](Self::on) and [`when`](Self::when) applies to every request.
/// [`by`](Self::by) is required: `'everyone'` is one allowance for all.
#[derive(Clone)]
#[must_use = "give it to `GuardBuilder::rule` or `RulesBuilder::rule`"]
pub struct Rule {
    pub(crate) name: String,
    pub(crate) limits: Vec<Result<Limit, LimitError>>,
    pub(crate) on: Vec<String>,
    /// Entries that a request must have, by name and value.
    pub(crate) when: Vec<(String, String)>,
    pub(crate) key: Option<Result<KeyExpr, KeyError>>,
    pub(crate) cost: RuleCost<String>,
    pub(crate) missing: Missing,
    pub(crate) is_shadow: bool,
    pub(crate) shows_keys: bool,
    pub(crate) allow: Listed,
    pub(crate) deny: Listed,
    pub(crate) options: GateOptions,
}

/// A list as it was written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    pub(crate) networks: Vec<String>,
    pub(crate) keys: Vec<Vec<u8>>,
}

/// What a request costs: `P` is the part of the request that says so, as text or parsed.
#[derive(Clone)]
pub(crate) enum RuleCost<P> {
    Units(u64),
    Part { part: P, max: u64 },
    Custom(CostOf),
}

/// A function that computes what a request costs.
pub(crate) type CostOf = Arc<dyn Fn(&dyn Facts) -> u64 + Send + Sync>;

/// What happens to a request that lacks a fact which the rule's key needs.
///
/// An ambiguous fact (there twice, or longer than the bound) leads to no alternative of the key and
/// skips no rule: such requests share the allowance, or are refused by [`Refuse`](Self::Refuse) and
/// where keys are on a deny list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// All such requests share one allowance, under a key of their own.
    #[default]
    Share,
    /// The rule does not apply, unless the fact is ambiguous.
    Skip,
    /// The request is refused, as a bad request (400; gRPC `INVALID_ARGUMENT`).
    Refuse,
}

impl Rule {
    /// A rule by its name, which is also the name of its gate in the limiter: 1 to 60
    /// letters, digits or any of `._-:/`.
    pub fn new<L: TryInto<Limit, Error: Into<LimitError>>>(name: &str, limit: L) -> Self {
        Self { limits: vec![limit.try_into().map_err(Into::into)], ..Self::without_limits(name) }
    }

    /// A rule to which limits are to be added.
    pub(crate) fn without_limits(name: &str) -> Self {
        Self {
            name: name.into(),
            limits: Vec::new(),
            on: Vec::new(),
            when: Vec::new(),
            key: None,
            cost: RuleCost::Units(1),
            missing: Missing::default(),
            is_shadow: false,
            shows_keys: false,
            allow: Listed::default(),
            deny: Listed::default(),
            options: GateOptions::new(),
        }
    }

    /// Adds another limit on the same key; all are charged or none. Its gate is `name/2`, then
    /// `name/3`.
    pub fn limit<L: TryInto<Limit, Error: Into<LimitError>>>(mut self, limit: L) -> Self {
        self.limits.push(limit.try_into().map_err(Into::into));
        self
    }

    /// Applies to requests of this method and path pattern, as in `POST /goods/{id}/order`,
    /// `/files/{*rest}` or `POST`; without a method or a pattern, to any. `GET` includes `HEAD`, which
    /// routers send to the handler of GET. With several calls, any of them.
    ///
    /// The pattern is compared with the path as received and with the normalised one
    /// ([`RequestPath::normalized`](crate::rules::RequestPath::normalized)), and a trailing slash does
    /// not count, so that no other way to write a path evades the rule.
    ///
    /// A pattern that could never match is an error when the rules are built: a method that is not
    /// registered (`PSOT`; write one of your own as `extension:FETCH`), a segment in another router's
    /// grammar (`:id`, `<id>`), an empty one, `.` and `..`.
    pub fn on(mut self, pattern: &str) -> Self {
        self.on.push(pattern.into());
        self
    }

    /// Applies to requests whose entry of this name has this value: an entry is a value that a front
    /// end knows under a name, such as a part of a descriptor (see [`Facts::entry`]). With several
    /// calls, all of them. An entry that is missing or ambiguous has no value.
    ///
    /// ```
    /// # use tidegate::rules::Rule;
    /// let rule = Rule::new("pro", "1000/min").when("plan", "pro").by("user");
    /// ```
    pub fn when(mut self, entry: &str, value: &str) -> Self {
        self.when.push((entry.into(), value.into()));
        self
    }

    /// The key, as text or as a [`KeyExpr`]: requests with the same key share an allowance. Required.
    pub fn by<K: TryInto<KeyExpr, Error: Into<KeyError>>>(mut self, key: K) -> Self {
        self.key = Some(key.try_into().map_err(Into::into));
        self
    }

    /// What happens if a part of the key is missing. Default: [`Missing::Share`].
    pub fn missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }

    /// What a request costs. Default: 1. A cost of 0, or of more than a limit of the rule can ever
    /// allow, is an error when the rules are built.
    pub fn cost(mut self, units: u64) -> Self {
        self.cost = RuleCost::Units(units);
        self
    }

    /// A request costs the value of this part (`header:…`, `query:…`, `json:…` or `entry:…`), from 1
    /// to `max`. If the part is missing, 1. If it is not a number, is there twice, or could not be
    /// read (a query or body that is too long, a body that is not JSON, no
    /// [`JsonLayer`](crate::http::JsonLayer)), `max`.
    pub fn cost_from(mut self, part: &str, max: u64) -> Self {
        self.cost = RuleCost::Part { part: part.into(), max };
        self
    }

    /// A request costs what this function returns. A cost of 0 takes nothing.
    pub fn cost_with(mut self, cost: impl Fn(&dyn Facts) -> u64 + Send + Sync + 'static) -> Self {
        self.cost = RuleCost::Custom(Arc::new(cost));
        self
    }

    /// Puts the rule in shadow: it decides and records, but lets every request through. It is decided
    /// after the rules in force have let a request through, and on its own, so that it refuses and
    /// delays no request. With a remote store all rules in shadow together take one more round trip
    /// before the service runs.
    pub fn shadow(mut self) -> Self {
        self.is_shadow = true;
        self
    }

    /// Keys of this rule are no secret, neither to clients nor to operators. It is one switch for
    /// everything that shows keys:
    ///
    /// | | default | with `show_keys` |
    /// |---|---|---|
    /// | clients: `detail`, `grpc-message` | no key, and no mention of a deny list | the key, and that it is on a deny list |
    /// | clients: `RateLimit` | no `pk` | the key as `pk` |
    /// | log, [`Record`](crate::rules::Record), [`Refused::key`](crate::http::Refused::key), names of keys in Redis | values of `header:`, `cookie:` and `secret(…)` by their SHA-256 | all values as they are |
    ///
    /// Keys with such values start afresh when it is switched.
    pub fn show_keys(mut self) -> Self {
        self.shows_keys = true;
        self
    }

    /// The rule does not apply to clients in these networks. A network that is narrower than what a
    /// client is counted by (one IPv6 address of a /64) stands for that client. A client with a
    /// private address written as a translated one (`64:ff9b::10.0.0.1`) is never exempt, by network
    /// or by key: no translator makes it, so the client has chosen it.
    pub fn allow_networks<N: Into<String>>(mut self, networks: impl IntoIterator<Item = N>) -> Self {
        self.allow.networks.extend(networks.into_iter().map(Into::into));
        self
    }

    /// The rule does not apply to these keys, written as the log has them (`user:42`). A secret may be
    /// there whole (`header:x-api-key=k1`) or by its digest, whether the rule shows its keys or not. A
    /// text that can be no key of the rule is an error when the rules are built.
    pub fn allow_keys<K: Into<Vec<u8>>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.allow.keys.extend(keys.into_iter().map(Into::into));
        self
    }

    /// Requests of clients in these networks are refused (over HTTP: 403) without a check in the store, before
    /// other rules are decided or a body is read. A client on both lists is refused.
    pub fn deny_networks<N: Into<String>>(mut self, networks: impl IntoIterator<Item = N>) -> Self {
        self.deny.networks.extend(networks.into_iter().map(Into::into));
        self
    }

    /// Requests of these keys are refused (over HTTP: 403) without a check in the store.
    pub fn deny_keys<K: Into<Vec<u8>>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.deny.keys.extend(keys.into_iter().map(Into::into));
        self
    }

    /// Options of the rule's gates: tables of their own, what happens to untracked keys, what happens
    /// while Redis is away. They take effect when the rule is new.
    pub fn options(mut self, options: GateOptions) -> Self {
        self.options = options;
        self
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Rule");
        out.field("name", &self.name).field("limits", &self.limits).field("on", &self.on);
        out.field("by", &self.key).field("missing", &self.missing).field("shadow", &self.is_shadow);
        out.finish_non_exhaustive()
    }
}
