//! Who is told about verdicts: an observer for metrics, and the log.
//!
//! Every verdict is told to the observer. The log gets what was let through at TRACE, and
//! refusals at INFO, at most so many a second for each rule: a flood of requests is no
//! flood of lines.

use crate::clock::Timestamp;
use crate::rules::record::Record;
use crate::sampler::Sampler;
use tracing::Level;

/// Told about every verdict: where metrics are counted.
///
/// It is called on the request's way: count and return. Rules' names are an operator's
/// words and few; keys are strangers' words, so no label for them.
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
    /// A rule has judged a request.
    fn verdict(&self, record: &Record<'_>) {
        let _ = record;
    }
}

/// One line of the log: what every line says, and what this one adds.
macro_rules! event_line {
    ($level:ident, $record:ident, $($name:ident = $value:expr),*) => {
        tracing::$level!(
            target: "tidegate::guard",
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

/// One line about something that was let through.
#[inline]
pub(crate) fn log_passed(record: &Record<'_>) {
    if tracing::enabled!(target: "tidegate::guard", Level::TRACE) {
        log_passed_now(record);
    }
}

#[cold]
fn log_passed_now(record: &Record<'_>) {
    event_line!(trace, record, wait_ms = record.wait.as_millis() as u64);
}

/// One line about a refusal, if there were not too many in this second.
pub(crate) fn log_refused(
    record: &Record<'_>,
    sampler: &Sampler,
    each_second: u32,
    now: impl Fn() -> Timestamp,
) {
    if !tracing::enabled!(target: "tidegate::guard", Level::INFO) {
        return;
    }
    let Some(suppressed) = sampler.admit(now(), each_second) else { return };
    let retry_after = record.decision.and_then(|decision| decision.retry_after());
    event_line!(
        info,
        record,
        retry_after_ms = retry_after.map(|after| after.as_millis() as u64),
        suppressed = suppressed
    );
}
