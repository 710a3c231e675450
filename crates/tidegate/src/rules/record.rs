//! One rule's verdict on one request, and the sentence that explains it.

use crate::Limit;
use crate::decision::{Decision, Denial};
use crate::explain::{Explanation, Span};
use crate::key::Key;
use crate::rules::quota::Quota;
use std::fmt;
use std::time::Duration;

/// The outcome of a request by one policy of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Let through and charged.
    Allowed,
    /// Let through and charged, after a wait.
    Waited,
    /// Only of a rule in [shadow](crate::rules::Rule::shadow): all slots are taken, and the request
    /// would be queued. Whether a slot would come free in time is not known, because a rule in shadow
    /// does not queue.
    Queued,
    /// Refused: the allowance is used up.
    Denied,
    /// Refused, and not by the client's fault: the store did not respond or has no room for
    /// another key, and the rule then denies.
    Unavailable,
    /// This rule would have let it through, but another one refused: nothing was charged.
    NotCharged,
    /// Refused: on a deny list.
    Listed,
    /// Not decided: on an allow list.
    Exempt,
    /// Not decided: a part of the key is missing, and the rule skips such requests.
    Skipped,
    /// Refused: a part of the key is missing, and the rule refuses such requests.
    Incomplete,
    /// Refused: a part of the key is ambiguous (there twice, too long or not readable), and the rule
    /// refuses such requests, or has a list of denied keys on which it could be.
    Ambiguous,
    /// Refused: the rule needs a field of the body, which did not come in time (see
    /// [`JsonLayer::body_timeout`](crate::http::JsonLayer::body_timeout)).
    SlowBody,
    /// Not decided: the rules are switched off.
    Off,
}

impl Outcome {
    /// One word for metrics, always the same: `allowed`, `waited`, `queued`, `denied`,
    /// `unavailable`, `not_charged`, `listed`, `exempt`, `skipped`, `incomplete`, `ambiguous`,
    /// `slow_body`, `off`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Waited => "waited",
            Self::Queued => "queued",
            Self::Denied => "denied",
            Self::Unavailable => "unavailable",
            Self::NotCharged => "not_charged",
            Self::Listed => "listed",
            Self::Exempt => "exempt",
            Self::Skipped => "skipped",
            Self::Incomplete => "incomplete",
            Self::Ambiguous => "ambiguous",
            Self::SlowBody => "slow_body",
            Self::Off => "off",
        }
    }

    /// True if a rule in force refuses the request with this outcome.
    pub fn is_refusal(self) -> bool {
        match self {
            Self::Denied
            | Self::Unavailable
            | Self::Listed
            | Self::Incomplete
            | Self::Ambiguous
            | Self::SlowBody => true,
            Self::Allowed
            | Self::Waited
            | Self::Queued
            | Self::NotCharged
            | Self::Exempt
            | Self::Skipped
            | Self::Off => false,
        }
    }

    pub(crate) fn of_denied(decision: &Decision) -> Self {
        match decision.denial() {
            Some(Denial::Unavailable(_) | Denial::Full) => Self::Unavailable,
            Some(Denial::Unidentified) => Self::Incomplete,
            // Another rule has refused before this one was decided.
            Some(Denial::Busy) if !decision.is_checked() => Self::NotCharged,
            Some(_) => Self::Denied,
            None => Self::NotCharged,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One rule's verdict on one request. Its text is the sentence that explains it to an
/// operator: ``denied by `checkout` for user:42: 1000/s, 0 left, free again in 320 ms``.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub(crate) rule: &'a str,
    pub(crate) policy: &'a str,
    pub(crate) key: Option<Key<'a>>,
    pub(crate) limit: Option<&'a Limit>,
    pub(crate) quota: Option<&'a Quota>,
    pub(crate) decision: Option<Decision>,
    pub(crate) outcome: Outcome,
    pub(crate) is_shadow: bool,
    /// True if clients may see the key.
    pub(crate) shows_keys: bool,
    pub(crate) wait: Duration,
    pub(crate) took: Duration,
    /// The key as an expression, where it could not be found.
    pub(crate) expr: Option<&'a crate::rules::KeyExpr>,
}

impl<'a> Record<'a> {
    #[inline]
    pub(crate) fn new(rule: &'a str, key: &'a [u8]) -> Self {
        Self {
            rule,
            policy: rule,
            key: (!key.is_empty()).then(|| Key::new(key)),
            limit: None,
            quota: None,
            decision: None,
            outcome: Outcome::NotCharged,
            is_shadow: false,
            shows_keys: false,
            wait: Duration::ZERO,
            took: Duration::ZERO,
            expr: None,
        }
    }

    /// The rule's name; empty for the lists of all rules.
    pub fn rule(&self) -> &'a str {
        self.rule
    }

    /// The name of the rule's limit: the rule's name, and for a second limit `name/2`.
    pub fn policy(&self) -> &'a str {
        self.policy
    }

    /// The key, if it was found, as the store has it: values of headers and cookies by their digest,
    /// unless the rule [shows its keys](crate::rules::Rule::show_keys).
    pub fn key(&self) -> Option<Key<'a>> {
        self.key
    }

    /// The limit, where it was decided.
    pub fn limit(&self) -> Option<&'a Limit> {
        self.limit
    }

    /// The limit as front ends state it to clients: so many units in so many seconds.
    pub fn quota(&self) -> Option<&'a Quota> {
        self.quota
    }

    /// True if clients may see the key.
    pub fn shows_key(&self) -> bool {
        self.shows_keys
    }

    /// The store's decision, if there was one.
    pub fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// The outcome of the request by this rule.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// True if the rule is in shadow: whatever the outcome, it did not refuse the request.
    pub fn is_shadow(&self) -> bool {
        self.is_shadow
    }

    /// How long the request waited for its start.
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// How long deciding took, the wait included, on the limiter's clock. Zero unless the
    /// guard has an [`Observer`](crate::rules::Observer).
    pub fn took(&self) -> Duration {
        self.took
    }

    /// True if the store did not respond, and the rule's fallback decided.
    pub fn is_degraded(&self) -> bool {
        self.decision.as_ref().is_some_and(Decision::is_degraded)
    }
}

