//! Who gets the verdicts: an observer for metrics, and the log.
//!
//! The observer gets every verdict. The log gets what was let through at TRACE, and
//! refusals at INFO, at most so many a second for each rule: a flood of requests is no
//! flood of lines.

use crate::clock::Timestamp;
use crate::rules::record::Record;
use crate::sampler::Sampler;
use tracing::Level;

/// Gets every verdict: where metrics are counted.
///
/// It is called on the request's path: count and return. Rules' names are an operator's
/// words and few; keys come from clients, so no label for them.
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
    /// A rule has said this of a request.
    fn verdict(&self, record: &Record<'_>) {
        let _ = record;
    }
}

/// One line of the log: what every line says, and what this one adds.
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

/// One line about a verdict: at TRACE, and of a refusal at INFO, if there were not too many in
/// this second.
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
