//! Random traces: what callers might do, and when, with a taste for the instants
//! at which limiters go wrong.
//!
//! A trace is made while the model runs it, so that it can ask again exactly when it
//! is due, take exactly what is left, and give back what it really has.

use crate::model::Store;
use crate::rng::Rng;
use crate::step::{Act, Runner, Step};
use crate::{Denied, Mode, Model, Seen};
use tidegate::{Algorithm, Limit};

/// A year, for clocks that jump.
pub const YEAR_US: u64 = 365 * 24 * 3600 * 1_000_000;

/// What a trace is made of.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Grants are refunded, settled and cancelled.
    pub gives_back: bool,
    /// The clock jumps a year, or less, either way.
    pub jumps: bool,
    /// The limits that are changed to.
    pub changes: Vec<Limit>,
    /// How many of a hundred steps are changes, where there are limits to change to.
    pub change_percent: u64,
    /// Nodes end and start again under another limit.
    pub restarts: bool,
    /// The store that the model stands for.
    pub store: Store,
    /// When it begins.
    pub begins_us: u64,
    /// How many steps.
    pub steps: usize,
}

impl Traffic {
    /// Checks, peeks, reservations and resets; the clock only runs forward.
    pub fn plain() -> Self {
        Self {
            gives_back: false,
            jumps: false,
            changes: Vec::new(),
            change_percent: 5,
            restarts: false,
            store: Store::Memory,
            begins_us: 0,
            steps: 120,
        }
    }
}

/// Two of the limits, a few, or all: so that traces go there and back, and far around.
pub fn some_of(limits: &[Limit], rng: &mut Rng) -> Vec<Limit> {
    match rng.below(4) {
        0 => limits.to_vec(),
        few => (0..=few * 2).map(|_| rng.pick(limits).clone()).collect(),
    }
}

/// A random trace over nodes under `limits`; the same seed makes the same trace.
///
/// # Panics
/// Where there is no limit.
pub fn random(limits: &[Limit], traffic: &Traffic, seed: u64) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    let keys = (1..=rng.between(1, 4)).map(|_| rng.pick(&KEYS).to_vec()).collect();
    let limit = &limits[0];
    let mut maker = Maker {
        model: Model::on(traffic.store, limits),
        nodes: limits.len(),
        node: 0,
        limit: limit.clone(),
        now_us: traffic.begins_us,
        changed_us: None,
        runner: Runner::default(),
        grants: Vec::new(),
        instants_us: Vec::new(),
        left: limit.capacity(),
        keys,
        rng,
    };
    (0..traffic.steps).map(|id| maker.step(id, traffic)).collect()
}

const KEYS: [&[u8]; 6] = [b"a", b"b", b"", b"user:12345678", b"\0\0", &[b'x'; 300]];

/// A grant that lives.
struct Lives {
    step: usize,
    key: Vec<u8>,
    cost: u64,
    is_whole: bool,
}

struct Maker {
    rng: Rng,
    model: Model,
    nodes: usize,
    /// The node that is asked, and its limit.
    node: usize,
    limit: Limit,
    now_us: u64,
    changed_us: Option<u64>,
    runner: Runner,
    keys: Vec<Vec<u8>>,
    grants: Vec<Lives>,
    /// Instants at which a decision said that a check fits, a call starts, or a key is as good as new.
    instants_us: Vec<u64>,
    left: u64,
}

impl Maker {
    fn step(&mut self, id: usize, traffic: &Traffic) -> Step {
        if self.nodes > 1 && self.rng.percent(40) {
            let nodes: Vec<usize> = (0..self.nodes).collect();
            self.node = *self.rng.pick(&nodes);
            self.model.turn_to(self.node);
            self.limit = self.model.limit().clone();
        }
        self.pass_time(traffic);
        let key = self.rng.pick(&self.keys).clone();
        let step = Step { id, now_us: self.now_us, node: self.node, act: self.act(&key, traffic), key };
        let results = self.runner.step(&mut self.model, &step);
        self.learn(&step, &results);
        step
    }

    fn learn(&mut self, step: &Step, results: &[Seen]) {
        match step.act {
            Act::Decide { cost, mode: Mode::Reserve } if results.first().is_some_and(|seen| seen.allowed) => {
                self.grants.push(Lives { step: step.id, key: step.key.clone(), cost, is_whole: true });
            }
            // What a grant of a forgotten key is worth is not the suite's to say, nor what one of
            // an ended process is.
            Act::Reset => self.grants.retain(|grant| grant.key != step.key),
            Act::Restart(_) => self.grants.clear(),
            _ => {}
        }
        for seen in results {
            self.left = seen.remaining;
            let later_us = match seen.denial {
                Some(Denied::Later(us)) => us,
                _ => seen.wait_us.max(seen.reset_us),
            };
            self.instants_us.insert(0, self.now_us.saturating_add(later_us));
            self.instants_us.truncate(4);
        }
    }

