//! Records that their gate has put off. They stand aside, so that those behind are asked: a gate
//! may have keys, and one key's backlog must not hold up the others.
//!
//! They stay in hand, in order, and are asked again when their time has come. Where they fill
//! the hand, the last of them go back into the database, a few at a time, and others are claimed.

use super::lane::Turn;
use crate::clock::instant;
use std::cmp::Reverse;
use std::time::{Duration, Instant};

pub(super) struct Aside {
    /// In the order in which they are asked.
    all: Vec<Waiting>,
    /// More than so many fill the hand: the driver claims when a quarter of it is free.
    most: usize,
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

/// How often to look for those that were cancelled meanwhile.
const LOOK: Duration = Duration::from_secs(1);

/// A wait that no clock can add is as good as this.
const LONGEST: Duration = Duration::from_secs(86_400);

impl Aside {
    /// For a lane that holds so many.
    pub(super) fn of(most: u32) -> Self {
        let most = usize::try_from(most / 2).unwrap_or(usize::MAX);
        Self { all: Vec::new(), most, next_return: instant(), pause: PAUSE_FIRST }
    }

    pub(super) fn add(&mut self, turn: Turn, wait: Duration) {
        let again_at = instant() + wait.min(LONGEST);
        let at = self.all.partition_point(|other| rank(&other.turn) <= rank(&turn));
        self.all.insert(at, Waiting { turn, again_at });
    }

    /// The first one that has to be looked at now.
    pub(super) fn take_due(&mut self) -> Option<Turn> {
        let now = instant();
        let is_due = |one: &Waiting| one.looked_at() <= now || one.turn.stop.is_lost();
        self.all.iter().position(is_due).map(|at| self.all.remove(at).turn)
    }

    /// When to look again.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let soonest = self.all.iter().map(Waiting::looked_at).min()?;
        Some(soonest.min(instant() + LOOK))
    }

    /// Others were found behind them that may start: it is worth looking for more.
    pub(super) fn found(&mut self) {
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

    pub(super) fn into_turns(self) -> impl Iterator<Item = Turn> {
        self.all.into_iter().map(|one| one.turn)
    }
}

impl Waiting {
    fn looked_at(&self) -> Instant {
        self.turn.start_by.map_or(self.again_at, |start_by| start_by.min(self.again_at))
    }
}

/// As the driver deals them: the highest priority first, then the oldest.
fn rank(turn: &Turn) -> impl Ord {
    (Reverse(turn.claimed.priority), turn.claimed.create_time)
}
