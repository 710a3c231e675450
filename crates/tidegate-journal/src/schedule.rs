//! When something is done again: every so often, or by the calendar as in crontab, in UTC.
//!
//! Deliberately small: five fields, lists, ranges and steps. No names of days, no seconds, no
//! time zones, which would need a database of their own.

use crate::call::FOREVER;
use crate::clock::{to_micros, to_time};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

/// When something is done again.
///
/// ```
/// use std::time::Duration;
/// use tidegate_journal::Schedule;
///
/// let often = Schedule::every(Duration::from_secs(60));
/// let at_night = Schedule::cron("30 3 * * 1-5")?; // half past three UTC, Monday to Friday
/// # Ok::<(), tidegate_journal::ScheduleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Every(Duration),
    Cron(Box<Cron>),
}

/// What is wrong with a line of crontab.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{line}` is no schedule: {what}; write five fields, such as `*/5 * * * *` or `30 3 * * 1-5`")]
pub struct ScheduleError {
    line: String,
    what: String,
}

impl Schedule {
    /// After so much time, a century at most, again and again.
    pub fn every(interval: Duration) -> Self {
        Self(Kind::Every(interval.clamp(Duration::from_millis(1), FOREVER)))
    }

    /// Minute, hour, day of the month, month, day of the week (0 or 7 is Sunday), in UTC. As
    /// in crontab, a day fits either day field where both are given.
    ///
    /// # Errors
    /// Where a field is wrong, or no day ever fits.
    pub fn cron(line: &str) -> Result<Self, ScheduleError> {
        Ok(Self(Kind::Cron(Box::new(line.parse()?))))
    }

    pub(crate) fn next_after(&self, time: SystemTime) -> SystemTime {
        match &self.0 {
            Kind::Every(interval) => time + *interval,
            Kind::Cron(cron) => {
                let minute = to_micros(time).div_euclid(60_000_000) + 1;
                let next = cron.next_from(minute).expect("a schedule that never comes is not let in");
                to_time(next * 60_000_000)
            }
        }
    }
}

/// One bit for each value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both day fields are given, so that either is enough.
    is_either_day: bool,
}

/// The longest time without a 29th of February on a given day of the week, in days, and a bit:
/// every date falls on each day of the week within 40 years, also around a year such as 2100.
const DAYS_MAX: i64 = 366 * 41;

impl Cron {
    /// The first minute since 1970 from this one on that fits.
    fn next_from(&self, minute: i64) -> Option<i64> {
        let (today, now) = (minute.div_euclid(1_440), minute.rem_euclid(1_440));
        (today..today + DAYS_MAX).filter(|day| self.fits_day(*day)).find_map(|day| {
            let begin = if day == today { now } else { 0 };
            let fits = |m: &i64| has(self.hours, m / 60) && has(self.minutes, m % 60);
            (begin..1_440).find(fits).map(|m| day * 1_440 + m)
        })
    }

    fn fits_day(&self, day: i64) -> bool {
        let (month, of_month) = month_and_day(day);
        // The first of January 1970 was a Thursday.
        let weekday = (day + 4).rem_euclid(7);
        let (by_month, by_week) = (has(self.days, of_month), has(self.weekdays, weekday));
        has(self.months, month) && if self.is_either_day { by_month || by_week } else { by_month && by_week }
    }
}

fn has(bits: u64, value: i64) -> bool {
    bits >> value & 1 == 1
}

/// Month and day of the month of a day since 1970, in the calendar that everybody uses.
fn month_and_day(day: i64) -> (i64, i64) {
    // Years begin in March here, so that the leap day comes last.
    let day = day + 719_468;
    let of_era = day.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    (if month < 10 { month + 3 } else { month - 9 }, of_year - (153 * month + 2) / 5 + 1)
}

impl FromStr for Cron {
    type Err = ScheduleError;

