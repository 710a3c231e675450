//! A few lines of the log in each second, however many requests fail.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Warns as `tracing::warn!` does, a few times a second, and says how many lines were left out.
macro_rules! warn_sampled {
    ($($line:tt)+) => {{
        static LINES: $crate::sampled::Sampled = $crate::sampled::Sampled::new();
        if let Some(suppressed) = LINES.admit() {
            tracing::warn!(target: "tidegate::sale", suppressed, $($line)+);
        }
    }};
}
pub(crate) use warn_sampled;

/// Lines of one kind that are written in a second.
const EACH_SECOND: u32 = 5;

/// One kind of line.
#[derive(Debug)]
pub(crate) struct Sampled {
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    since: Option<Instant>,
    written: u32,
    suppressed: u64,
}

impl Sampled {
    pub(crate) const fn new() -> Self {
        Self { seen: Mutex::new(Seen { since: None, written: 0, suppressed: 0 }) }
    }

    /// How many were left out before, if this one is written.
    pub(crate) fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new =
            seen.since.is_none_or(|since| now.saturating_duration_since(since) >= Duration::from_secs(1));
        if is_new {
            (seen.since, seen.written) = (Some(now), 0);
        }
        if seen.written == EACH_SECOND {
            seen.suppressed += 1;
            return None;
        }
        seen.written += 1;
        Some(std::mem::take(&mut seen.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_failures_is_no_flood_of_lines_and_says_how_many_there_were() {
        let (sampled, begin) = (Sampled::new(), Instant::now());
        let written: Vec<_> = (0..1_000).filter_map(|_| sampled.admit_at(begin)).collect();
        assert_eq!(written, [0; EACH_SECOND as usize]);
        let later = begin + Duration::from_secs(1);
        assert_eq!(sampled.admit_at(later), Some(1_000 - u64::from(EACH_SECOND)));
        assert_eq!(sampled.admit_at(later), Some(0));
    }
}
