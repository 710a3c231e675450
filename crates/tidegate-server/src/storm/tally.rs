//! What the crowd has seen: counts, latencies, and every order number.

use super::bound::most_within;
use super::reply::Fault;
use super::schedule::Action;
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Longer latencies count as this: one hour.
const LATENCY_MAX_US: u64 = 3_600_000_000;
/// More kinds of answers than this are one kind: a stranger may make them up.
const CODES_MAX: usize = 64;
/// So many examples of each mistake are told.
const EXAMPLES_MAX: usize = 5;

/// Latencies, in microseconds.
pub(super) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX_US, 3);
        Self(histogram.expect("constant bounds in the right order"))
    }
}

impl Latencies {
    pub(super) fn record(&mut self, from_us: u64, to_us: u64) {
        self.0.saturating_record(to_us.saturating_sub(from_us));
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that so many in a hundred did not exceed.
    pub(super) fn percent(&self, percent: f64) -> u64 {
        self.0.value_at_percentile(percent)
    }

    pub(super) fn max(&self) -> u64 {
        self.0.max()
    }
}

/// A status of HTTP, and the sale's code in the body (0: none).
pub(super) type Code = (u16, u32);

#[derive(Default)]
pub(super) struct Tally {
    /// Users who were meant to come until the end, and requests that no connection was free for.
    pub(super) arrived: u64,
    pub(super) unsent: u64,
    pub(super) sent: u64,
    pub(super) retries: u64,
    /// Users who were told to come back, and did not: tries spent, or too late.
    pub(super) tries_spent: u64,
    pub(super) too_late: u64,
    pub(super) answers: BTreeMap<Code, u64>,
    /// Answers beyond the kinds that are told apart.
    pub(super) other_answers: u64,
    /// Successes without a usable path or number in them.
    pub(super) odd: u64,
    pub(super) faults: BTreeMap<Fault, u64>,
    pub(super) reconnects: u64,
    pub(super) refusals: Latencies,
    pub(super) admissions: Latencies,
    pub(super) orders: Latencies,
    /// How long those have waited that never got an answer.
    pub(super) unanswered: Latencies,
    /// From when it was meant to be sent until it was: the crowd's own part of each latency.
    pub(super) late: Latencies,
    /// When each path came, in order.
    pub(super) admitted_at_us: Vec<u64>,
    pub(super) given: Given,
    /// Orders asked for of which nobody knows whether they were placed.
    pub(super) in_doubt: u64,
}

impl Tally {
    pub(super) fn answered(&mut self, code: Code) {
        if let Some(count) = self.answers.get_mut(&code) {
            *count += 1;
        } else if self.answers.len() < CODES_MAX {
            self.answers.insert(code, 1);
        } else {
            self.other_answers += 1;
        }
    }

    /// An action comes to its end without what it asked for.
    pub(super) fn end(&mut self, action: &Action) {
        self.in_doubt += u64::from(action.is_lost);
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }
}

/// Every order number that was given, and what was wrong with them.
#[derive(Default)]
pub(super) struct Given {
    /// Whose each number is.
    owners: HashMap<Box<str>, u32>,
    /// The same number for a second user.
    pub(super) twice: u64,
    /// A user who repeated the request, and got another number.
    pub(super) changed: u64,
    /// A user who repeated it, and got a refusal.
    pub(super) refused: u64,
    /// Users who repeated it, and got a number.
    pub(super) repeated: u64,
    /// Some of the mistakes, in words.
    pub(super) examples: Vec<String>,
}

impl Given {
    /// How many different numbers there were.
    pub(super) fn len(&self) -> u64 {
        self.owners.len() as u64
    }

    /// So many of them, from all over, with their owners.
    pub(super) fn sample(&self, most: usize) -> Vec<(&str, u32)> {
        // A map with a random seed has them in a random order.
        self.owners.iter().take(most).map(|(order, user)| (&**order, *user)).collect()
    }

    pub(super) fn order(&mut self, order: &str, user: u32) {
        if let Some(first) = self.owners.get(order).copied() {
            self.twice += 1;
            self.example(|| format!("number {order} was given to user {first} and to user {user}"));
        } else {
            self.owners.insert(order.into(), user);
        }
    }

    /// The request was repeated; `first` is the number that came before.
    pub(super) fn again(&mut self, first: &str, now: &str, user: u32) {
        self.repeated += 1;
        if first != now {
            self.changed += 1;
            self.example(|| format!("user {user} got {first}, and {now} for the same request again"));
            self.order(now, user);
        }
    }

    /// The request was repeated, and the number that came before it was not told again.
    pub(super) fn refused(&mut self, first: &str, (status, code): Code, user: u32) {
        self.refused += 1;
        self.example(|| format!("user {user} got {first}, and {status} ({code}) for the same request again"));
    }

    fn example(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(text());
        }
    }
}

/// Admissions a second: the most within any second, and the median of whole seconds from the
/// first to the last.
pub(super) fn a_second(admitted_at_us: &[u64]) -> (usize, usize) {
    const SECOND_US: u64 = 1_000_000;
    let (Some(first), Some(last)) = (admitted_at_us.first(), admitted_at_us.last()) else { return (0, 0) };
    let second = |at: u64| usize::try_from((at - first) / SECOND_US).unwrap_or(usize::MAX);
    let mut counts = vec![0; second(*last) + 1];
    admitted_at_us.iter().for_each(|at| counts[second(*at)] += 1);
    counts.sort_unstable();
    (most_within(admitted_at_us, Duration::from_micros(SECOND_US)), counts[counts.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_given_twice_is_noticed_and_a_repeated_one_is_not() {
        let mut given = Given::default();
        given.order("g-1-1", 1);
        given.order("g-1-2", 2);
        given.again("g-1-1", "g-1-1", 1);
        assert_eq!((given.len(), given.twice, given.changed, given.repeated), (2, 0, 0, 1));
        given.order("g-1-1", 3);
        given.again("g-1-2", "g-1-3", 2);
        assert_eq!((given.len(), given.twice, given.changed, given.repeated), (3, 1, 1, 2));
        given.refused("g-1-1", (404, 40_402), 1);
        assert_eq!((given.len(), given.refused, given.repeated), (3, 1, 2));
        assert_eq!(given.examples.len(), 3, "{:?}", given.examples);
        assert_eq!(given.sample(2).len(), 2);
    }

    #[test]
    fn the_median_second_counts_from_the_first() {
        assert_eq!(a_second(&[]), (0, 0));
        assert_eq!(a_second(&[5]), (1, 1));
        assert_eq!(a_second(&[0, 500_000, 999_999, 1_000_000, 1_000_001, 2_500_000]), (4, 2));
    }

    #[test]
    fn kinds_of_answers_are_bounded() {
        let mut tally = Tally::default();
        for code in 0..1_000 {
            tally.answered((200, code));
            tally.answered((200, 0));
        }
        assert_eq!(tally.answers.len(), CODES_MAX);
        assert_eq!(tally.answers[&(200, 0)], 1_001);
        assert_eq!(tally.other_answers, 1_000 - CODES_MAX as u64);
    }
}
