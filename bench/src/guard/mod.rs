//! The suite `guard`: what a rate-limiting layer costs a request over the bare service behind it,
//! without sockets, called as axum's router calls it; and what many rules cost.
//!
//! - `contenders`: the layers and the service behind them; `by_hand`: the least that one rule needs;
//! - `overhead`: the requests, and how the difference to the bare service is taken;
//! - `rules`: ten thousand rules, looked up and replaced.
//!
//! Each round is a process of its own, where all contenders alternate: where the system puts a stack
//! changes such figures by a tenth, and so does what else the machine has to do.

mod by_hand;
mod contenders;
mod overhead;
mod rules;

use crate::report::{Base, Better, Case, Plan, ratios_note};
use crate::rounds::{Measured, Role, Series, progress, progress_done};
use crate::{Fallible, Wanted};
use contenders::Call;
use overhead::{Contender, Floor, Situation};
use tidegate::Limiter;
use tidegate::http::Headers;

const TIDEGATE: &str = "tidegate";
const WITHOUT_HEADERS: &str = "tidegate, without headers";
const TOWER_GOVERNOR: &str = "tower-governor";
const ROUTED: &str = "tidegate, in a router";
const TOWER_GOVERNOR_ROUTED: &str = "tower-governor, in a router";
const FLOOR: &str = "what no layer can do without";
const BY_HAND: &str = "by hand, for this rule alone";

const LOOKUP: &str = "rules.10k";
const REPLACE: &str = "rules.10k.replace";
const DELAY: &str = "rules.10k.delay";

pub fn run(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    let mut cases = Vec::new();
    for situation in [Situation::Allowed, Situation::LivedIn, Situation::Denied] {
        if wanted.case(case_of(situation).0) {
            cases.push(overhead_case(situation, wanted.rounds)?);
        }
    }
    if wanted.case(LOOKUP) {
        cases.push(lookup_case(wanted.rounds)?);
    }
    if wanted.any(&[REPLACE, DELAY]) {
        cases.extend(replace_cases(wanted)?);
    }
    Ok(cases)
}

/// The name of the case, and the word for a child process.
fn case_of(situation: Situation) -> (&'static str, &'static str) {
    match situation {
        Situation::Allowed => ("layer.ns", "allowed"),
        Situation::LivedIn => ("layer.lived-in.ns", "lived-in"),
        Situation::Denied => ("layer.denied.ns", "denied"),
    }
}

fn overhead_case(situation: Situation, rounds: usize) -> Fallible<Case> {
    let (name, word) = case_of(situation);
    let mut contenders = vec![
        (TIDEGATE, Role::Ours),
        (WITHOUT_HEADERS, Role::Variant),
        (TOWER_GOVERNOR, Role::Peer),
        (ROUTED, Role::Variant),
        (TOWER_GOVERNOR_ROUTED, Role::Variant),
    ];
    let mut notes = vec![
        "processor time of a call through the layer, less that of the bare service, on one thread; each round is the median of a hundred segments, of all contenders in one process".to_owned(),
        "the service is cloned for each request, as axum's router does".to_owned(),
        "keyed by the peer's address, of a thousand clients; headers on: RateLimit and RateLimit-Policy here, x-ratelimit-* there".to_owned(),
    ];
    match situation {
        Situation::Allowed => contenders.extend([(FLOOR, Role::Yardstick), (BY_HAND, Role::Yardstick)]),
        Situation::LivedIn => notes.push(
            "a signed-in user, a used allowance, a response with a content type; the user also becomes the caller of the service here".to_owned(),
        ),
        Situation::Denied => {}
    }
    let names = contenders.iter().map(|(name, _)| *name);
    let arguments: Vec<&str> = ["layer", word].into_iter().chain(names).collect();
    let series = rounds_in_processes(name, &arguments, &contenders, rounds)?;
    notes.push(ratios_note(
        "in a router of axum, which also boxes the service, its future and its body, against tower-governor there",
        &series[4],
        &series[3],
    ));
    Case::new(
        Plan { name, unit: "ns", better: Better::Lower, base: Base::Peer(TOWER_GOVERNOR), notes },
        &series,
    )
}

fn lookup_case(rounds: usize) -> Fallible<Case> {
    const TEN: &str = "tidegate, ten rules";
    let contenders = [
        ("tidegate, 10,000 rules", Role::Ours),
        (TEN, Role::Variant),
        ("tidegate, 10,000 rules, most of them met", Role::Variant),
    ];
    let series = rounds_in_processes(LOOKUP, &["lookup"], &contenders, rounds)?;
    let mut notes = vec![
        "processor time of a request that meets two rules, less that of the bare service; rules with two patterns for each of 5,000 services, keyed by client".to_owned(),
        "requests go to five services in both; with most rules met they go to 2,000 of the services, so that rules and keys are not in the cache".to_owned(),
    ];
    notes.push(ratios_note(
        "goal: at most 2 times as long as with ten rules; measured",
        &series[0],
        &series[1],
    ));
    Case::new(Plan { name: LOOKUP, unit: "ns", better: Better::Lower, base: Base::Peer(TEN), notes }, &series)
}

