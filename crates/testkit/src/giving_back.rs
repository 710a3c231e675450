//! Callers that reserve, cancel, refund and settle in every order, to get more started
//! than a limit's published worst case.
//!
//! A start is counted when it happens, at its true cost: a reservation that is cancelled
//! before its start does not start, one that is settled or refunded counts what it kept.
//! Debts are left out: a call that costs more than it asked for exceeds its limit by that.

use crate::rng::Rng;
use crate::windows::{Edge, busiest};
use crate::{Mode, Subject};
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate::{Algorithm, Limit};

/// One limit of each kind, with waits, and costs that matter; short enough to go through
/// many states in a trace.
pub const LIMITS: [&str; 22] = [
    "10/s burst 10",
    "10/s burst 3 wait 2s",
    "10/s burst 10 wait 3s",
    "1000/s burst 20 wait 30ms",
    "10 per 91us burst 4 wait 50us",
    "leaky 10/s capacity 6",
    "leaky 10/s queue 5",
    "leaky 10 per 91us queue 9",
    "5 every 1s cap 10 wait 3s",
    "5 every 1s cap 8",
    "4 every 1s cap 2 wait 3s",
    "3 every 7us cap 10 wait 30us",
    "5 per 10s fixed-window wait 10s",
    "5 per 10s fixed-window",
    "10 per 1s fixed-window wait 3s",
    "5 per 1s sliding-window slices 4 wait 2s",
    "5 per 1s sliding-window",
    "9 per 10us sliding-log wait 20us",
    "5 per 1s sliding-log wait 2s",
    "10/s warmup 2s wait 3s",
    "1/s warmup 10s wait 1h",
    "10 per 91us warmup 70us wait 90us",
];

/// A reservation or a check that was let through.
struct Start {
    at_us: u64,
    /// What it kept.
    units: u64,
    grant: Option<usize>,
}

/// What callers did to one key.
struct Callers<'a> {
    limit: &'a Limit,
    subject: &'a mut dyn Subject,
    rng: Rng,
    now_us: u64,
    starts: Vec<Start>,
    grants: usize,
    largest: u64,
}

/// Runs `steps` random steps; tells how the worst case was exceeded, if it was.
pub fn overrun(limit: &Limit, subject: &mut dyn Subject, seed: u64, steps: usize) -> Option<String> {
    let rng = Rng::new(seed);
    let begins_us = 1_000_000_000;
    let mut callers =
        Callers { limit, subject, rng, now_us: begins_us, starts: Vec::new(), grants: 0, largest: 1 };
    (0..steps).for_each(|_| callers.step());
    callers.verdict()
}

