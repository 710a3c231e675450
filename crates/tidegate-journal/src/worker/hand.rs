//! What a lane holds and has not started: those to be asked next, in order, and those aside.

use super::aside::Aside;
use super::turn::Turn;
use crate::clock::instant;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(super) struct Hand {
    ready: BTreeMap<Rank, Turn>,
    nth: u64,
    pub(super) aside: Aside,
    /// One of those aside was asked last: one of the others is next. So neither waits for all
    /// of the other.
    was_aside: bool,
    /// By when to look for those that are over.
    next_look: Instant,
}

/// The highest priority first, then the oldest, then whichever came first.
type Rank = (super::turn::Rank, u64);

/// Where a turn stood.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Ready,
    Aside,
}

/// A deadline that passes is noticed when it does; this is for everything else.
const LOOK: Duration = Duration::from_secs(1);

impl Hand {
    /// For a lane that holds so many.
    pub(super) fn of(most: u32) -> Self {
        let next_look = instant() + LOOK;
        Self { ready: BTreeMap::new(), nth: 0, aside: Aside::of(most), was_aside: false, next_look }
    }

    pub(super) fn add(&mut self, turn: Turn) {
        self.next_look = turn.start_by.map_or(self.next_look, |start_by| start_by.min(self.next_look));
        self.nth += 1;
        self.ready.insert((turn.rank(), self.nth), turn);
    }

    /// Somebody could be asked now.
    pub(super) fn is_due(&self) -> bool {
        !self.ready.is_empty() || self.aside.is_due()
    }

    /// Who is asked now.
    pub(super) fn take_next(&mut self) -> Option<(Turn, From)> {
        let is_aside_first = !self.was_aside || self.ready.is_empty();
        if is_aside_first && let Some(turn) = self.aside.take_due() {
            self.was_aside = true;
            return Some((turn, From::Aside));
        }
        self.was_aside = false;
        self.ready.pop_first().map(|(_, turn)| (turn, From::Ready))
    }

    /// Those whose time is over, or who were lost.
    pub(super) fn take_over(&mut self) -> Vec<Turn> {
        let now = instant();
        let over: Vec<Rank> =
            self.ready.iter().filter(|(_, turn)| turn.is_over(now)).map(|(rank, _)| *rank).collect();
        let mut over: Vec<Turn> = over.iter().filter_map(|rank| self.ready.remove(rank)).collect();
        over.extend(self.aside.take_over(now));
        let soonest = self.ready.values().filter_map(|turn| turn.start_by).min();
        self.next_look = soonest.map_or(now + LOOK, |soonest| soonest.min(now + LOOK));
        over
    }

    pub(super) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// All of them, in order, and then those aside.
    pub(super) fn take_all(&mut self) -> Vec<Turn> {
        let ready = std::mem::take(&mut self.ready).into_values();
        ready.chain(self.aside.take_all()).collect()
    }
}
