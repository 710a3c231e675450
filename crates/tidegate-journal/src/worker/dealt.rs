//! The driver's side of a lane: how much of its method to claim.
//!
//! What is claimed and cannot start at once is kept from other workers, and from those of a
//! higher priority that come later. So no more is held than what runs and what will have started
//! a moment later, as far as the last claims tell: much where handlers are quick, next to nothing
//! where they are slow.

use super::Method;
use super::crew::Crew;
use super::lane::Lane;
use super::line::Line;
use super::turn::Turn;
use crate::clock::instant;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(super) struct Dealt {
    pub(super) line: Arc<Line>,
    /// Nothing more was due; not asked again before.
    pub(super) dry_until: Option<Instant>,
    turns: Option<mpsc::UnboundedSender<Turn>>,
    task: JoinHandle<()>,
    /// How many records of this method may be in hand, whatever else is said.
    most: u32,
    /// How many of them can run at once.
    places: u32,
    /// How many to have ready beside those.
    ahead: u32,
    /// When it was last claimed, and how many had started by then.
    last: (Instant, u64),
    /// Also for a single one, so that it is noticed if it is of a higher priority.
    look_at: Instant,
}

/// What starts within so much time is claimed ahead.
const AHEAD: Duration = Duration::from_millis(100);

/// At least so many, and a quarter of the places.
const AHEAD_LEAST: u32 = 4;

impl Dealt {
    pub(super) fn start(crew: &Arc<Crew>, method: &Arc<Method>) -> Self {
        let (line, methods) = (Line::of(&method.name), crew.methods.len());
        let most = crew.plan.buffer / u32::try_from(methods).unwrap_or(u32::MAX).max(1);
        let places = crew.plan.concurrency.saturating_sub(methods.saturating_sub(1)).max(1);
        // Bounded by what is claimed.
        let (turns, queue) = mpsc::unbounded_channel();
        let task = tokio::spawn(Lane::new(crew, method, &line, queue, most.max(1)).run());
        let mut dealt = Self {
            line,
            dry_until: None,
            turns: Some(turns),
            task,
            most: most.max(1),
            places: u32::try_from(places).unwrap_or(u32::MAX),
            ahead: 0,
            last: (instant(), 0),
            look_at: instant(),
        };
        dealt.ahead = dealt.ahead_least();
        dealt
    }

    fn ahead_least(&self) -> u32 {
        (self.places / 4).max(AHEAD_LEAST)
    }

    /// How many more may be in hand. Those aside do not count: their gate keeps them, and who is
    /// behind them should be asked.
    fn free(&self, held: u32) -> u32 {
        let wanted = self.places.saturating_add(self.ahead).saturating_add(self.line.aside());
        self.most.min(wanted).saturating_sub(held)
    }

    /// How many to ask for now: not for every single place that comes free, but for a quarter of
    /// what is ahead at a time, unless the last time is long ago.
    pub(super) fn want(&mut self, held: u32, now: Instant) -> Option<u32> {
        if self.line.is_stuck() {
            return None;
        }
        if self.line.take_returned() {
            self.dry_until = None;
        }
        let is_dry = self.dry_until.is_some_and(|until| until > now);
        let free = self.free(held);
        let is_enough = free >= self.ahead.min(self.most).div_ceil(4) || now >= self.look_at;
        (!is_dry && free > 0 && is_enough).then_some(free)
    }

    /// When to claim where nothing happens before.
    pub(super) fn next_claim(&self, held: u32) -> Option<Instant> {
        if self.line.is_stuck() || self.free(held) == 0 {
            return None;
        }
        Some(self.dry_until.map_or(self.look_at, |dry| dry.max(self.look_at)))
    }

    /// It was claimed, and is asked again later.
    pub(super) fn claimed(&mut self, now: Instant, later: Instant, is_dry: bool) {
        let ((last, before), started) = (self.last, self.line.started());
        let passed = now.saturating_duration_since(last).max(Duration::from_millis(1));
        let soon = u128::from(started.saturating_sub(before)) * AHEAD.as_micros() / passed.as_micros();
        let soon = u32::try_from(soon).unwrap_or(u32::MAX).min(self.most);
        self.ahead = soon.max(self.ahead / 2).max(self.ahead_least());
        self.last = (now, started);
        self.look_at = later;
        self.dry_until = is_dry.then_some(later);
    }

    pub(super) fn deal(&self, turn: Turn) {
        if let Some(turns) = &self.turns {
            // The lane ends only after the driver.
            let _ = turns.send(turn);
        }
    }

    /// The lane gives back what it holds, and ends.
    pub(super) fn close(&mut self) {
        self.turns = None;
    }

    pub(super) fn abort(&self) {
        self.task.abort();
    }
}
