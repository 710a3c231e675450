//! One contender's run: a fresh server, fresh clients, the same work, and what it cost.

use super::allowance::Allowance;
use super::client::{Job, Outcome, Work};
use super::clients::Clients;
use super::contenders::{Target, Who};
use super::server::{Server, Snapshot};
use crate::Fallible;
use crate::report::median;
use crate::rounds::{Entrant, Measured};
use std::cell::RefCell;

/// What every client process of a case does.
#[derive(Clone, Copy)]
pub struct Setting {
    pub nodes: u16,
    pub allowance: Allowance,
    pub work: Work,
    pub expect: Expect,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Allowed,
    /// No more admitted than the allowance says.
    Bound,
}

/// What came of a run.
#[derive(Clone, Copy, Default)]
pub struct Trial {
    pub decisions: u64,
    pub allowed: u64,
    pub failed: u64,
    /// What the allowance admits between the first call and the last.
    pub at_most: u64,
    pub per_second: f64,
    pub server_cpu_us: u64,
    pub client_cpu_us: u64,
    pub script_calls: u64,
}

impl Setting {
    pub fn jobs(&self, who: Who, port: u16) -> Vec<Job> {
        let Self { allowance, work, .. } = *self;
        (0..self.nodes).map(|node| Job { who, target: Target { port, node, allowance }, work }).collect()
    }

    pub fn run(&self, who: Who) -> Fallible<Trial> {
        let mut server = Server::start()?;
        let mut clients = Clients::ready(&self.jobs(who, server.port))?;
        let before = server.snapshot()?;
        clients.go()?;
        let outcomes = clients.outcomes()?;
        let after = server.snapshot()?;
        Ok(Trial::new(self.allowance, &outcomes, before, after))
    }

    /// One entrant for each of these, which adds its runs to the trials.
    pub fn entrants<'a>(
        &'a self,
        all: impl IntoIterator<Item = Who>,
        trials: &'a Trials,
    ) -> Vec<Entrant<'a>> {
        all.into_iter()
            .map(|who| {
                Entrant::new(who.name(), who.role(), move |_| {
                    let trial = self.run(who)?;
                    // The callers alone call no server, so they have no costs.
                    if who != Who::Nobody {
                        trials.push(who, trial);
                    }
                    Ok(Measured { value: trial.per_second, wrong: trial.wrong(self.expect) })
                })
            })
            .collect()
    }
}

impl Trial {
    pub fn new(allowance: Allowance, outcomes: &[Outcome], before: Snapshot, after: Snapshot) -> Self {
        let sum = |part: fn(&Outcome) -> u64| outcomes.iter().map(part).sum();
        let first_us = outcomes.iter().map(|one| one.first_us).min().unwrap_or(0);
        let last_us = outcomes.iter().map(|one| one.last_us).max().unwrap_or(0);
        let rate = |one: &Outcome| one.decisions as f64 * 1e6 / one.elapsed_us.max(1) as f64;
        Self {
            decisions: sum(|one| one.decisions),
            allowed: sum(|one| one.allowed),
            failed: sum(|one| one.failed),
            at_most: allowance.at_most(last_us - first_us),
            per_second: outcomes.iter().map(rate).sum(),
            server_cpu_us: after.cpu_us - before.cpu_us,
            client_cpu_us: sum(|one| one.cpu_us),
            script_calls: after.script_calls - before.script_calls,
        }
    }

    /// Share of the decisions that the limit forbids, or that failed.
    pub fn wrong(&self, expect: Expect) -> f64 {
        let forbidden = match expect {
            Expect::Allowed => self.decisions - self.allowed - self.failed,
            Expect::Bound => self.allowed.saturating_sub(self.at_most),
        };
        (forbidden + self.failed) as f64 / self.decisions.max(1) as f64
    }
}

/// All runs of a case, for the notes beside its figures.
#[derive(Default)]
pub struct Trials(RefCell<Vec<(Who, Trial)>>);

impl Trials {
    pub fn push(&self, who: Who, trial: Trial) {
        self.0.borrow_mut().push((who, trial));
    }

    /// Processor time a decision, and calls: the server shares the processors with the load, and
    /// elsewhere it does not.
    pub fn costs(&self) -> Vec<String> {
        let per_decision =
            |part: fn(&Trial) -> u64| move |trial: &Trial| part(trial) as f64 / trial.decisions.max(1) as f64;
        vec![
            self.note("server's processor time a decision, µs", 3, per_decision(|trial| trial.server_cpu_us)),
            self.note("clients' processor time a decision, µs", 3, per_decision(|trial| trial.client_cpu_us)),
            self.note("decisions a script call", 1, |trial| {
                trial.decisions as f64 / trial.script_calls.max(1) as f64
            }),
        ]
    }

    pub fn admitted(&self) -> String {
        self.note("admitted, in % of what the limit allows at most in the time", 2, |trial| {
            trial.allowed as f64 * 100.0 / trial.at_most as f64
        })
    }

    /// The median of all runs, for each contender in the order in which they first came.
    fn note(&self, what: &str, decimals: usize, figure: impl Fn(&Trial) -> f64) -> String {
        let trials = self.0.borrow();
        let mut order: Vec<Who> = Vec::new();
        for (who, _) in trials.iter() {
            if !order.contains(who) {
                order.push(*who);
            }
        }
        let one = |who: &Who| {
            let own = trials.iter().filter(|(other, _)| other == who);
            let figures: Vec<f64> = own.map(|(_, trial)| figure(trial)).collect();
            format!("{} {:.decimals$}", who.name(), median(&figures))
        };
        format!("{what}: {}", order.iter().map(one).collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::client::perform;

    /// Two clients as threads: the test's program cannot be started again as a client.
    fn over_admitted(who: Who) -> Trial {
        let work = Work::Hot { callers: 32, run_ms: 500 };
        let allowance = Allowance { units: 100, period_s: 1 };
        let setting = Setting { nodes: 2, allowance, work, expect: Expect::Bound };
        let mut server = Server::start().unwrap();
        let before = server.snapshot().unwrap();
        let clients: Vec<_> = setting
            .jobs(who, server.port)
            .into_iter()
            .map(|job| std::thread::spawn(move || perform(&job, || Ok(())).map_err(|e| e.to_string())))
            .collect();
        let outcomes: Vec<Outcome> =
            clients.into_iter().map(|client| client.join().unwrap().unwrap()).collect();
        Trial::new(allowance, &outcomes, before, server.snapshot().unwrap())
    }

    #[test]
    fn a_log_whose_members_are_times_admits_too_many_and_is_caught() {
        let trial = over_admitted(Who::SeedsZset);
        assert!(trial.wrong(Expect::Bound) > 0.0, "{} of {}", trial.allowed, trial.at_most);
    }

    #[test]
    fn the_corrected_scripts_are_exact() {
        for who in [Who::Zset, Who::Tokens, Who::Gcra] {
            let trial = over_admitted(who);
            assert_eq!(trial.wrong(Expect::Bound), 0.0, "{}", who.name());
            assert!(trial.allowed >= 100, "{} admitted {}", who.name(), trial.allowed);
        }
    }

    #[test]
    fn a_failed_decision_counts_as_wrong() {
        let trial = Trial { decisions: 10, allowed: 9, failed: 1, at_most: 9, ..Trial::default() };
        assert_eq!(trial.wrong(Expect::Bound), 0.1);
        assert_eq!(trial.wrong(Expect::Allowed), 0.1);
        let one_over = Trial { at_most: 8, ..trial };
        assert_eq!(one_over.wrong(Expect::Bound), 0.2);
    }
}
