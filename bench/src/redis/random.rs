//! A hundred thousand keys, requested at random: by 256 callers in two processes, as the hot key
//! is, and by 64 in one process, where a call has less to share.

use super::allowance::Allowance;
use super::client::Work;
use super::contenders::{LIMITADOR_NOTE, Layers, PEERS, SCRIPTS_NOTE, Who, ZSET};
use super::hot::{CALLERS, NODES};
use super::trial::{Expect, Setting, Trials};
use crate::report::{Base, Better, Case, Plan};
use crate::rounds::alternate;
use crate::{Fallible, Wanted};

const KEYS: u32 = 100_000;
const RUN_MS: u64 = 3_000;

pub fn run(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    let mut cases = Vec::new();
    for (name, nodes, callers) in [("random.100k", NODES, CALLERS), ("random.100k.depth64", 1, 64)] {
        if wanted.case(name) {
            cases.push(case(name, nodes, callers, wanted)?);
        }
    }
    Ok(cases)
}

fn case(name: &'static str, nodes: u16, callers: u32, wanted: &Wanted<'_>) -> Fallible<Case> {
    let work = Work::Random { callers, keys: KEYS, run_ms: RUN_MS };
    let setting = Setting { nodes, allowance: Allowance::ROOMY, work, expect: Expect::Allowed };
    let trials = Trials::default();
    let ours = [Layers::Exact, Layers::Neither].map(Who::Ours);
    let peers = PEERS.iter().copied().filter(|who| *who != Who::LimitadorCached);
    let all = ours.into_iter().chain(peers);
    let series = alternate(name, setting.entrants(all, &trials), wanted.rounds)?;
    let mut notes = vec![
        format!(
            "{KEYS} keys, each limited to {}, {} callers in {nodes} processes, {:.0} s a run",
            setting.allowance.text(),
            u32::from(nodes) * callers,
            RUN_MS as f64 / 1e3
        ),
        SCRIPTS_NOTE.into(),
        LIMITADOR_NOTE.into(),
        "limitador's cached store is left out: by default it is for 10,000 keys, and with these it did not end \
         within its time"
            .into(),
    ];
    notes.extend(trials.costs());
    let base = Base::BestOf(&[ZSET]);
    let plan = Plan { name, unit: "decisions/s", better: Better::Higher, base, notes };
    Case::new(plan, &series)
}
