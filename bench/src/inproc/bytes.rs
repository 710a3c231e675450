//! Memory: what a process grows by when a contender learns ten million keys, each in a process of
//! its own, so that no other one's leftovers are reused. The keys are written into one buffer and
//! never held by the bench.

use super::contenders::{Allowance, Keyed, governor, limitador, throttlecrab, tidegate};
use super::keys::Key;
use crate::report::{Base, Better, Case, Plan};
use crate::rounds::{Entrant, Measured, Role, alternate};
use crate::{Fallible, Wanted};

const NAME: &str = "bytes.10m";
const KEYS: u32 = 10_000_000;
const LIMITADOR_KEYS: u32 = 1_000_000;

/// The figure hardly moves, and a round takes long.
const ROUNDS_MAX: usize = 3;

pub fn run(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    if !wanted.case(NAME) {
        return Ok(Vec::new());
    }
    let entrants =
        [(tidegate::NAME, Role::Ours), (governor::NAME, Role::Peer), (throttlecrab::NAME, Role::Peer)];
    let entrants =
        entrants.map(|(name, role)| Entrant::new(name, role, move |_| in_own_process(name, KEYS))).into();
    let series = alternate(NAME, entrants, wanted.rounds.min(ROUNDS_MAX))?;
    let limitador = in_own_process(limitador::NAME, LIMITADOR_KEYS)?.value;
    let plan = Plan {
        name: NAME,
        unit: "bytes a key",
        better: Better::Lower,
        base: Base::Peer(governor::NAME),
        notes: vec![
            format!("limitador at 1 M keys: {limitador:.0} bytes a key"),
            "growth of the resident set; afterwards a sample of the keys is checked again, and a \
             forgotten one counts as a wrong answer"
                .into(),
        ],
    };
    Ok(vec![Case::new(plan, &series)?])
}

fn in_own_process(contender: &str, keys: u32) -> Fallible<Measured> {
    let printed = Measured::in_own_process(&["bytes-child", contender, &keys.to_string()])?;
    printed.into_iter().next().ok_or_else(|| format!("{contender}'s process printed nothing").into())
}

#[derive(clap::Args)]
pub struct ChildOptions {
    contender: String,
    keys: u32,
}

/// The child's side: prints bytes a key and the share of wrong answers.
pub fn child(options: &ChildOptions) -> Fallible<()> {
    let (limit, keys) = (Allowance::TINY, options.keys);
    let measured = match options.contender.as_str() {
        tidegate::NAME => grown_by(keys, || tidegate::ByKey::new(limit, keys))?,
        governor::NAME => grown_by(keys, || governor::ByKey::new(limit))?,
        throttlecrab::NAME => grown_by(keys, || Ok(throttlecrab::ByKey::new(limit, keys)))?,
        limitador::NAME => grown_by(keys, || limitador::ByKey::new(limit, keys))?,
        other => return Err(format!("no contender is called {other:?}").into()),
    };
    measured.print();
    Ok(())
}

fn grown_by<K: Keyed>(keys: u32, build: impl FnOnce() -> Fallible<K>) -> Fallible<Measured> {
    let mut key = Key::numbered(0);
    let before = resident_bytes()?;
    let mut contender = build()?;
    let mut wrong = 0;
    for number in 0..keys {
        key.renumber(number);
        wrong += u32::from(!contender.check_alone(&key));
    }
    let grown = resident_bytes()?.saturating_sub(before);
    // The limit is two: whoever still has the first request allows a second and refuses a third.
    for number in (0..keys).step_by(97) {
        key.renumber(number);
        let second = contender.check_alone(&key);
        let third = contender.check_alone(&key);
        wrong += u32::from(!second || third);
    }
    let keys = f64::from(keys);
    Ok(Measured { value: grown as f64 / keys, wrong: f64::from(wrong) / keys })
}

fn resident_bytes() -> Fallible<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("this system has no VmRSS in /proc/self/status")?;
    let kib = line.split_whitespace().next().ok_or("VmRSS is empty")?;
    Ok(kib.parse::<u64>()? * 1024)
}
