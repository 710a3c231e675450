//! From the rounds' figures to what is printed and stored: medians, spread, ratios, the table, and the
//! file in `results/`. Every suite reports in this one form.

mod machine;
mod table;

pub use machine::Watch;

use crate::Fallible;
use crate::rounds::{Role, Series};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// One suite's results, as they stand in `results/<suite>.json`.
#[derive(Serialize)]
pub struct Report {
    suite: &'static str,
    machine: String,
    cases: Vec<Case>,
}

/// One case's results: medians, and how ours stand against the base.
#[derive(Serialize)]
pub struct Case {
    name: &'static str,
    unit: &'static str,
    ours: f64,
    peers: BTreeMap<&'static str, f64>,
    /// Median of the rounds' ratios; above 1 is better for us.
    ratio: f64,
    /// The worst and the best round's ratio.
    low: f64,
    high: f64,
    /// What `ratio` is against.
    base: String,
    notes: Vec<String>,
    #[serde(skip)]
    rows: Vec<Row>,
    /// Share of our own answers that were wrong: such a figure must not be believed.
    #[serde(skip)]
    wrong: f64,
}

/// A contender's line in the table.
struct Row {
    name: &'static str,
    median: f64,
    low: f64,
    high: f64,
}

/// What is known of a case before it is measured.
pub struct Plan {
    pub name: &'static str,
    pub unit: &'static str,
    pub better: Better,
    pub base: Base,
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
}

/// What our figure is divided by.
#[derive(Clone, Copy)]
pub enum Base {
    /// The peer with the best median among those that answered correctly; the ratio against the
    /// named one is noted beside it.
    BestPeerAndAlso(&'static str),
    /// The best of these by its median, if one of them answered correctly; the ratios against all other peers are noted beside it.
    BestOf(&'static [&'static str]),
    Peer(&'static str),
    /// The figure is a ratio already, of us against ourselves.
    Itself(&'static str),
    /// No contender, but a figure that ours should not be worse than.
    Goal(f64),
}

impl Case {
    /// Judges the measured rounds by the plan.
    pub fn new(plan: Plan, series: &[Series]) -> Fallible<Self> {
        let named = |name: &str| series.iter().find(|one| one.name == name);
        let ours = series.iter().find(|one| one.role == Role::Ours).ok_or("nobody ran for us")?;
        let missing = |name: &str| format!("{}: the base {name} did not run", plan.name);
        let mut notes = plan.notes;
        let (base, ratios) = match plan.base {
            Base::Itself(what) => (what.to_owned(), ours.values.clone()),
            Base::Goal(goal) => {
                let base = format!("the goal, {goal} {}", plan.unit);
                (base, ours.values.iter().map(|value| better_by(*value, goal, plan.better)).collect())
            }
            Base::Peer(name) => {
                let peer = named(name).ok_or_else(|| missing(name))?;
                (name.to_owned(), ratios(ours, peer, plan.better))
            }
            Base::BestPeerAndAlso(also) => {
                let best = best_peer(series.iter(), plan.better).ok_or("no peer answered correctly")?;
                let other = named(also).ok_or_else(|| missing(also))?;
                notes.push(against(ours, other, plan.better));
                let base = format!("{}, the best correct peer", best.name);
                (base, ratios(ours, best, plan.better))
            }
            Base::BestOf(names) => {
                let named = || series.iter().filter(|one| names.contains(&one.name));
                let best = best_peer(named(), plan.better)
                    .or_else(|| named().next())
                    .ok_or_else(|| missing(&names.join(" or ")))?;
                let others = series.iter().filter(|one| one.role == Role::Peer && one.name != best.name);
                notes.extend(others.map(|other| against(ours, other, plan.better)));
                let base = match names {
                    [_] => best.name.to_owned(),
                    _ => format!("{}, the best of {}", best.name, names.join(", ")),
                };
                (base, ratios(ours, best, plan.better))
            }
        };
        notes.extend(series.iter().filter_map(note_of));
        Ok(Self {
            name: plan.name,
            unit: plan.unit,
            ours: rounded(median(&ours.values)),
            peers: series
                .iter()
                .filter(|one| one.role == Role::Peer)
                .map(|one| (one.name, rounded(median(&one.values))))
                .collect(),
            ratio: rounded(median(&ratios)),
            low: rounded(low(&ratios)),
            high: rounded(high(&ratios)),
            base,
            notes,
            rows: series.iter().filter(|one| one.role != Role::Yardstick).map(Row::new).collect(),
            wrong: series
                .iter()
                .filter(|one| matches!(one.role, Role::Ours | Role::Variant))
                .map(|one| one.wrong)
                .fold(0.0, f64::max),
        })
    }
}

impl Row {
    fn new(series: &Series) -> Self {
        Self {
            name: series.name,
            median: median(&series.values),
            low: low(&series.values),
            high: high(&series.values),
        }
    }
}

impl Report {
    pub fn new(suite: &'static str, cases: Vec<Case>, watch: &Watch) -> Self {
        let mut machine = machine::describe();
        if let Some(others) = watch.others() {
            machine += &format!("; others used {:.0} % of the processors", others * 100.0);
        }
        Self { suite, machine, cases }
    }

    /// Writes `results/<suite>.json` beside the bench's manifest; says where, without the paths of
    /// this machine.
    pub fn write(&self) -> Fallible<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        std::fs::create_dir_all(&folder)?;
        let name = format!("{}.json", self.suite);
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(folder.join(&name), text)?;
        Ok(format!("bench/results/{name}"))
    }

    /// A speed reached with wrong answers is none, so it fails the run.
    pub fn verdict(&self) -> Fallible<()> {
        let faults: Vec<String> = self
            .cases
            .iter()
            .filter(|case| case.wrong > 0.0)
            .map(|case| format!("{} ({:.2} %)", case.name, case.wrong * 100.0))
            .collect();
        if faults.is_empty() {
            return Ok(());
        }
        Err(format!("tidegate answered wrongly in {}", faults.join(", ")).into())
    }
}

/// How ours stand against one that is not the base.
fn against(ours: &Series, other: &Series, better: Better) -> String {
    let ratios = ratios(ours, other, better);
    format!("against {}: {:.2} ({:.2} to {:.2})", other.name, median(&ratios), low(&ratios), high(&ratios))
}

fn note_of(series: &Series) -> Option<String> {
    match series.role {
        Role::Yardstick => Some(format!("without any limiter, {}", spread(series))),
        _ if series.wrong > 0.0 => {
            Some(format!("{} answered {:.2} % wrongly, so it is no base", series.name, series.wrong * 100.0))
        }
        Role::Variant => Some(spread(series)),
        Role::Ours | Role::Peer => None,
    }
}

fn spread(series: &Series) -> String {
    format!(
        "{}: {} ({} to {})",
        series.name,
        table::figure(median(&series.values)),
        table::figure(low(&series.values)),
        table::figure(high(&series.values))
    )
}

fn best_peer<'a>(series: impl Iterator<Item = &'a Series>, better: Better) -> Option<&'a Series> {
    series.filter(|one| one.role == Role::Peer && one.wrong == 0.0).min_by(|a, b| {
        let (a, b) = (median(&a.values), median(&b.values));
        match better {
            Better::Lower => a.total_cmp(&b),
            Better::Higher => b.total_cmp(&a),
        }
    })
}