    fn pass_time(&mut self, traffic: &Traffic) {
        if traffic.jumps && self.rng.percent(8) {
            let by = *self.rng.pick(&[YEAR_US, 3 * self.period_us(), self.period_us() / 2, 1]);
            let by = self.rng.between(by / 2, by);
            let forward = self.now_us < 7 * YEAR_US && self.rng.percent(50);
            self.now_us = if forward {
                self.now_us + by
            } else {
                self.now_us.saturating_sub(by).max(traffic.begins_us)
            };
            return;
        }
        let (period, cell, wait) = (self.period_us(), self.cell_us(), micros(self.limit.wait()));
        let slice = match *self.limit.algorithm() {
            Algorithm::SlidingWindow { slices } => period.div_ceil(slices),
            Algorithm::WarmUp { warmup } => micros(warmup).div_ceil(3),
            _ => period,
        };
        let around = |rng: &mut Rng, us: u64| (us + rng.below(3)).saturating_sub(1);
        let rng = &mut self.rng;
        let step = match rng.below(100) {
            0..35 => 0,
            35..42 => 1,
            42..55 => around(rng, cell),
            55..60 => rng.below(3 * cell),
            60..65 => around(rng, slice),
            65..68 => around(rng, slice - self.now_us % slice),
            68..72 => around(rng, period),
            72..75 => around(rng, period - self.now_us % period),
            75..77 => around(rng, wait),
            77..80 => rng.below(5 * period),
            _ => {
                let instant_us = if self.instants_us.is_empty() { 0 } else { *rng.pick(&self.instants_us) };
                around(rng, instant_us.saturating_sub(self.now_us))
            }
        };
        // Traces stay within what a clock shows in ten years.
        self.now_us = if self.now_us + step < 9 * YEAR_US { self.now_us + step } else { self.now_us };
    }

    fn act(&mut self, key: &[u8], traffic: &Traffic) -> Act {
        // Twice at one instant, memory could not tell which was in force when a key was written.
        let may_change = self.changed_us != Some(self.now_us);
        if !traffic.changes.is_empty() && may_change && self.rng.percent(traffic.change_percent) {
            self.changed_us = Some(self.now_us);
            self.limit = self.rng.pick(&traffic.changes).clone();
            let limit = Box::new(self.limit.clone());
            let is_new = traffic.restarts && self.rng.percent(30);
            return if is_new { Act::Restart(limit) } else { Act::Change(limit) };
        }
        if self.rng.percent(1) {
            return Act::Reset;
        }
        let mine: Vec<usize> = (0..self.grants.len()).filter(|at| self.grants[*at].key == key).collect();
        if !mine.is_empty() && self.rng.percent(if traffic.gives_back { 25 } else { 3 }) {
            return self.end_of(*self.rng.clone().pick(&mine), traffic.gives_back);
        }
        let mode = match self.rng.below(10) {
            0..5 => Mode::Check,
            5..9 => Mode::Reserve,
            _ => Mode::Peek,
        };
        Act::Decide { cost: self.cost(), mode }
    }

    fn end_of(&mut self, at: usize, gives_back: bool) -> Act {
        let (of, cost) = (self.grants[at].step, self.grants[at].cost);
        let kind = if gives_back { self.rng.below(5) } else { 4 };
        if kind <= 1 {
            let units = self.rng.between(0, cost.saturating_add(1));
            self.grants[at].cost = cost.saturating_sub(units);
            self.grants[at].is_whole = false;
            return Act::Refund { of, units };
        }
        match (kind, self.grants.remove(at).is_whole) {
            // A true cost after a refund would have two meanings.
            (2, true) => {
                let cost = self.rng.between(0, cost.saturating_mul(2).saturating_add(1));
                Act::Settle { of, cost }
            }
            (2 | 3, _) => Act::Cancel { of },
            _ => Act::Release { of },
        }
    }

    fn cost(&mut self) -> u64 {
        let burst = self.limit.capacity();
        let wait_units = micros(self.limit.wait()) / self.cell_us();
        match self.rng.below(100) {
            0..3 => 0,
            3..5 => u64::MAX,
            5..15 => self.left,
            15..18 => self.left + 1,
            18..30 => self.rng.between(2, burst + 3),
            30..34 => self.rng.between(burst, burst + wait_units + 2),
            34..44 => self.rng.between(1, 3),
            _ => 1,
        }
    }

    fn period_us(&self) -> u64 {
        micros(self.limit.period()).max(1)
    }

    fn cell_us(&self) -> u64 {
        self.period_us().div_ceil(self.limit.amount())
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("a limit's durations fit")
}
