//! The sentence that explains a decision, in the same words everywhere.

use crate::Limit;
use crate::decision::{Decision, Denial};
use std::fmt;
use std::time::Duration;

/// What a limit decided and why: `1000/s, 0 left, free again in 320 ms`.
pub(crate) struct Explanation<'a> {
    pub(crate) limit: &'a Limit,
    pub(crate) decision: &'a Decision,
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, decision } = self;
        write!(f, "{limit}")?;
        if decision.is_checked() {
            write!(f, ", {} left", decision.remaining())?;
        }
        match decision.denial() {
            None => {}
            Some(Denial::Later(after)) => write!(f, ", free again in {}", Span(after))?,
            Some(Denial::Never) => f.write_str(", the call costs more than can ever be free")?,
            Some(Denial::NeedsPermit) => f.write_str(", a slot must be held: use `reserve` or `acquire`")?,
            Some(Denial::Full) => f.write_str(", no room for another key")?,
            Some(Denial::Unidentified) => f.write_str(", the caller is not known")?,
            Some(Denial::Busy) => f.write_str(", free when others are done")?,
            Some(Denial::Unavailable(after)) => {
                return write!(f, ", the store does not answer; it is tried again in {}", Span(after));
            }
        }
        if decision.is_degraded() { f.write_str(", decided without the store") } else { Ok(()) }
    }
}

/// A time as people say it, rounded up, so that a retry after it is never too early:
/// `320 ms`, `1.5 s`, `3 min`, `2 h`.
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0.as_micros();
        match us {
            0..1_000_000 => write!(f, "{} ms", us.div_ceil(1_000)),
            1_000_000..60_000_000 => match us.div_ceil(100_000) {
                tenths if tenths.is_multiple_of(10) => write!(f, "{} s", tenths / 10),
                tenths => write!(f, "{}.{} s", tenths / 10, tenths % 10),
            },
            60_000_000..3_600_000_000 => write!(f, "{} min", us.div_ceil(60_000_000)),
            _ => write!(f, "{} h", us.div_ceil(3_600_000_000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up() {
        let said = |us| Span(Duration::from_micros(us)).to_string();
        assert_eq!(said(0), "0 ms");
        assert_eq!(said(319_001), "320 ms");
        assert_eq!(said(999_001), "1000 ms");
        assert_eq!(said(1_000_000), "1 s");
        assert_eq!(said(1_400_001), "1.5 s");
        assert_eq!(said(60_000_001), "2 min");
        assert_eq!(said(7_200_000_000), "2 h");
    }
}