fn replace_cases(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    let contenders = [
        ("tidegate, all limits change", Role::Ours),
        ("tidegate, one limit changes", Role::Variant),
        ("tidegate, while rules are replaced", Role::Ours),
        ("tidegate, as long without that", Role::Variant),
    ];
    let mut series = rounds_in_processes(REPLACE, &["replace"], &contenders, wanted.rounds)?;
    let delays = series.split_off(2);
    let load = "one thread sends requests, each as soon as the one before is answered, while another replaces 10,000 rules: each has a processor where there are two";
    let plan = |name, goal, note: &str| Plan {
        name,
        unit: "ms",
        better: Better::Lower,
        base: Base::Goal(goal),
        notes: vec![load.to_owned(), note.to_owned()],
    };
    let mut cases = Vec::new();
    if wanted.case(REPLACE) {
        let note = "the time of `Guard::replace`, median of up to ten; afterwards a request has to meet the new limit";
        cases.push(Case::new(plan(REPLACE, 100.0, note), &series)?);
    }
    if wanted.case(DELAY) {
        let note = "the longest request of a round, less the median one; as long without a replacement shows what the machine alone delays";
        cases.push(Case::new(plan(DELAY, 5.0, note), &delays)?);
    }
    Ok(cases)
}

/// All contenders of a round in one process, in segments of a millisecond: a machine that is slower
/// for a while is slower for all of them.
fn rounds_in_processes(
    case: &str,
    arguments: &[&str],
    contenders: &[(&'static str, Role)],
    rounds: usize,
) -> Fallible<Vec<Series>> {
    let series =
        |(name, role): &(&'static str, Role)| Series { name, role: *role, values: Vec::new(), wrong: 0.0 };
    let mut series: Vec<Series> = contenders.iter().map(series).collect();
    let arguments: Vec<&str> = ["guard-child"].iter().chain(arguments).copied().collect();
    for round in 0..rounds {
        progress(case, &format!("round {}/{rounds}", round + 1), "all alternate");
        for (one, measured) in series.iter_mut().zip(Measured::in_own_process(&arguments)?) {
            one.values.push(measured.value);
            one.wrong = one.wrong.max(measured.wrong);
        }
    }
    progress_done(case);
    Ok(series)
}

#[derive(clap::Args)]
pub struct ChildOptions {
    #[command(subcommand)]
    part: Part,
}

#[derive(clap::Subcommand)]
enum Part {
    Layer { situation: Situation, contenders: Vec<String> },
    Lookup,
    Replace,
}

/// The child's side: prints each contender's figure and share of wrong answers.
pub fn child(options: &ChildOptions) -> Fallible<()> {
    let measured = match &options.part {
        Part::Layer { situation, contenders } => {
            let mut contenders: Vec<Contender> =
                contenders.iter().map(|name| contender(*situation, name)).collect::<Fallible<_>>()?;
            overhead::measure(&mut contenders)
        }
        Part::Lookup => rules::lookup()?,
        Part::Replace => rules::replace()?,
    };
    measured.iter().for_each(Measured::print);
    Ok(())
}

fn contender(situation: Situation, name: &str) -> Fallible<Contender> {
    let ours = |call, headers| contenders::tidegate(call, situation, headers);
    let (target, call) = match name {
        TIDEGATE => (ours(Call::Cloned, Headers::default())?, Call::Cloned),
        WITHOUT_HEADERS => (ours(Call::Cloned, Headers::none())?, Call::Cloned),
        TOWER_GOVERNOR => (contenders::tower_governor(Call::Cloned, situation)?, Call::Cloned),
        ROUTED => (ours(Call::Routed, Headers::default())?, Call::Routed),
        TOWER_GOVERNOR_ROUTED => (contenders::tower_governor(Call::Routed, situation)?, Call::Routed),
        FLOOR => return floor(situation),
        BY_HAND => (contenders::by_hand(Call::Cloned, situation)?, Call::Cloned),
        other => return Err(format!("no contender is called {other:?}").into()),
    };
    let bare = Some(contenders::bare(call, situation));
    Ok(Contender { target, bare, requests: overhead::requests(situation), expected: situation.expected() })
}

fn floor(situation: Situation) -> Fallible<Contender> {
    let target = Box::new(Floor(Limiter::new().gate("floor", situation.limit())?));
    let requests = overhead::requests(situation);
    Ok(Contender { target, bare: None, requests, expected: situation.expected() })
}
