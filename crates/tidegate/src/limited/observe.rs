//! What becomes of the calls of limited functions, for an observer of metrics and for the log.
//!
//! The log (target `tidegate::limited`) gets what was let through at TRACE, and refusals at
//! INFO, a few each second for each limit of a function.

use super::FunctionLimit;
use crate::decision::{Decision, Denial};
use crate::explain::Numbers;
use crate::gate::Gate;
use crate::key::Key;
use crate::refusal::Refusal;
use std::sync::OnceLock;
use std::time::Duration;

/// Refusals that are logged in a second, for each limit of a function.
const LOGGED_EACH_SECOND: u32 = 10;

static OBSERVER: OnceLock<Box<dyn CallObserver>> = OnceLock::new();

/// Sees every call of a function under `#[limited]`: where metrics are counted.
///
/// It runs on the call's thread: count and return. Names of gates are few; keys come from
/// callers, so they make no label.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tidegate::{CallObserver, Refusal, limited, observe_calls};
///
/// static REFUSED: AtomicU64 = AtomicU64::new(0);
///
/// struct Count;
///
/// impl CallObserver for Count {
///     fn refused(&self, refusal: &Refusal) {
///         if refusal.gate() == "export" {
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
/// observe_calls(Count)?;
/// assert!(export().is_ok() && export().is_err());
/// assert_eq!(REFUSED.load(Ordering::Relaxed), 1);
/// # Ok::<(), tidegate::AlreadyObserved>(())
/// ```
pub trait CallObserver: Send + Sync + 'static {
    /// This gate has let a call run, after this wait: once for each limit of the function.
    fn allowed(&self, gate: &str, decision: &Decision, wait: Duration) {
        let _ = (gate, decision, wait);
    }

    /// A call was refused: once, by the limit that binds.
    fn refused(&self, refusal: &Refusal) {
        let _ = refusal;
    }
}

/// Makes this the observer of all calls of functions under `#[limited]`, once in a process.
///
/// # Errors
/// If there is one already.
pub fn observe_calls(observer: impl CallObserver) -> Result<(), AlreadyObserved> {
    OBSERVER.set(Box::new(observer)).map_err(|_| AlreadyObserved)
}

/// Says that the process has a [`CallObserver`] already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("calls have an observer already: let one of them tell the other")]
#[non_exhaustive]
pub struct AlreadyObserved;

/// True if calls that were let through are observed or logged.
#[inline]
pub(super) fn is_observed() -> bool {
    OBSERVER.get().is_some() || tracing::enabled!(target: "tidegate::limited", tracing::Level::TRACE)
}

#[cold]
pub(super) fn allowed(gate: &Gate, key: &[u8], decision: &Decision, wait: Duration) {
    if let Some(observer) = OBSERVER.get() {
        observer.allowed(gate.name(), decision, wait);
    }
    if !tracing::enabled!(target: "tidegate::limited", tracing::Level::TRACE) {
        return;
    }
    let (name, key, limit) = (gate.name(), Key::new(key).to_string(), gate.limit());
    tracing::trace!(
        target: "tidegate::limited",
        gate = name,
        key,
        outcome = if wait.is_zero() { "allowed" } else { "waited" },
        limit = %limit,
        remaining = decision.remaining(),
        degraded = decision.is_degraded(),
        wait_ms = wait.as_millis() as u64,
        "allowed by `{name}`{}{key}: {}",
        if key.is_empty() { "" } else { " for " },
        Numbers { limit: &limit, decision }
    );
}

#[cold]
pub(super) fn refused(limit: &FunctionLimit, gate: &Gate, refusal: Refusal) -> Refusal {
    if let Some(observer) = OBSERVER.get() {
        observer.refused(&refusal);
    }
    if !tracing::enabled!(target: "tidegate::limited", tracing::Level::INFO) {
        return refusal;
    }
    let Some(suppressed) = limit.sampler.admit(gate.clock().now(), LOGGED_EACH_SECOND) else {
        return refusal;
    };
    let decision = refusal.decision();
    let outcome = match decision.denial() {
        Some(Denial::Unavailable(_) | Denial::Full) => "unavailable",
        Some(Denial::Unidentified) => "incomplete",
        _ => "denied",
    };
    tracing::info!(
        target: "tidegate::limited",
        gate = refusal.gate(),
        key = refusal.key(),
        outcome,
        limit = %refusal.limit(),
        remaining = decision.remaining(),
        degraded = decision.is_degraded(),
        retry_after_ms = refusal.retry_after().map(|after| after.as_millis() as u64),
        suppressed,
        "{refusal}"
    );
    refusal
}