/// Round by round, how many times better ours is: neighbours in time are compared, not medians of
/// different minutes.
fn ratios(ours: &Series, base: &Series, better: Better) -> Vec<f64> {
    let pairs = ours.values.iter().zip(&base.values);
    pairs.map(|(ours, base)| better_by(*ours, *base, better)).collect()
}

fn better_by(ours: f64, base: f64, better: Better) -> f64 {
    match better {
        Better::Lower => base / ours,
        Better::Higher => ours / base,
    }
}

/// How many times as large the one is as the other, for cases whose goal is stated so.
pub fn ratios_note(what: &str, one: &Series, other: &Series) -> String {
    let ratios = ratios(one, other, Better::Higher);
    format!("{what}: {:.2} ({:.2} to {:.2})", median(&ratios), low(&ratios), high(&ratios))
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

fn low(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn high(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// Three decimals: more would be noise in every diff of the results.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &'static str, role: Role, values: &[f64], wrong: f64) -> Series {
        Series { name, role, values: values.to_vec(), wrong }
    }

    fn plan(base: Base) -> Plan {
        Plan { name: "test", unit: "ns", better: Better::Lower, base, notes: Vec::new() }
    }

    #[test]
    fn ratio_is_the_median_of_the_rounds_ratios_against_the_best_correct_peer() {
        let all = [
            series("us", Role::Ours, &[10.0, 20.0, 10.0], 0.0),
            series("slow", Role::Peer, &[50.0, 50.0, 50.0], 0.0),
            series("good", Role::Peer, &[20.0, 30.0, 40.0], 0.0),
            series("liar", Role::Peer, &[1.0, 1.0, 1.0], 0.5),
        ];
        let case = Case::new(plan(Base::BestPeerAndAlso("slow")), &all).expect("all ran");
        assert_eq!((case.low, case.ratio, case.high), (1.5, 2.0, 4.0));
        assert!(case.base.starts_with("good"));
        assert_eq!(case.notes.len(), 2, "{:?}", case.notes);
        assert_eq!(case.peers["liar"], 1.0);
    }

    #[test]
    fn the_best_of_the_named_is_the_base_and_the_others_and_variants_are_noted() {
        let all = [
            series("us", Role::Ours, &[10.0], 0.0),
            series("us, otherwise", Role::Variant, &[1.0], 0.0),
            series("one", Role::Peer, &[40.0], 0.0),
            series("two", Role::Peer, &[30.0], 0.0),
            series("three", Role::Peer, &[20.0], 0.0),
        ];
        let case = Case::new(plan(Base::BestOf(&["one", "two"])), &all).expect("all ran");
        assert_eq!(case.ratio, 3.0);
        assert_eq!(case.base, "two, the best of one, two");
        assert_eq!(case.peers.len(), 3);
        assert_eq!(
            case.notes,
            [
                "against one: 4.00 (4.00 to 4.00)",
                "against three: 2.00 (2.00 to 2.00)",
                "us, otherwise: 1.00 (1.00 to 1.00)"
            ]
        );
    }

    #[test]
    fn wrong_answers_of_ours_fail_the_run() {
        let all = [series("us", Role::Ours, &[10.0], 0.01), series("peer", Role::Peer, &[20.0], 0.0)];
        let case = Case::new(plan(Base::Peer("peer")), &all).expect("all ran");
        assert!(Report::new("test", vec![case], &Watch::start()).verdict().is_err());
    }
}
