//! The conformance suite: the same traces on the model and on a subject, compared
//! decision by decision and field by field.
//!
//! A store is given to it as a function from a limit to a [`Subject`]; nothing here
//! knows which store it is. What differs is shown as the shortest trace found.

use crate::step::{Runner, Step};
use crate::trace::{self, Traffic};
use crate::{Model, Seen, Subject};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tidegate::Limit;

/// Makes a fresh subject under a limit.
pub type Make<'a> = &'a dyn Fn(&Limit) -> Box<dyn Subject>;

/// Where a subject differs from the model.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The limit that both were under.
    pub limit: Limit,
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
    make: Make<'_>,
) -> Result<(), Box<Mismatch>> {
    for nth in 0..traces * cases() {
        let seed = seed.wrapping_add(nth);
        let steps = trace::random(limit, traffic, seed);
        if let Some(found) = difference(limit, seed, &steps, make) {
            return Err(Box::new(shortest(found, make)));
        }
    }
    Ok(())
}

/// How many times more traces than usual, from `TIDEGATE_CASES`; 1 unless said.
pub fn cases() -> u64 {
    std::env::var("TIDEGATE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// The first step at which the subject differs from the model.
pub fn difference(limit: &Limit, seed: u64, steps: &[Step], make: Make<'_>) -> Option<Mismatch> {
    let (mut model, mut subject) = (Model::new(limit), make(limit));
    let (mut at_model, mut at_subject) = (Runner::default(), Runner::default());
    for (nth, step) in steps.iter().enumerate() {
        let expected = at_model.step(&mut model, step);
        let actual = catch_unwind(AssertUnwindSafe(|| at_subject.step(subject.as_mut(), step)))
            .map_err(|panic| panic_text(panic.as_ref()));
        if actual.as_ref() != Ok(&expected) {
            let steps = steps[..=nth].to_vec();
            return Some(Mismatch { limit: limit.clone(), seed, steps, expected, actual });
        }
    }
    None
}

/// Leaves out steps, one by one, as long as some difference remains.
fn shortest(mut found: Mismatch, make: Make<'_>) -> Mismatch {
    let mut at = found.steps.len();
    while at > 0 {
        at -= 1;
        if at >= found.steps.len() {
            continue;
        }
        let mut fewer = found.steps.clone();
        fewer.remove(at);
        if let Some(shorter) = difference(&found.limit, found.seed, &fewer, make) {
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
        writeln!(f, "`{}` differs from the model (seed {}):", self.limit, self.seed)?;
        let mut model = Model::new(&self.limit);
        let mut runner = Runner::default();
        for step in &self.steps {
            let shown = runner.step(&mut model, step);
            writeln!(f, "  {step}\n      model   {shown:?}")?;
        }
        match &self.actual {
            Ok(shown) => write!(f, "      subject {shown:?}"),
            Err(panic) => write!(f, "      subject panicked: {panic}"),
        }
    }
}

impl std::error::Error for Mismatch {}
