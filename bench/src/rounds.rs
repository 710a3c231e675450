//! Alternating rounds: every contender is measured once a round, in an order that rotates, so that
//! a machine that grows slower or busier during the run is slower for everybody.
//!
//! Knows nothing of what is measured: a suite hands over closures.

use crate::Fallible;
use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};

/// What a contender's figure is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Ours,
    /// Ours in another setting. Shown, never compared with.
    Variant,
    Peer,
    /// No limiter, but the least that any limiter has to do. Shown, never compared with.
    Yardstick,
}

/// One contender's figure in one round.
pub struct Measured {
    pub value: f64,
    /// Share of the answers that were not what the limit says.
    pub wrong: f64,
}

impl Measured {
    /// Measured by this program, started anew with these arguments: nobody else's leftovers count,
    /// and no address that the system happened to choose counts for a whole run. A line for
    /// each figure.
    pub fn in_own_process(arguments: &[&str]) -> Fallible<Vec<Self>> {
        let output =
            Command::new(std::env::current_exe()?).args(arguments).stderr(Stdio::inherit()).output()?;
        let text = String::from_utf8(output.stdout)?;
        let unreadable = || format!("the process of {arguments:?} printed {text:?}");
        if !output.status.success() {
            return Err(unreadable().into());
        }
        let line = |line: &str| {
            let (value, wrong) = line.split_once(' ').ok_or_else(unreadable)?;
            Ok(Self { value: value.parse()?, wrong: wrong.parse()? })
        };
        text.lines().map(line).collect()
    }

    /// What such a process prints, for [`in_own_process`](Self::in_own_process) to read.
    pub fn print(&self) {
        println!("{} {}", self.value, self.wrong);
    }
}

/// A contender, ready to be measured as often as needed; the closure gets the round's number, by
/// which it picks the same part of the workload as the others do.
pub struct Entrant<'a> {
    pub name: &'static str,
    pub role: Role,
    measure: Box<dyn FnMut(usize) -> Fallible<Measured> + 'a>,
}

impl<'a> Entrant<'a> {
    pub fn new(
        name: &'static str,
        role: Role,
        measure: impl FnMut(usize) -> Fallible<Measured> + 'a,
    ) -> Self {
        let measure = Box::new(measure);
        Self { name, role, measure }
    }
}

/// A contender's figures, one a round.
pub struct Series {
    pub name: &'static str,
    pub role: Role,
    pub values: Vec<f64>,
    /// The worst round's share of wrong answers.
    pub wrong: f64,
}

/// Measures all entrants `rounds` times, each round beginning with the next one in line.
pub fn alternate(case: &str, mut entrants: Vec<Entrant<'_>>, rounds: usize) -> Fallible<Vec<Series>> {
    let mut series: Vec<Series> = entrants
        .iter()
        .map(|entrant| Series {
            name: entrant.name,
            role: entrant.role,
            values: Vec::with_capacity(rounds),
            wrong: 0.0,
        })
        .collect();
    for round in 0..rounds {
        for offset in 0..entrants.len() {
            let next = (round + offset) % entrants.len();
            let entrant = &mut entrants[next];
            progress(case, &format!("round {}/{rounds}", round + 1), entrant.name);
            let measured =
                (entrant.measure)(round).map_err(|error| format!("{case}, {}: {error}", entrant.name))?;
            series[next].values.push(measured.value);
            series[next].wrong = series[next].wrong.max(measured.wrong);
        }
    }
    progress_done(case);
    Ok(series)
}

/// Says on stderr what is under way; on a terminal the line is overwritten by the next one.
pub fn progress(case: &str, stage: &str, who: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // A progress line that cannot be written is no reason to lose the run.
        let _ = write!(stderr, "\r\x1b[K{case}  {stage}  {who}");
        let _ = stderr.flush();
    }
}

pub fn progress_done(case: &str) {
    let mut stderr = std::io::stderr();
    let lead = if stderr.is_terminal() { "\r\x1b[K" } else { "" };
    let _ = writeln!(stderr, "{lead}{case}  done");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn each_round_measures_everybody_once_and_begins_with_the_next_one() {
        let order = RefCell::new(Vec::new());
        let entrants = ["a", "b", "c"]
            .into_iter()
            .map(|name| {
                let order = &order;
                Entrant::new(name, Role::Peer, move |round| {
                    order.borrow_mut().push(name);
                    Ok(Measured { value: round as f64, wrong: 0.0 })
                })
            })
            .collect();
        let series = alternate("test", entrants, 3).expect("the closures never fail");
        assert_eq!(order.into_inner(), ["a", "b", "c", "b", "c", "a", "c", "a", "b"]);
        assert!(series.iter().all(|one| one.values == [0.0, 1.0, 2.0]));
    }
}
