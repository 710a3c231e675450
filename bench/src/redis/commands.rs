//! What denials cost Redis: script calls for each unit that comes back, for each client process,
//! while one key gets many more requests than it allows. With nothing remembered it is every call;
//! a process that remembers denials needs one call to get hold of a unit.

use super::allowance::Allowance;
use super::client::Work;
use super::clients::Clients;
use super::contenders::{LIMITADOR_NOTE, Layers, PEERS, SEEDS, Who};
use super::hot::{CALLERS, NODES};
use super::server::Server;
use super::trial::{Expect, Setting, Trial, Trials};
use crate::report::{Base, Better, Case, Plan};
use crate::rounds::{Entrant, Measured, alternate};
use crate::{Fallible, Wanted};
use std::thread::sleep;
use std::time::Duration;

const NAME: &str = "hot.denied.commands";
/// Until the burst is used up.
const WARM_UP: Duration = Duration::from_millis(1_000);
const COUNTED: Duration = Duration::from_millis(2_000);
/// The clients run on until the counting is over.
const RUN_MS: u64 = 3_300;

pub fn run(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    if !wanted.case(NAME) {
        return Ok(Vec::new());
    }
    let work = Work::Hot { callers: CALLERS, run_ms: RUN_MS };
    let setting = Setting { nodes: NODES, allowance: Allowance::HOT, work, expect: Expect::Bound };
    let trials = Trials::default();
    let ours = [Layers::Exact, Layers::NoCoalescing].map(Who::Ours);
    let all = ours.into_iter().chain(PEERS.iter().copied());
    let entrants = all
        .map(|who| {
            let (setting, trials) = (&setting, &trials);
            Entrant::new(who.name(), who.role(), move |_| counted(setting, who, trials))
        })
        .collect();
    let series = alternate(NAME, entrants, wanted.rounds)?;
    let mut notes = vec![
        format!(
            "one key limited to {}, {} callers in {NODES} processes; script calls (INFO commandstats) in {:.0} s \
             after the burst, divided by the processes and by the units that came back",
            setting.allowance.text(),
            u32::from(NODES) * CALLERS,
            COUNTED.as_secs_f64(),
        ),
        LIMITADOR_NOTE.into(),
        trials.admitted(),
    ];
    notes.extend(trials.costs());
    let base = Base::BestOf(SEEDS);
    let plan = Plan { name: NAME, unit: "calls", better: Better::Lower, base, notes };
    Ok(vec![Case::new(plan, &series)?])
}

fn counted(setting: &Setting, who: Who, trials: &Trials) -> Fallible<Measured> {
    let mut server = Server::start()?;
    let mut clients = Clients::ready(&setting.jobs(who, server.port))?;
    let begun = server.snapshot()?;
    clients.go()?;
    sleep(WARM_UP);
    let before = server.snapshot()?;
    sleep(COUNTED);
    let after = server.snapshot()?;
    let outcomes = clients.outcomes()?;
    let trial = Trial::new(setting.allowance, &outcomes, begun, server.snapshot()?);
    trials.push(who, trial);
    let freed = setting.allowance.freed(after.time_us - before.time_us);
    let calls = (after.script_calls - before.script_calls) as f64;
    Ok(Measured { value: calls / f64::from(setting.nodes) / freed, wrong: trial.wrong(setting.expect) })
}
