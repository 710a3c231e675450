//! One hot key, 256 callers in two processes: nearly all denied, and all allowed.

use super::allowance::Allowance;
use super::client::Work;
use super::contenders::{LIMITADOR_NOTE, Layers, PEERS, SCRIPTS_NOTE, SEEDS, Who};
use super::trial::{Expect, Setting, Trials};
use crate::report::{Base, Better, Case, Plan};
use crate::rounds::alternate;
use crate::{Fallible, Wanted};

pub const NODES: u16 = 2;
/// A process's share of the 256.
pub const CALLERS: u32 = 128;
const RUN_MS: u64 = 3_000;

pub fn run(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    let mut cases = Vec::new();
    let name = "hot.exact";
    if wanted.case(name) {
        let ours = [Layers::Exact, Layers::NoDenialMemory, Layers::NoCoalescing, Layers::Neither];
        cases.push(case(name, Allowance::HOT, Expect::Bound, &ours, wanted)?);
    }
    let name = "hot.allowed";
    if wanted.case(name) {
        let ours = [Layers::Exact, Layers::Leases];
        cases.push(case(name, Allowance::ENDLESS, Expect::Allowed, &ours, wanted)?);
    }
    Ok(cases)
}

fn case(
    name: &'static str,
    allowance: Allowance,
    expect: Expect,
    ours: &[Layers],
    wanted: &Wanted<'_>,
) -> Fallible<Case> {
    let work = Work::Hot { callers: CALLERS, run_ms: RUN_MS };
    let setting = Setting { nodes: NODES, allowance, work, expect };
    let trials = Trials::default();
    let all = ours.iter().map(|layers| Who::Ours(*layers)).chain(PEERS.iter().copied());
    let all = all.chain((expect == Expect::Bound).then_some(Who::Nobody));
    let series = alternate(name, setting.entrants(all, &trials), wanted.rounds)?;
    let mut notes = vec![
        format!(
            "one key limited to {}, {} callers in {NODES} processes, {:.0} s a run",
            allowance.text(),
            u32::from(NODES) * CALLERS,
            RUN_MS as f64 / 1e3
        ),
        SCRIPTS_NOTE.into(),
        LIMITADOR_NOTE.into(),
    ];
    if expect == Expect::Bound {
        notes.push(trials.admitted());
    }
    notes.extend(trials.costs());
    let plan = Plan { name, unit: "decisions/s", better: Better::Higher, base: Base::BestOf(SEEDS), notes };
    Case::new(plan, &series)
}
