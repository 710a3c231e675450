//! The receivers of verdicts: an observer for metrics, and the log.
//!
//! The observer gets every verdict. The log has requests that were let through at TRACE, and
//! refusals at INFO, at most so many a second for each rule, so that many requests do not make many
//! lines.

use crate::clock::Timestamp;
use crate::rules::record::Record;
use crate::sampler::Sampler;
use tracing::Level;

/// Gets every verdict, for metrics.
///
/// It is called while a request is decided: count and return. The names of rules come from the
/// operator and are few. Keys come from clients and are unbounded, so do not use them as labels.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tidegate::rules::{Observer, Record};
///
/// #[derive(Default)]
/// struct Refusals(AtomicU64);
///
/// impl Observer for Refusals {
///     fn verdict(&self, record: &Record<'_>) {
///         if record.outcome().is_refusal() && !record.is_shadow() {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// A rule has decided this about a request.
    fn verdict(&self, record: &Record<'_>) {
        let _ = record;
    }
}

/// One line of the log: the fields of every line, and those that this one adds.
macro_rules! event_line {
    ($level:ident, $record:ident, $($name:ident = $value:expr),*) => {
        tracing::$level!(
            target: "tidegate::rules",
            rule = $record.rule,
            policy = $record.policy,
            key = $record.key.map(tracing::field::display),
            outcome = $record.outcome.as_str(),
            shadow = $record.is_shadow,
            limit = $record.limit.map(tracing::field::display),
            remaining = $record.decision.map(|decision| decision.remaining()),
            degraded = $record.is_degraded(),
            $($name = $value,)*
            "{}",
            $record
        )
    };
}

/// True if requests that were let through are logged.
pub(crate) fn is_traced() -> bool {
    tracing::enabled!(target: "tidegate::rules", Level::TRACE)
}

/// Logs a verdict: at TRACE, and a refusal at INFO, unless there were too many in this second.
pub(crate) fn log(record: &Record<'_>, sampler: &Sampler, each_second: u32, now: impl Fn() -> Timestamp) {
    if !record.outcome.is_refusal() {
        event_line!(trace, record, wait_ms = record.wait.as_millis() as u64);
    } else if tracing::enabled!(target: "tidegate::rules", Level::INFO)
        && let Some(suppressed) = sampler.admit(now(), each_second)
    {
        let retry_after = record.decision.and_then(|decision| decision.retry_after());
        let retry_after_ms = retry_after.map(|after| after.as_millis() as u64);
        event_line!(info, record, retry_after_ms = retry_after_ms, suppressed = suppressed);
    }
}