    fn from_str(line: &str) -> Result<Self, ScheduleError> {
        let wrong = |what: String| ScheduleError { line: line.chars().take(100).collect(), what };
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(wrong(format!("it has {} fields", fields.len())));
        };
        let read = |text, name, least, most| {
            field(text, least, most).map_err(|what| wrong(format!("{name} {what}")))
        };
        let mut weekday_bits = read(weekdays, "day of the week", 0, 7)?;
        weekday_bits |= weekday_bits >> 7;
        let cron = Self {
            minutes: read(minutes, "minute", 0, 59)?,
            hours: read(hours, "hour", 0, 23)?,
            days: read(days, "day of the month", 1, 31)?,
            months: read(months, "month", 1, 12)?,
            weekdays: weekday_bits,
            is_either_day: !days.starts_with('*') && !weekdays.starts_with('*'),
        };
        cron.next_from(0).map(|_| ()).ok_or_else(|| wrong("no day ever fits".to_owned()))?;
        Ok(cron)
    }
}

/// `*`, `5`, `1-5`, `*/10`, `8-18/2`, and lists of them.
fn field(text: &str, least: u32, most: u32) -> Result<u64, String> {
    let mut bits = 0;
    for part in text.split(',') {
        let bad = || format!("`{part}` is not within {least} to {most}");
        let number = |text: &str| {
            let number = text.parse::<u32>().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(bad)
        };
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => {
                (range, step.parse::<u32>().ok().filter(|step| *step > 0).ok_or_else(bad)?)
            }
            None => (part, 1),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (least, most),
            Some((first, last)) => (number(first)?, number(last)?),
            // `5/10` is from 5 on.
            None if part.contains('/') => (number(range)?, most),
            None => (number(range)?, number(range)?),
        };
        if first > last {
            return Err(bad());
        }
        (first..=last).step_by(step as usize).for_each(|value| bits |= 1u64 << value);
    }
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2024-02-28 10:30 UTC, a Wednesday.
    const NOW: i64 = 1_709_116_200;

    fn next(line: &str) -> i64 {
        let next = Schedule::cron(line).unwrap().next_after(to_time(NOW * 1_000_000));
        (to_micros(next) / 1_000_000 - NOW) / 60
    }

    #[test]
    fn lines_of_crontab_mean_what_they_mean_there() {
        let (hour, day) = (60, 24 * 60);
        assert_eq!(next("* * * * *"), 1);
        assert_eq!(next("*/5 * * * *"), 5);
        assert_eq!(next("30 * * * *"), hour, "not the minute that is");
        assert_eq!(next("0 12 * * *"), 90);
        assert_eq!(next("0,45 10-11 * * *"), 15);
        assert_eq!(next("30 10 29 2 *"), day, "the leap day");
        assert_eq!(next("30 10 1 3 *"), 2 * day);
        assert_eq!(next("30 10 * * 0"), 4 * day);
        assert_eq!(next("30 10 * * 7"), 4 * day);
        assert_eq!(next("30 10 1 * 5"), 2 * day, "the first, or a Friday");
        assert_eq!(next("5/20 10 * * *"), 15);
    }

    #[test]
    fn what_is_accepted_always_comes_again() {
        let day = 86_400_000_000;
        // A leap day on a Sunday: at most 40 years apart, around the year 2100.
        for line in ["0 0 1 3 */7", "0 0 29 2 */7", "0 0 29 2 *", "0 0 31 12 */7"] {
            let schedule = Schedule::cron(line).unwrap();
            for nth in 0..400 {
                let time = to_time(nth * 200 * day);
                let next = schedule.next_after(time);
                assert!(next > time, "{line}");
            }
        }
    }

    #[test]
    fn what_is_no_schedule_says_so() {
        for line in [
            "",
            "* * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "5-1 * * * *",
            "*/0 * * * *",
            "x * * * *",
            "0 0 31 2 *",
            "1- * * * *",
            "-1 * * * *",
        ] {
            let error = Schedule::cron(line).unwrap_err().to_string();
            assert!(error.contains("is no schedule") && error.contains("*/5 * * * *"), "{error}");
        }
    }
}