impl Callers<'_> {
    fn step(&mut self) {
        self.pass_time();
        let alive: Vec<usize> =
            (0..self.starts.len()).filter(|at| self.starts[*at].grant.is_some()).collect();
        match self.rng.below(10) {
            0..2 => self.ask(Mode::Check),
            2..6 => self.ask(Mode::Reserve),
            _ if alive.is_empty() => self.ask(Mode::Reserve),
            6..9 => {
                // The newest ones matter most, and those of one crowd go together.
                let crowd = self.rng.between(1, 4);
                for _ in 0..crowd {
                    let alive: Vec<usize> = (0..self.starts.len())
                        .rev()
                        .filter(|at| self.starts[*at].grant.is_some())
                        .take(8)
                        .collect();
                    if !alive.is_empty() {
                        let at = *self.rng.pick(&alive);
                        self.cancel(at);
                    }
                }
            }
            _ => {
                let recent = &alive[alive.len().saturating_sub(8)..];
                let at = *self.rng.pick(recent);
                self.give_back_some(at);
            }
        }
        // A store that is told later has been told by the time that goes on.
        self.subject.decide(self.now_us, b"k", 1, Mode::Peek);
    }

    fn ask(&mut self, mode: Mode) {
        let cost = self.cost();
        let seen = self.subject.decide(self.now_us, b"k", cost, mode);
        if !seen.allowed {
            return;
        }
        self.largest = self.largest.max(cost);
        let grant = (mode == Mode::Reserve).then_some(self.grants);
        self.grants += usize::from(mode == Mode::Reserve);
        self.starts.push(Start { at_us: self.now_us + seen.wait_us, units: cost, grant });
    }

    fn cancel(&mut self, at: usize) {
        if let Some(grant) = self.starts[at].grant.take() {
            self.subject.cancel(self.now_us, grant);
            self.starts[at].units = 0;
        }
    }

    fn give_back_some(&mut self, at: usize) {
        let kept = self.rng.between(0, self.starts[at].units);
        let Some(grant) = self.starts[at].grant else { return };
        if self.rng.percent(50) {
            self.subject.refund(self.now_us, grant, self.starts[at].units - kept);
        } else {
            self.subject.settle(self.now_us, grant, kept);
            self.starts[at].grant = None;
        }
        self.starts[at].units = kept;
    }

    fn cost(&mut self) -> u64 {
        let full = self.limit.capacity();
        let wait_units = micros(self.limit.wait()) / self.cell_us();
        match self.rng.below(10) {
            0..4 => 1,
            4..7 => self.rng.between(1, full),
            7..9 => full,
            _ => self.rng.between(1, full + wait_units.min(2 * full)),
        }
    }

    fn pass_time(&mut self) {
        let (cell_us, period_us) = (self.cell_us(), micros(self.limit.period()));
        let next = self.starts.iter().map(|start| start.at_us).filter(|at_us| *at_us > self.now_us).min();
        self.now_us += match self.rng.below(20) {
            0..11 => 0,
            11 => 1,
            12 => self.rng.below(2 * cell_us + 1),
            13 => self.rng.below(2 * period_us),
            14 => period_us - self.now_us % period_us,
            15 => (period_us - self.now_us % period_us).saturating_sub(1),
            _ => next.map_or(cell_us, |at_us| at_us - self.now_us),
        };
    }

    fn cell_us(&self) -> u64 {
        micros(self.limit.period()).div_ceil(self.limit.amount())
    }

    fn verdict(&self) -> Option<String> {
        let starts: Vec<(u64, u64)> =
            self.starts.iter().filter(|s| s.units > 0).map(|s| (s.at_us, s.units)).collect();
        let (limit, largest) = (self.limit, self.largest);
        for window_us in windows(limit) {
            let bound = limit.worst_case(Duration::from_micros(window_us), largest);
            let most = busiest(&starts, window_us, edge(limit));
            if most.units > bound {
                return Some(format!("`{limit}`: {most:?} in a window of {window_us}us, at most {bound}"));
            }
        }
        if !matches!(limit.algorithm(), Algorithm::FixedWindow) {
            return None;
        }
        let mut by_window: BTreeMap<u64, u64> = BTreeMap::new();
        for (at_us, units) in &starts {
            *by_window.entry(at_us / micros(limit.period())).or_default() += units;
        }
        let over = by_window.iter().find(|(_, units)| **units > limit.amount());
        over.map(|(window, units)| format!("`{limit}`: {units} in the window {window}"))
    }
}

/// Four callers who wait and then hang up together, in every order; tells the first order
/// after which the key is not as it was before they came.
pub fn lost_by_a_crowd(subject: &mut dyn Subject) -> Option<String> {
    let now_us = 1_000_000_000;
    let mut grants = 0;
    for nth in 0..256usize {
        let order = [nth / 64, nth / 16 % 4, nth / 4 % 4, nth % 4];
        if (0..4).any(|of| !order.contains(&of)) {
            continue;
        }
        let key = nth.to_be_bytes();
        let mut reserve = || {
            let seen = subject.decide(now_us, &key, 1, Mode::Reserve);
            assert!(seen.allowed, "a limit under which five can wait");
            seen
        };
        let before = reserve();
        for _ in 0..4 {
            reserve();
        }
        for of in order {
            subject.cancel(now_us, grants + 1 + of);
        }
        grants += 5;
        let after = subject.decide(now_us, &key, 1, Mode::Peek);
        if (after.remaining, after.reset_us) != (before.remaining, before.reset_us) {
            return Some(format!("{order:?}: {before:?} became {after:?}"));
        }
    }
    None
}

/// Windows shorter, as long and longer than everything that matters.
pub fn windows(limit: &Limit) -> Vec<u64> {
    let period_us = micros(limit.period());
    let cell_us = period_us.div_ceil(limit.amount());
    let around = [1, 2, cell_us, 3 * cell_us, period_us / 2, period_us, 2 * period_us, 7 * period_us];
    let mut windows: Vec<u64> =
        around.iter().flat_map(|us| [us.saturating_sub(1), *us, us + 1, us + 2]).collect();
    windows.retain(|us| *us > 0);
    windows.sort_unstable();
    windows.dedup();
    windows
}

/// Window and log promise `[a, a + W)`, buckets `[a, a + W]`.
pub fn edge(limit: &Limit) -> Edge {
    match limit.algorithm() {
        Algorithm::FixedWindow | Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog => Edge::Open,
        _ => Edge::Closed,
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("a limit's durations fit")
}
