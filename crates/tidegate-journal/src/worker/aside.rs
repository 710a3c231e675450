//! Records that their gate has put off. They stand aside, so that those behind are asked: a gate
//! may have keys, and one key's backlog must not hold up the others.
//!
//! They stay in hand, in order, and are asked again when their time has come. Where they fill
//! the hand, the last of them go back into the database, a few at a time, and others are claimed.

use super::turn::Turn;
use crate::clock::instant;
use std::time::{Duration, Instant};

pub(super) struct Aside {
    /// In the order in which they are asked.
    all: Vec<Waiting>,
    /// More than so many fill the hand: the driver claims when a quarter of it is free.
    most: usize,
    /// How often in a row the gate said no.
    refusals: u32,
    /// When some may go back again, and how long to pause after that. Going back and being
    /// claimed again is work, and for nothing where all have one key.
    next_return: Instant,
    pause: Duration,
}

struct Waiting {
    turn: Turn,
    again_at: Instant,
}

const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(4);

/// So many refusals in a row, and then a rest.
const REFUSALS_MOST: u32 = 16;
const REST: Duration = Duration::from_millis(1);

/// How often to look for those that were cancelled meanwhile.
const LOOK: Duration = Duration::from_secs(1);

/// A wait that no clock can add is as good as this.
const LONGEST: Duration = Duration::from_secs(86_400);

impl Aside {
    /// For a lane that holds so many.
    pub(super) fn of(most: u32) -> Self {
        let most = usize::try_from(most / 2).unwrap_or(usize::MAX);
        Self { all: Vec::new(), most, refusals: 0, next_return: instant(), pause: PAUSE_FIRST }
    }

    pub(super) fn add(&mut self, turn: Turn, wait: Duration) {
        let again_at = instant() + wait.min(LONGEST);
        let at = self.all.partition_point(|other| other.turn.rank() <= turn.rank());
        self.all.insert(at, Waiting { turn, again_at });
        self.refusals += 1;
    }

    /// One that has to be looked at now: the first in the order, and while the gate says no, the
    /// one that is due for longest. With short waits the first are always due, and nobody else
    /// would ever be asked.
    pub(super) fn take_due(&mut self) -> Option<Turn> {
        let now = instant();
        let mut due = (0..self.all.len()).filter(|at| self.all[*at].is_due(now));
        let at = if self.refusals == 0 { due.next() } else { due.min_by_key(|at| self.all[*at].looked_at()) };
        at.map(|at| self.all.remove(at).turn)
    }

    /// One of them has started.
    pub(super) fn started(&mut self) {
        self.refusals = 0;
    }

    /// Asking goes on without end where waits are short, so every now and then it rests.
    pub(super) async fn rest(&mut self) {
        if self.refusals >= REFUSALS_MOST {
            tokio::time::sleep(REST).await;
            self.waited();
        }
    }

    /// Until one of them has to be looked at.
    pub(super) async fn due(&mut self) {
        let now = instant();
        let Some(soonest) = self.all.iter().map(Waiting::looked_at).min() else {
            return std::future::pending().await;
        };
        if soonest > now {
            tokio::time::sleep_until(soonest.min(now + LOOK).into()).await;
            self.waited();
        }
    }

    /// Others were found behind them that may start: it is worth looking for more.
    pub(super) fn found(&mut self) {
        self.refusals = 0;
        self.pause = PAUSE_FIRST;
    }

    /// Those that have to make room, from the end of the order; and how long each still waits.
    pub(super) fn surplus(&mut self) -> Vec<(Turn, Duration)> {
        let now = instant();
        if self.all.len() <= self.most || now < self.next_return {
            return Vec::new();
        }
        self.next_return = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MOST);
        let gone = self.all.drain(self.most..);
        gone.map(|one| (one.turn, one.again_at.saturating_duration_since(now))).collect()
    }

    /// Time has passed without a question: there may be room for the first of them again.
    fn waited(&mut self) {
        self.refusals = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// One of them has to be looked at now.
    pub(super) fn is_due(&self) -> bool {
        let now = instant();
        self.all.iter().any(|one| one.is_due(now))
    }

    /// Those whose time is over, or who were lost.
    pub(super) fn take_over(&mut self, now: Instant) -> Vec<Turn> {
        self.all.extract_if(.., |one| one.turn.is_over(now)).map(|one| one.turn).collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<Turn> {
        self.all.drain(..).map(|one| one.turn).collect()
    }
}

impl Waiting {
    fn is_due(&self, now: Instant) -> bool {
        self.looked_at() <= now || self.turn.stop.is_lost()
    }

    fn looked_at(&self) -> Instant {
        self.turn.start_by.map_or(self.again_at, |start_by| start_by.min(self.again_at))
    }
}
