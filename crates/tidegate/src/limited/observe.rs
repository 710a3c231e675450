//! What becomes of the calls of limited functions, for the process's observer and for the log:
//! the records, fields and target are those of rules.

use super::FunctionLimit;
use crate::decision::Decision;
use crate::gate::Gate;
use crate::rules::observe::{self, Observer};
use crate::rules::{Outcome, Record};
use std::sync::OnceLock;
use std::time::Duration;

/// Refusals that are logged in a second, for each limit of a function.
const LOGGED_EACH_SECOND: u32 = 10;

static OBSERVER: OnceLock<Box<dyn Observer>> = OnceLock::new();

/// Hands the records of all calls of functions under `#[limited]` to this observer, once in a
/// process: one record for each limit of the function. Its rule and its policy are the gate's name.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tidegate::rules::{Observer, Record};
/// use tidegate::{Refusal, limited, observe_calls};
///
/// static REFUSED: AtomicU64 = AtomicU64::new(0);
///
/// struct Metrics;
///
/// impl Observer for Metrics {
///     fn verdict(&self, record: &Record<'_>) {
///         if record.rule() == "export" && record.outcome().is_refusal() {
///             REFUSED.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// #[limited("1/day", name = "export")]
/// fn export() -> Result<(), Refusal> {
///     Ok(())
/// }
///
/// observe_calls(Metrics)?;
/// assert!(export().is_ok() && export().is_err());
/// assert_eq!(REFUSED.load(Ordering::Relaxed), 1);
/// # Ok::<(), tidegate::AlreadyObserved>(())
/// ```
///
/// # Errors
/// If there is one already.
pub fn observe_calls(observer: impl Observer) -> Result<(), AlreadyObserved> {
    OBSERVER.set(Box::new(observer)).map_err(|_| AlreadyObserved)
}

/// The process's calls have an [`Observer`] already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("calls have an observer already: let that one pass its records on")]
#[non_exhaustive]
pub struct AlreadyObserved;

/// True if calls that were let through are observed or logged.
#[inline]
pub(super) fn is_observed() -> bool {
    OBSERVER.get().is_some() || observe::is_traced()
}

impl FunctionLimit {
    /// Records what became of a call: what the limit has decided about its key, or what the callers
    /// in the key have settled without the limit.
    #[cold]
    pub(super) fn record(
        &self,
        gate: &Gate,
        outcome: Outcome,
        decided: Option<(&[u8], Decision)>,
        wait: Duration,
    ) {
        let (limit, key) = (gate.limit(), decided.map(|(key, _)| key));
        let record = Record {
            limit: decided.is_some().then_some(&limit),
            decision: decided.map(|(_, decision)| decision),
            outcome,
            wait,
            expr: self.resolved().callers.as_ref(),
            ..Record::new(gate.name(), key.unwrap_or_default())
        };
        if let Some(observer) = OBSERVER.get() {
            observer.verdict(&record);
        }
        observe::log(&record, &self.sampler, LOGGED_EACH_SECOND, || gate.clock().now());
    }
}
