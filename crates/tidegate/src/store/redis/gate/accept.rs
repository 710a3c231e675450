//! Which limits a gate in Redis can have, checked when it is defined and when it is changed.
//!
//! A script stops the server for everybody, so its work is bounded here: a window or log is a
//! list, and one call may have to read all of it (after a rest, after a change of the limit,
//! for a call that costs much). That takes about half a microsecond an entry.

use crate::gate::GateError;
use crate::store::redis::gate::lease::can_lease;
use crate::{Algorithm, Limit};

/// The longest list of one key: 5 ms of the server's time.
pub(crate) const ENTRIES_MAX: u64 = 10_000;
/// Slices of the window that is proposed instead of a log: never over, and at most a
/// hundredth of a period late.
const SLICES_INSTEAD: u64 = 100;

/// # Errors
/// If the script cannot hold the limit exactly or in bounded time, or if `is_leased` and
/// nothing can be taken ahead of it.
pub(crate) fn accept(name: &str, limit: &Limit, is_leased: bool) -> Result<(), GateError> {
    limit.exact_in_doubles()?;
    let entries = entries(limit);
    if entries > ENTRIES_MAX {
        let (name, limit, instead) = (name.into(), Box::new(limit.clone()), instead(limit));
        return Err(GateError::Long { name, limit, entries, most: ENTRIES_MAX, instead });
    }
    if is_leased && !can_lease(limit) {
        return Err(GateError::Lease { name: name.into(), limit: Box::new(limit.clone()) });
    }
    Ok(())
}

/// The longest that the list of a key can become; one where the state is not a list.
pub(crate) fn entries(limit: &Limit) -> u64 {
    let (period, wait) = (limit.period_us().max(1), limit.wait_us());
    match *limit.algorithm() {
        // Those of one period, and those of callers that wait.
        Algorithm::SlidingLog => limit.amount().saturating_mul(1 + wait.div_ceil(period)),
        Algorithm::SlidingWindow { slices } => slices + 1 + wait.div_ceil(period.div_ceil(slices.max(1))),
        Algorithm::TokenBucket { .. }
        | Algorithm::WarmUp { .. }
        | Algorithm::Ticked { .. }
        | Algorithm::LeakyBucket { .. }
        | Algorithm::LeakyQueue { .. }
        | Algorithm::FixedWindow
        | Algorithm::Concurrency { .. } => 1,
    }
}

/// A window that counts nearly the same and fits.
fn instead(limit: &Limit) -> String {
    let mut slices = (1..=SLICES_INSTEAD.min(limit.period_us())).rev();
    let window = |slices| {
        let window = Limit::per(limit.amount(), limit.period()).sliding_window().slices(slices);
        window.wait(limit.wait()).build().ok().filter(|window| entries(window) <= ENTRIES_MAX)
    };
    slices.find_map(window).map_or_else(|| "a shorter wait".into(), |window| format!("`{window}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Option<String> {
        accept("gate", &text.parse().unwrap(), false).err().map(|error| error.to_string())
    }

    #[test]
    fn lists_that_one_call_could_not_read_in_time_are_refused_with_a_window_instead() {
        for fits in [
            "10000 per 1h sliding-log",
            "5000 per 1h sliding-log wait 1h",
            "1000000/s",
            "1000000 per 1h fixed-window",
            "1000000000 per 1h sliding-window slices 1000",
            "10 concurrent queue 1000000 wait 1h",
        ] {
            assert_eq!(refused(fits), None, "{fits}");
        }
        for (long, instead) in [
            ("10001 per 2h sliding-log", "`10001 per 2h sliding-window slices 100`"),
            ("5001 per 2h sliding-log wait 1s", "`5001 per 2h sliding-window slices 100 wait 1s`"),
            ("50 per 2ms sliding-log wait 1s", "`50 per 2ms sliding-window slices 19 wait 1s`"),
            (
                "5 per 2ms sliding-window slices 1000 wait 50ms",
                "`5 per 2ms sliding-window slices 100 wait 50ms`",
            ),
            ("5 per 2ms sliding-window slices 1 wait 50s", "a shorter wait"),
        ] {
            let error = refused(long).expect(long);
            assert!(error.contains(long) && error.ends_with(&format!("write {instead}")), "{error}");
        }
    }
}
