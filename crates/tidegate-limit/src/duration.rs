//! Durations as people write them, in whole microseconds.
//!
//! No rounding: what is not a whole number of microseconds is refused, because a
//! period that is silently another one is a wrong limit.

use crate::error::bounded;
use std::fmt::Write;
use std::time::Duration;

/// Ten years of 365.25 days: no period, wait or drain is longer.
pub(crate) const LONGEST_US: u64 = 315_576_000_000_000;

/// Units with their microseconds, longest first; the first name is the one written.
const UNITS: [(u64, &[&str]); 7] = [
    (7 * 86_400_000_000, &["week", "weeks", "w"]),
    (86_400_000_000, &["day", "days", "d"]),
    (3_600_000_000, &["h", "hour", "hours", "hr"]),
    (60_000_000, &["min", "m", "minute", "minutes"]),
    (1_000_000, &["s", "sec", "secs", "second", "seconds"]),
    (1_000, &["ms", "millisecond", "milliseconds"]),
    (1, &["us", "µs", "microsecond", "microseconds"]),
];

/// What people write that has no fixed length, with the days to write instead.
const CALENDAR: [(&str, u64, &[&str]); 3] = [
    ("month", 30, &["month", "months", "mon", "mo"]),
    ("quarter", 91, &["quarter", "quarters"]),
    ("year", 365, &["year", "years", "yr", "yrs", "y"]),
];

/// Why a word is not what stands in its place.
fn is_not(word: &str, what: &str) -> String {
    match CALENDAR.iter().find(|(.., names)| names.contains(&word)) {
        Some((name, days, _)) => {
            format!("`{word}`: a {name} has no fixed length, write its days, as in `{days}day`")
        }
        None => format!("`{}` is not {what}", bounded(word)),
    }
}

/// A bare unit, as after the slash in `100/min`.
pub(crate) fn unit_us(word: &str) -> Option<u64> {
    UNITS.iter().find(|(_, names)| names.contains(&word)).map(|(us, _)| *us)
}

/// `1.5s`, `1h30min`, `250ms`.
///
/// # Errors
/// Says what is wrong with the text.
pub fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text;
    let mut total: u64 = 0;
    if text.is_empty() {
        return Err("a duration is missing".into());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'));
        let (number, tail) = rest.split_at(digits.unwrap_or(rest.len()));
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        if number.is_empty() {
            return Err(is_not(text, "a duration"));
        }
        if unit.is_empty() {
            return Err(format!("`{number}` has no unit (us, ms, s, min, h, day, week)"));
        }
        let unit_us =
            unit_us(unit).ok_or_else(|| is_not(unit, "a unit of time (us, ms, s, min, h, day, week)"))?;
        let part = scaled(number, unit_us)?;
        total = total
            .checked_add(part)
            .filter(|t| *t <= LONGEST_US)
            .ok_or_else(|| format!("`{}` is longer than ten years", bounded(text)))?;
        rest = tail;
    }
    Ok(Duration::from_micros(total))
}

/// `number` (digits, at most one point) times `unit_us`, exactly.
fn scaled(number: &str, unit_us: u64) -> Result<u64, String> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = whole.replace('_', "") + fraction;
    if digits.is_empty() || fraction.contains(['.', '_']) {
        return Err(format!("`{number}` is not a number"));
    }
    let too_large = || format!("`{number}` is too large");
    let scale = u32::try_from(fraction.len()).ok().and_then(|places| 10u128.checked_pow(places));
    let scaled = digits.parse::<u128>().ok().and_then(|digits| digits.checked_mul(unit_us.into()));
    let (scale, scaled) = scale.zip(scaled).ok_or_else(too_large)?;
    if scaled % scale != 0 {
        return Err(format!("`{number}` is finer than a microsecond"));
    }
    u64::try_from(scaled / scale).map_err(|_| too_large())
}

/// The shortest text that parses to the same duration: `1h30min`, `250ms`.
pub fn show(mut us: u64) -> String {
    let mut out = String::new();
    for (unit_us, names) in UNITS {
        let count = us / unit_us;
        us %= unit_us;
        if count > 0 {
            let _ = write!(out, "{count}{}", names[0]);
        }
    }
    if out.is_empty() { "0s".into() } else { out }
}

/// The bare unit of exactly this length, for `100/min`; weeks are written out.
pub(crate) fn bare_unit(us: u64) -> Option<&'static str> {
    UNITS.iter().find(|(unit, _)| *unit == us).map(|(_, names)| names[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_parses_to_the_same_duration() {
        for us in [0, 1, 999, 1_000, 1_500_000, 5_400_000_000, 86_400_000_001, LONGEST_US] {
            assert_eq!(parse(&show(us)), Ok(Duration::from_micros(us)), "{}", show(us));
        }
        assert_eq!(show(5_400_000_000), "1h30min");
    }

    #[test]
    fn fractions_are_exact_or_refused() {
        assert_eq!(parse("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(parse("0.000001s"), Ok(Duration::from_micros(1)));
        assert!(parse("0.0000001s").unwrap_err().contains("finer than a microsecond"));
        assert!(parse("1.2.3s").is_err());
        assert!(parse(".s").is_err());
        assert!(parse("5").unwrap_err().contains("no unit"));
        assert!(parse("99999999999999999999s").is_err());
        assert!(parse("999999999999999999.999999999999999999week").unwrap_err().contains("too large"));
        assert!(parse("11y").is_err());
        assert!(parse("4000days").unwrap_err().contains("ten years"));
    }
}
