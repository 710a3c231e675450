//! The numbers of an epoch that were acknowledged, as far as this process has heard: by itself
//! at once, by others through Redis. A count that cannot find all of them holds the sale.

use super::letter::Letter;
use std::fmt::Write as _;
use std::ops::Range;

/// Of one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Acked {
    pub(super) epoch: u32,
    /// The highest. Some below it may still be on their way to the broker.
    pub(super) highest: i64,
    /// All up to here.
    pub(super) sure: i64,
}

impl Acked {
    /// The orders of a message that was confirmed.
    pub(super) fn by(letter: &Letter) -> Self {
        let (epoch, last) = letter.last().unwrap_or_default();
        Self { epoch, highest: i64::try_from(last).unwrap_or(i64::MAX), sure: 0 }
    }

    /// With what is heard now.
    pub(super) fn raise(&mut self, heard: Self) {
        if heard.epoch > self.epoch {
            *self = heard;
        } else if heard.epoch == self.epoch {
            self.highest = self.highest.max(heard.highest);
            self.sure = self.sure.max(heard.sure);
        }
    }
}

/// Numbers that were acknowledged, perhaps, and that nobody has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Missing {
    /// Those that were for sure, and the others, each as ranges from the first to the last.
    pub(super) sure: Vec<(i64, i64)>,
    pub(super) perhaps: Vec<(i64, i64)>,
    /// Epochs before the last one, of which PostgreSQL has forgotten orders: it went back in time.
    pub(super) forgotten: Range<u32>,
}

/// Ranges in a sentence; all of them are in the audit.
const SHOWN: usize = 8;

impl Missing {
    /// What is not among these.
    pub(super) fn of(acked: &Acked, mut found: Vec<i64>) -> Self {
        found.sort_unstable();
        found.dedup();
        let mut missing = Self::default();
        let mut next = 1;
        let ends = found.into_iter().take_while(|nth| *nth <= acked.highest).chain([acked.highest + 1]);
        for nth in ends {
            if next < nth {
                missing.add(acked, next, nth - 1);
            }
            next = nth + 1;
        }
        missing
    }

    fn add(&mut self, acked: &Acked, first: i64, last: i64) {
        // The highest was acknowledged, whatever is below it.
        let is_highest = last == acked.highest && last > acked.sure;
        let last_perhaps = if is_highest { last - 1 } else { last };
        if first <= acked.sure {
            self.sure.push((first, last.min(acked.sure)));
        }
        if last_perhaps > acked.sure {
            self.perhaps.push((first.max(acked.sure + 1), last_perhaps));
        }
        if is_highest {
            self.sure.push((last, last));
        }
    }

    pub(super) fn is_none(&self) -> bool {
        self.sure.is_empty() && self.perhaps.is_empty() && self.forgotten.is_empty()
    }

    /// Why the sale is held.
    pub(super) fn reason(&self, goods: &str, epoch: u32) -> String {
        let mut text = String::from("orders cannot be found; `resume` goes on without them");
        for (what, ranges) in [("surely acknowledged", &self.sure), ("perhaps acknowledged", &self.perhaps)] {
            if ranges.is_empty() {
                continue;
            }
            let count: i64 = ranges.iter().map(|(first, last)| last - first + 1).sum();
            let names = named(goods, epoch, &ranges[..ranges.len().min(SHOWN)]).join(", ");
            let more = if ranges.len() > SHOWN { ", and more in the audit" } else { "" };
            // Writing into a text cannot fail.
            let _ = write!(text, "; {count} {what}: {names}{more}");
        }
        if !self.forgotten.is_empty() {
            let (first, last) = (self.forgotten.start, self.forgotten.end - 1);
            let _ = write!(
                text,
                "; PostgreSQL went back in time and has forgotten orders {goods}-{first}-… to {goods}-{last}-…"
            );
        }
        text
    }

    /// The line in the audit.
    pub(super) fn line(&self, goods: &str, epoch: u32) -> String {
        let names = |ranges| named(goods, epoch, ranges);
        serde_json::json!({ "change": "missing", "surely_acknowledged": names(&self.sure),
                            "perhaps_acknowledged": names(&self.perhaps),
                            "forgotten_epochs": self.forgotten.clone().collect::<Vec<_>>() })
        .to_string()
    }
}

fn named(goods: &str, epoch: u32, ranges: &[(i64, i64)]) -> Vec<String> {
    let name = |(first, last): &(i64, i64)| match first == last {
        true => format!("{goods}-{epoch}-{first}"),
        false => format!("{goods}-{epoch}-{first} to {last}"),
    };
    ranges.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_by_what_is_sure_of_it() {
        let acked = Acked { epoch: 2, highest: 9, sure: 4 };
        let missing = |found: &[i64]| Missing::of(&acked, found.to_vec());
        assert!(missing(&[9, 1, 2, 3, 4, 5, 6, 7, 8, 8]).is_none());
        let all = missing(&[]);
        assert_eq!((all.sure, all.perhaps), (vec![(1, 4), (9, 9)], vec![(5, 8)]));
        let some = missing(&[1, 2, 4, 6, 9, 10, 11]);
        assert_eq!((&some.sure, &some.perhaps), (&vec![(3, 3)], &vec![(5, 5), (7, 8)]));
        assert_eq!(
            some.reason("phone", 2),
            "orders cannot be found; `resume` goes on without them; 1 surely acknowledged: phone-2-3; \
             3 perhaps acknowledged: phone-2-5, phone-2-7 to 8"
        );
        assert!(some.line("phone", 2).contains(r#""perhaps_acknowledged":["phone-2-5","phone-2-7 to 8"]"#));
        assert!(Missing::of(&Acked::default(), vec![]).is_none());
        let back = Missing { forgotten: 2..4, ..Missing::default() };
        assert!(!back.is_none() && back.reason("phone", 4).contains("phone-2-… to phone-3-…"), "{back:?}");
    }

    #[test]
    fn what_is_heard_late_lowers_nothing() {
        let mut acked = Acked { epoch: 2, highest: 9, sure: 4 };
        acked.raise(Acked { epoch: 1, highest: 99, sure: 99 });
        acked.raise(Acked { epoch: 2, highest: 7, sure: 5 });
        assert_eq!(acked, Acked { epoch: 2, highest: 9, sure: 5 });
        acked.raise(Acked { epoch: 3, highest: 1, sure: 0 });
        assert_eq!(acked, Acked { epoch: 3, highest: 1, sure: 0 });
    }
}
