//! A denial as an error, and the sentence that explains it.

use crate::Limit;
use crate::decision::{Decision, DecisionOutcome, DenialReason};
use crate::explain::Explanation;
use crate::gate::Gate;
use crate::key::Key;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A denial as an error, for functions that return `Result`.
///
/// ```
/// let limiter = tidegate::Limiter::new();
/// let gate = limiter.gate("export", "1/day")?;
/// gate.reserve("ann").into_permit()?;
/// let refusal = gate.reserve("ann").into_permit().unwrap_err();
/// assert!(refusal.to_string().starts_with("denied by `export` for ann: 1/day, 0 left, free again in "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Refusal {
    // Boxed, so that a `Result` with it stays small.
    denied: Box<DeniedCheck>,
}

#[derive(Clone, Debug)]
struct DeniedCheck {
    gate: String,
    key: String,
    limit: Limit,
    decision: Decision,
    because: Option<Arc<dyn Error + Send + Sync>>,
}

impl Refusal {
    /// A denied [`Decision`] of this gate on this key.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock, Refusal};
    /// # let limiter = Limiter::builder().clock(ManualClock::new()).build();
    /// let gate = limiter.gate("checkout", "1000/s burst 1")?;
    /// assert!(gate.check("user:42").is_allowed());
    /// let refusal = Refusal::new(&gate, "user:42", gate.check("user:42"));
    /// assert_eq!(
    ///     refusal.to_string(),
    ///     "denied by `checkout` for user:42: 1000/s burst 1, 0 left, free again in 1 ms"
    /// );
    /// # Ok::<(), tidegate::GateError>(())
    /// ```
    pub fn new<K: AsRef<[u8]> + ?Sized>(gate: &Gate, key: &K, decision: Decision) -> Self {
        Self::of(gate, Key::new(key).to_string(), gate.limit(), decision)
    }

    /// The refusal of a call at this gate, which limits by caller, by an unknown caller:
    /// [`Denial::Unidentified`](crate::Denial::Unidentified).
    pub fn unidentified(gate: &Gate) -> Self {
        let (limit, outcome) = (gate.limit(), DecisionOutcome::Deny(DenialReason::Unidentified));
        let decision = Decision { outcome, ..Decision::not_checked(&limit) };
        Self::of(gate, String::new(), limit, decision)
    }

    pub(crate) fn of(gate: &Gate, key: String, limit: Limit, decision: Decision) -> Self {
        let denied = DeniedCheck { gate: gate.name().into(), key, limit, decision, because: None };
        Self { denied: Box::new(denied) }
    }

    /// The same refusal with a [`source`](Error::source): why nothing better could be done for the
    /// caller, such as deferring the call.
    #[must_use]
    pub fn because(mut self, reason: impl Error + Send + Sync + 'static) -> Self {
        self.denied.because = Some(Arc::new(reason));
        self
    }

    /// The name of the gate that refused.
    pub fn gate(&self) -> &str {
        &self.denied.gate
    }

    /// The key that it refused, printable and bounded, as [`Key`] displays it; empty where
    /// it is not known.
    pub fn key(&self) -> &str {
        &self.denied.key
    }

    /// Its limit.
    pub fn limit(&self) -> &Limit {
        &self.denied.limit
    }

    /// Its decision.
    pub fn decision(&self) -> &Decision {
        &self.denied.decision
    }

    /// The time after which the call would fit, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.denied.decision.retry_after()
    }

    /// The sentence for a client outside: without the key, which may be confidential.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock, Refusal};
    /// # let limiter = Limiter::builder().clock(ManualClock::new()).build();
    /// # let gate = limiter.gate("checkout", "1000/s burst 1")?;
    /// # assert!(gate.check("user:42").is_allowed());
    /// let refusal = Refusal::new(&gate, "user:42", gate.check("user:42"));
    /// assert_eq!(
    ///     refusal.for_client().to_string(),
    ///     "denied by `checkout`: 1000/s burst 1, 0 left, free again in 1 ms"
    /// );
    /// # Ok::<(), tidegate::GateError>(())
    /// ```
    pub fn for_client(&self) -> impl fmt::Display {
        let mut public = self.clone();
        public.denied.key.clear();
        public
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeniedCheck { gate, key, limit, decision, .. } = &*self.denied;
        write!(f, "denied by `{gate}`")?;
        if !key.is_empty() {
            write!(f, " for {key}")?;
        }
        write!(f, ": {}", Explanation { limit, decision })
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.denied.because.as_deref().map(|reason| reason as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Check, Limiter, ManualClock, Refusal};
    use std::error::Error as _;

    #[test]
    fn a_refusal_of_several_names_the_key_that_binds() {
        let limiter = Limiter::builder().clock(ManualClock::new()).build();
        let calls = limiter.gate("calls", "10/s").unwrap();
        let tokens = limiter.gate("tokens", "5/min").unwrap();
        let checks = [Check::new(&calls, "ip:203.0.113.9"), Check::new(&tokens, "user:42").cost(6)];
        let verdict = limiter.reserve(&checks);
        assert_eq!((verdict.bound_by(), verdict.key()), ("tokens", "user:42"));
        let refusal = limiter.acquire(&checks).blocking().into_permit().unwrap_err();
        assert_eq!((refusal.gate(), refusal.key()), ("tokens", "user:42"));
    }

    #[test]
    fn a_refusal_shows_no_more_of_a_hostile_key_than_fits_a_line() {
        let limiter = Limiter::new();
        let gate = limiter.gate("login", "1/day").unwrap();
        let key = "\n".repeat(10_000);
        assert!(gate.check(&key).is_allowed());
        let text = Refusal::new(&gate, &key, gate.check(&key)).to_string();
        assert!(text.len() < 400 && !text.contains('\n'), "{text}");
    }

    #[test]
    fn a_reason_is_the_source_and_not_in_the_sentence() {
        let limiter = Limiter::new();
        let gate = limiter.gate("ship", "1/day").unwrap();
        let refusal = Refusal::unidentified(&gate);
        assert!(refusal.source().is_none());
        let text = refusal.to_string();
        let refusal = refusal.because(std::io::Error::other("the disk is full"));
        assert_eq!(refusal.to_string(), text);
        assert_eq!(refusal.clone().source().unwrap().to_string(), "the disk is full");
    }

    #[test]
    fn an_unknown_caller_reads_that_nobody_knows_them() {
        let limiter = Limiter::new();
        let gate = limiter.gate("export", "1/day").unwrap();
        let text = Refusal::unidentified(&gate).to_string();
        assert_eq!(text, "denied by `export`: 1/day, the caller is not known");
    }
}
