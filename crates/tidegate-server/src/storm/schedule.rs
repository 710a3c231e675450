//! What is to happen when: arrivals, and what waits for its time.
//!
//! Arrivals come by the plan and by nothing else. A server that stalls delays answers, never
//! arrivals: those that nobody could serve yet stay due, with the time at which they were meant.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Something that a user does.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Action {
    /// When it is meant to happen, in microseconds since the start. Latencies count from here.
    pub(super) due_us: u64,
    pub(super) user: u32,
    /// How often this was tried before.
    pub(super) tries: u8,
    /// An order that was sent, and whose answer never came: stock may have been taken for it.
    pub(super) is_lost: bool,
    pub(super) step: Step,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// For a path.
    Ask,
    /// With the path that was given.
    Order { path: Box<str> },
    /// The same once more: the same number must come back.
    Again { path: Box<str>, order: Box<str> },
}

impl Action {
    pub(super) fn new(due_us: u64, user: u32, step: Step) -> Self {
        Self { due_us, user, tries: 0, is_lost: false, step }
    }

    /// Sent, and not answered.
    pub(super) fn lost(self) -> Self {
        let is_lost = self.is_lost || matches!(self.step, Step::Order { .. });
        Self { is_lost, ..self }
    }
}

pub(super) struct Schedule {
    arrivals: Arrivals,
    /// The earliest is on top.
    waiting: BinaryHeap<Waiting>,
}

impl Schedule {
    pub(super) fn new(arrivals: Arrivals) -> Self {
        Self { arrivals, waiting: BinaryHeap::new() }
    }

    /// Something that a user will do later.
    pub(super) fn add(&mut self, action: Action) {
        self.waiting.push(Waiting(action));
    }

    /// The earliest of what is due by now.
    pub(super) fn take_due(&mut self, now_us: u64) -> Option<Action> {
        let arrival = self.arrivals.next_us();
        let waiting = self.waiting.peek().map(|waiting| waiting.0.due_us);
        match (arrival, waiting) {
            (Some(due_us), other) if due_us <= now_us && other.is_none_or(|other| due_us <= other) => {
                self.arrivals.take().map(|user| Action::new(due_us, user, Step::Ask))
            }
            (_, Some(due_us)) if due_us <= now_us => self.waiting.pop().map(|waiting| waiting.0),
            _ => None,
        }
    }

    /// What waits and is not due yet, in any order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Action> {
        self.waiting.drain().map(|waiting| waiting.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.arrivals.next_us().is_none()
    }

    /// How many users' arrivals were taken.
    pub(super) fn arrived(&self) -> u32 {
        self.arrivals.next
    }
}

/// Ordered so that a heap, whose top is the greatest, has the earliest on top.
struct Waiting(Action);

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.due_us.cmp(&self.0.due_us)
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

/// So many users at random times within a span, one after the other.
///
/// The times are those of a Poisson process that has exactly so many arrivals: each next one is
/// drawn as the smallest of what is left, so nothing has to be sorted or kept.
pub(super) struct Arrivals {
    rng: fastrand::Rng,
    users: u32,
    next: u32,
    at_us: f64,
    end_us: f64,
}

impl Arrivals {
    pub(super) fn new(users: u32, span: Duration, seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        let mut arrivals = Self { rng, users, next: 0, at_us: 0.0, end_us: span.as_micros() as f64 };
        arrivals.draw();
        arrivals
    }

    fn draw(&mut self) {
        let left = f64::from(self.users - self.next);
        if left > 0.0 {
            let share = 1.0 - self.rng.f64().powf(left.recip());
            self.at_us += (self.end_us - self.at_us) * share;
        }
    }

    fn next_us(&self) -> Option<u64> {
        (self.next < self.users).then_some(self.at_us as u64)
    }

    fn take(&mut self) -> Option<u32> {
        let user = (self.next < self.users).then_some(self.next)?;
        self.next += 1;
        self.draw();
        Some(user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn all_users_arrive_in_order_spread_over_the_span() {
        let mut arrivals = Arrivals::new(100_000, Duration::from_secs(10), 7);
        let mut by_second = [0_u32; 10];
        let mut last = 0;
        for user in 0..100_000 {
            let at = arrivals.next_us().unwrap();
            assert!(at >= last && at <= 10 * SECOND, "{at} after {last}");
            last = at;
            by_second[usize::try_from(at / SECOND).unwrap().min(9)] += 1;
            assert_eq!(arrivals.take(), Some(user));
        }
        assert_eq!((arrivals.next_us(), arrivals.take()), (None, None));
        // Ten standard deviations of a Poisson count: 10,000 ± 1,000.
        assert!(by_second.iter().all(|count| (9_000..11_000).contains(count)), "{by_second:?}");
    }

    #[test]
    fn what_is_due_comes_in_the_order_of_its_time_and_waits_until_taken() {
        let mut schedule = Schedule::new(Arrivals::new(1_000, Duration::from_secs(1), 3));
        for due_us in [700_000, 5, 2 * SECOND, 300_000] {
            schedule.add(Action::new(due_us, 0, Step::Ask));
        }
        // Nobody took anything for a whole second: all is still there, with the times as meant.
        let mut taken = Vec::new();
        while let Some(action) = schedule.take_due(SECOND) {
            taken.push(action.due_us);
        }
        assert_eq!(taken.len(), 1_003);
        assert!(taken.is_sorted());
        assert_eq!(schedule.arrived(), 1_000);
        assert!(!schedule.is_empty());
        assert_eq!(schedule.take_due(2 * SECOND).unwrap().due_us, 2 * SECOND);
        assert!(schedule.is_empty());
    }
}
