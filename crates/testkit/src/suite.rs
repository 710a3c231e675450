//! The conformance suite: the same traces on the model and on a subject, compared
//! decision by decision and field by field.
//!
//! A store is given to it as a function from a limit to a [`Subject`]; nothing here
//! knows which store it is. What differs is reported as the shortest trace found. Mixtures
//! are the same with several nodes, whose limits differ and change.

use crate::model::Store;
use crate::rng::Rng;
use crate::step::{Runner, Step};
use crate::trace::{self, Traffic};
use crate::{Model, Seen, Subject};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tidegate::Limit;

/// Makes a fresh subject under a limit.
pub type MakeSubject<'a> = &'a dyn Fn(&Limit) -> Box<dyn Subject>;

/// Makes a fresh subject with a node a limit.
pub type MakeNodes<'a> = &'a dyn Fn(&[Limit]) -> Box<dyn Subject>;

/// Where a subject differs from the model.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The limits that both began under, a node each.
    pub limits: Vec<Limit>,
    /// The store that the model stood for.
    pub store: Store,
    /// What makes the whole trace again.
    pub seed: u64,
    /// The steps that are needed to show it; the last one shows it.
    pub steps: Vec<Step>,
    /// What the model shows at the last step: the decision, then the key as it stands.
    pub expected: Vec<Seen>,
    /// What the subject shows, or how it panicked.
    pub actual: Result<Vec<Seen>, String>,
}

/// Replays `traces` random traces and compares.
///
/// # Errors
/// With the first difference, as short as it could be made.
pub fn conforms(
    limit: &Limit,
    traffic: &Traffic,
    seed: u64,
    traces: u64,
    make: MakeSubject<'_>,
) -> Result<(), Box<Mismatch>> {
    (0..traces * cases()).try_for_each(|nth| conforms_once(limit, traffic, seed.wrapping_add(nth), make))
}

/// Replays one random trace and compares.
///
/// # Errors
/// With the first difference, as short as it could be made.
pub fn conforms_once(
    limit: &Limit,
    traffic: &Traffic,
    seed: u64,
    make: MakeSubject<'_>,
) -> Result<(), Box<Mismatch>> {
    compare(std::slice::from_ref(limit), traffic, seed, &|limits| make(&limits[0]))
}

/// Replays `traces` random traces on two to four nodes, each under one of the limits that
/// `traffic` changes to, and compares.
///
/// # Errors
/// With the first difference, as short as it could be made.
pub fn mixtures_conform(
    traffic: &Traffic,
    seed: u64,
    traces: u64,
    make: MakeNodes<'_>,
) -> Result<(), Box<Mismatch>> {
    for nth in 0..traces * cases() {
        let seed = seed.wrapping_add(nth);
        let mut rng = Rng::new(!seed);
        let few = trace::some_of(&traffic.changes, &mut rng);
        let limits: Vec<Limit> = (0..rng.between(2, 4)).map(|_| rng.pick(&few).clone()).collect();
        compare(&limits, &Traffic { changes: few, ..traffic.clone() }, seed, make)?;
    }
    Ok(())
}

fn compare(limits: &[Limit], traffic: &Traffic, seed: u64, make: MakeNodes<'_>) -> Result<(), Box<Mismatch>> {
    let steps = trace::random(limits, traffic, seed);
    match difference(traffic.store, limits, seed, &steps, make) {
        Some(found) => Err(Box::new(shortest(found, make))),
        None => Ok(()),
    }
}

/// How many times more traces than usual, from `TIDEGATE_CASES`. Default: 1.
pub fn cases() -> u64 {
    std::env::var("TIDEGATE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// The first step at which the subject differs from the model.
pub fn difference(
    store: Store,
    limits: &[Limit],
    seed: u64,
    steps: &[Step],
    make: MakeNodes<'_>,
) -> Option<Mismatch> {
    let (mut model, mut subject) = (Model::on(store, limits), make(limits));
    let (mut at_model, mut at_subject) = (Runner::default(), Runner::default());
    for (nth, step) in steps.iter().enumerate() {
        let expected = at_model.step(&mut model, step);
        let actual = catch_unwind(AssertUnwindSafe(|| at_subject.step(subject.as_mut(), step)))
            .map_err(|panic| panic_text(panic.as_ref()));
        if actual.as_ref() != Ok(&expected) {
            let steps = steps[..=nth].to_vec();
            let limits = limits.to_vec();
            return Some(Mismatch { limits, store, seed, steps, expected, actual });
        }
    }
    None
}

/// Leaves out steps, one by one, as long as some difference remains.
fn shortest(mut found: Mismatch, make: MakeNodes<'_>) -> Mismatch {
    let mut at = found.steps.len();
    while at > 0 {
        at -= 1;
        if at >= found.steps.len() {
            continue;
        }
        let mut fewer = found.steps.clone();
        fewer.remove(at);
        if let Some(shorter) = difference(found.store, &found.limits, found.seed, &fewer, make) {
            found = shorter;
            // What was needed before may not be any more.
            at = found.steps.len();
        }
    }
    found
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<String> = self.limits.iter().map(|limit| format!("`{limit}`")).collect();
        writeln!(f, "{} differs from the model (seed {}):", limits.join(", "), self.seed)?;
        let mut model = Model::on(self.store, &self.limits);
        let mut runner = Runner::default();
        for step in &self.steps {
            let results = runner.step(&mut model, step);
            writeln!(f, "  {step}\n      model   {results:?}")?;
        }
        match &self.actual {
            Ok(results) => write!(f, "      subject {results:?}"),
            Err(panic) => write!(f, "      subject panicked: {panic}"),
        }
    }
}

impl std::error::Error for Mismatch {}