/// The reader of a sentence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Operator,
    /// Gets neither the key nor that there are lists.
    Client,
}

impl fmt::Display for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, Reader::Operator)
    }
}

impl Record<'_> {
    /// The sentence for a client: without the key, and without mention of lists, unless the rule
    /// [shows its keys](crate::rules::Rule::show_keys).
    pub fn for_client(&self) -> impl fmt::Display {
        let reader = if self.shows_keys { Reader::Operator } else { Reader::Client };
        fmt::from_fn(move |f| self.write(f, reader))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, reader: Reader) -> fmt::Result {
        let (would, verb) = match self.outcome {
            Outcome::Allowed | Outcome::Waited => (self.is_shadow, "allowed"),
            Outcome::Queued => (true, "queued"),
            Outcome::Denied | Outcome::Unavailable | Outcome::Listed => (self.is_shadow, "denied"),
            Outcome::Incomplete | Outcome::Ambiguous | Outcome::SlowBody => (self.is_shadow, "refused"),
            Outcome::NotCharged => (false, "not charged"),
            Outcome::Exempt => (false, "exempt"),
            Outcome::Skipped => (false, "skipped"),
            Outcome::Off => (false, "let through"),
        };
        f.write_str(if would { "would be " } else { "" })?;
        f.write_str(verb)?;
        match self.policy {
            "" => f.write_str(" by the guard")?,
            policy => write!(f, " by `{policy}`")?,
        }
        if let Some(key) = self.key.filter(|_| reader == Reader::Operator) {
            write!(f, " for {key}")?;
        }
        if self.outcome == Outcome::Waited {
            write!(f, " after {}", Span(self.wait))?;
        }
        f.write_str(": ")?;
        match self.outcome {
            Outcome::Listed if reader == Reader::Client => f.write_str("the request is not allowed"),
            Outcome::Listed => f.write_str("on a deny list"),
            Outcome::Exempt => f.write_str("on an allow list"),
            Outcome::NotCharged => f.write_str("another rule refused"),
            Outcome::Off => f.write_str("the rules are switched off"),
            Outcome::SlowBody => f.write_str("the request's body did not come in time"),
            Outcome::Skipped | Outcome::Incomplete | Outcome::Ambiguous => {
                let clearly = if self.outcome == Outcome::Ambiguous { "clearly " } else { "" };
                write!(f, "the request does not {clearly}say ")?;
                self.expr.map_or(Ok(()), |expr| write!(f, "{expr}"))
            }
            Outcome::Allowed | Outcome::Waited | Outcome::Queued | Outcome::Denied | Outcome::Unavailable => {
                self.numbers(f)
            }
        }
    }

    fn numbers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(limit), Some(decision)) = (self.limit, &self.decision) else { return Ok(()) };
        write!(f, "{}", Explanation { limit, decision })
    }
}
