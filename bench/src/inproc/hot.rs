//! One hot key: through a handle beside the direct limiters, and by its text beside the keyed ones.

use super::contenders::{
    Allowance, Hot, Keyed, LOCKED, direct, governor, limitador, throttlecrab, tidegate, yardstick,
};
use super::keys::{self, Key};
use super::timing::{Expect, Segments};
use crate::report::{Base, Better, Case, Plan};
use crate::rounds::{Entrant, Measured, Role, alternate};
use crate::{Fallible, Wanted};
use std::rc::Rc;

/// Keys that a table has room for, though only one comes.
const ROOM: u32 = 1_000;

/// Direct limiters and our handle: allowed, denied, and how denials scale.
pub fn by_handle(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    let mut cases = Vec::new();
    for (name, threads, expect) in [
        ("hot.allow.1t", 1, Expect::Allowed),
        ("hot.allow.2t", 2, Expect::Allowed),
        ("hot.deny.1t", 1, Expect::Denied),
        ("hot.deny.2t", 2, Expect::Denied),
    ] {
        if wanted.case(name) {
            let entrants = direct_entrants(expect, Loop::Timed { threads })?;
            let plan = plan(name, "ns", Better::Lower, Base::Peer(governor::NAME));
            cases.push(Case::new(plan, &alternate(name, entrants, wanted.rounds)?)?);
        }
    }
    let name = "hot.deny.scaling";
    if wanted.case(name) {
        let entrants = direct_entrants(Expect::Denied, Loop::Scaling)?;
        let itself = Base::Itself("itself: two threads' throughput over one thread's");
        let plan = plan(name, "times", Better::Higher, itself);
        cases.push(Case::new(plan, &alternate(name, entrants, wanted.rounds)?)?);
    }
    Ok(cases)
}

/// One key by its text, on two threads.
pub fn by_text(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    let mut cases = Vec::new();
    for (name, expect) in [("hot.keyed.allow.2t", Expect::Allowed), ("hot.keyed.deny.2t", Expect::Denied)] {
        if wanted.case(name) {
            let mut plan = plan(name, "ns", Better::Lower, Base::Peer(governor::NAME));
            plan.notes.push(LOCKED.into());
            let entrants = keyed_entrants(expect)?;
            cases.push(Case::new(plan, &alternate(name, entrants, wanted.rounds)?)?);
        }
    }
    Ok(cases)
}

/// What a hot case's figure is.
#[derive(Clone, Copy)]
pub enum Loop {
    /// Time of one decision.
    Timed { threads: usize },
    /// Throughput of two threads over that of one.
    Scaling,
}

fn direct_entrants(expect: Expect, figure: Loop) -> Fallible<Vec<Entrant<'static>>> {
    let allowance = allowance(expect);
    let mut entrants = vec![
        handle(tidegate::NAME, Role::Ours, tidegate::Handle::new(allowance)?, expect, figure),
        handle(governor::NAME, Role::Peer, governor::Direct::new(allowance)?, expect, figure),
        handle(direct::RATELIMIT, Role::Peer, direct::Ratelimit::new(allowance)?, expect, figure),
        handle(direct::LEAKY_BUCKET, Role::Peer, direct::LeakyBucket::new(allowance), expect, figure),
    ];
    let floor = Role::Yardstick;
    entrants.push(match expect {
        Expect::Denied => handle(yardstick::DENY, floor, yardstick::Deny::new(), expect, figure),
        _ => handle(yardstick::ALLOW, floor, yardstick::Allow::new(), expect, figure),
    });
    Ok(entrants)
}

/// A contender that has one key, or none.
pub fn handle(
    name: &'static str,
    role: Role,
    contender: impl Hot + 'static,
    expect: Expect,
    figure: Loop,
) -> Entrant<'static> {
    if expect == Expect::Denied {
        use_up(|| contender.check());
    }
    match figure {
        Loop::Timed { threads } => {
            let mut segments = Segments::new(threads, expect);
            Entrant::new(name, role, move |_| Ok(segments.hot(&contender)))
        }
        Loop::Scaling => {
            let mut one = Segments::new(1, expect);
            let mut two = Segments::new(2, expect);
            Entrant::new(name, role, move |_| {
                // One, two, two, one: a drift of the machine's speed cancels out.
                let begin = one.hot(&contender);
                let pairs = [two.hot(&contender), two.hot(&contender)];
                let end = one.hot(&contender);
                let alone_ns = begin.value + end.value;
                let together_ns = pairs[0].value + pairs[1].value;
                let all = [&begin, &pairs[0], &pairs[1], &end];
                Ok(Measured {
                    value: 2.0 * alone_ns / together_ns,
                    wrong: all.iter().map(|one| one.wrong).fold(0.0, f64::max),
                })
            })
        }
    }
}

fn keyed_entrants(expect: Expect) -> Fallible<Vec<Entrant<'static>>> {
    const THREADS: usize = 2;
    let limit = allowance(expect);
    let keys: Rc<[Key]> = keys::hot().into();
    let (ours, governor) = (tidegate::ByKey::new(limit, ROOM)?, governor::ByKey::new(limit)?);
    let throttlecrab = throttlecrab::ByKey::new(limit, ROOM);
    let limitador = limitador::ByKey::new(limit, ROOM)?;
    Ok(vec![
        keyed(tidegate::NAME, Role::Ours, ours, keys.clone(), THREADS, expect),
        keyed(governor::NAME, Role::Peer, governor, keys.clone(), THREADS, expect),
        keyed(throttlecrab::NAME, Role::Peer, throttlecrab, keys.clone(), THREADS, expect),
        keyed(limitador::NAME, Role::Peer, limitador, keys, THREADS, expect),
    ])
}

/// A contender that finds its keys by their text.
pub fn keyed(
    name: &'static str,
    role: Role,
    mut contender: impl Keyed + 'static,
    keys: Rc<[Key]>,
    threads: usize,
    expect: Expect,
) -> Entrant<'static> {
    if expect == Expect::Denied {
        use_up(|| contender.check(&keys[0]));
    }
    let mut segments = Segments::new(threads, expect);
    Entrant::new(name, role, move |round| Ok(segments.keyed(&mut contender, &keys, round)))
}

fn allowance(expect: Expect) -> Allowance {
    match expect {
        Expect::Denied => Allowance::TINY,
        Expect::Allowed | Expect::Anything => Allowance::ENDLESS,
    }
}

/// Takes what is there, so that only denials follow. Bounded: who never denies is found out by the
/// count of wrong decisions.
fn use_up(check: impl Fn() -> bool) {
    (0..256).take_while(|_| check()).for_each(drop);
}

fn plan(name: &'static str, unit: &'static str, better: Better, base: Base) -> Plan {
    Plan { name, unit, better, base, notes: Vec::new() }
}
