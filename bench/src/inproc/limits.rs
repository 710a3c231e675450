//! What else a limiter does on a request than check one bucket: several limits at once, permits,
//! windows and logs, warm-up, and slots of a concurrency limit.

use super::contenders::by_hand::{self, Real};
use super::contenders::several::{self, Limits};
use super::contenders::{Allowance, Keyed, Stepped, governor, limitador, pingora, semaphore, throttlecrab};
use super::contenders::{LOCKED, tidegate};
use super::hot::{Loop, handle, keyed};
use super::keys::{Key, Spread, requests};
use super::timing::Expect;
use crate::report::{Base, Better, Case, Plan};
use crate::rounds::{Entrant, Role, alternate};
use crate::{Fallible, Wanted};
use std::rc::Rc;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);
const SECOND: Duration = Duration::from_secs(1);

/// Nobody reaches that in a second.
const ENDLESS: u32 = 1_000_000_000;
const FEW: u32 = 2;
const LOG: u32 = 100;
const SLOTS: u32 = 64;

/// Ours where nobody else has it: the plain check that it is compared with.
const CHECK: &str = "tidegate, check";
const BUCKET: &str = "tidegate, token bucket";

pub fn run(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    let mut cases = several_limits(wanted)?;
    for case in CASES {
        if wanted.case(case.name) {
            let entrants = (case.entrants)()?;
            let note = case.note.to_owned();
            cases.push(finish(case.name, case.base, vec![note], entrants, wanted)?);
        }
    }
    Ok(cases)
}

fn finish(
    name: &'static str,
    base: &'static str,
    notes: Vec<String>,
    entrants: Vec<Entrant<'_>>,
    wanted: &Wanted<'_>,
) -> Fallible<Case> {
    let base = Base::Peer(base);
    let plan = Plan { name, unit: "ns", better: Better::Lower, base, notes };
    Case::new(plan, &alternate(name, entrants, wanted.rounds)?)
}

/// Two limits and three, of a thousand users.
fn several_limits(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    const USERS: u32 = 1_000;
    const REQUESTS: usize = 1 << 14;
    let (by_user, of_all) = (Allowance::ROOMY, Allowance::ENDLESS);
    let two = Limits { by_user, by_tenant: None, of_all };
    let three = Limits { by_tenant: Some(Allowance::ROOMY), ..two };
    let denied = Limits { of_all: Allowance::TINY, ..two };
    let mut cases = Vec::new();
    for (name, limits, threads, expect) in [
        ("limits.2.1t", two, 1, Expect::Allowed),
        ("limits.2.2t", two, 2, Expect::Allowed),
        ("limits.2.deny.1t", denied, 1, Expect::Denied),
        ("limits.3.1t", three, 1, Expect::Allowed),
    ] {
        if !wanted.case(name) {
            continue;
        }
        let users: Rc<[Key]> = requests(Spread::Uniform, USERS, REQUESTS).into();
        let entrants = vec![
            several(tidegate::NAME, Role::Ours, several::Tidegate::new(limits)?, &users, threads, expect),
            several(governor::NAME, Role::Peer, several::Governor::new(limits)?, &users, threads, expect),
            several(
                throttlecrab::NAME,
                Role::Peer,
                several::Throttlecrab::new(limits),
                &users,
                threads,
                expect,
            ),
            several(limitador::NAME, Role::Peer, several::Limitador::new(limits)?, &users, threads, expect),
        ];
        let mut notes = vec![
            "by user, of all, and with three by tenant; ours are charged all or none".to_owned(),
            "governor and throttlecrab: one check after the other, as their users write it; where a later limit denies, the earlier ones stay charged".to_owned(),
            "limitador checks all limits and then charges them, not in one step".to_owned(),
        ];
        if threads > 1 {
            notes.push(LOCKED.into());
        }
        cases.push(finish(name, governor::NAME, notes, entrants, wanted)?);
    }
    Ok(cases)
}

fn several(
    name: &'static str,
    role: Role,
    contender: impl Keyed + 'static,
    users: &Rc<[Key]>,
    threads: usize,
    expect: Expect,
) -> Entrant<'static> {
    keyed(name, role, contender, users.clone(), threads, expect)
}

/// A case of one key that is resolved once.
struct OneKey {
    name: &'static str,
    base: &'static str,
    note: &'static str,
    entrants: fn() -> Fallible<Vec<Entrant<'static>>>,
}

const CASES: &[OneKey] = &[
    OneKey {
        name: "reserve.1t",
        base: CHECK,
        note: "a permit for a start now, dropped; none of the peers has reservations: the base is our own check",
        entrants: || reserve(tidegate::Reserving(tidegate::Handle::new(Allowance::ENDLESS)?)),
    },
    OneKey {
        name: "reserve.ahead.1t",
        base: CHECK,
        note: "a permit for a start later than all before, dropped; none of the peers has reservations: the base is our own check",
        entrants: || reserve(tidegate::ReservingAhead::new("1000/s burst 1 wait 30day")?),
    },
    OneKey {
        name: "sliding-window.1t",
        base: by_hand::WINDOW,
        note: "ours never admits more than the limit in any window; the other two estimate it from two counters",
        entrants: || windows(&format!("{ENDLESS} per 1s sliding-window"), ENDLESS, SECOND, Expect::Allowed),
    },
    OneKey {
        name: "sliding-window.deny.1t",
        base: by_hand::WINDOW,
        note: "pingora-limits has windows of a second here, the others of a day",
        entrants: || windows(&format!("{FEW} per 1day sliding-window"), FEW, DAY, Expect::Denied),
    },
    OneKey {
        name: "sliding-log.100.1t",
        base: by_hand::LOG,
        note: "a full log: at each check the oldest of 100 starts leaves the window, on a clock that moves one step a check",
        entrants: full_logs,
    },
    OneKey {
        name: "sliding-log.100.deny.1t",
        base: by_hand::LOG,
        note: "a full log, on the real clock; by hand: the system's clock, a mutex, and a look at the oldest start",
        entrants: denying_logs,
    },
    OneKey {
        name: "warm-up.1t",
        base: BUCKET,
        note: "a cold key at the rate that a cold one has, on a clock that moves one step a check; no Rust crate among the peers has a warm-up: the base is our own bucket on such a clock",
        entrants: warm_up,
    },
    OneKey {
        name: "slots.1t",
        base: semaphore::NAME,
        note: "a slot of 64 taken and given back",
        entrants: || slots(1),
    },
    OneKey {
        name: "slots.2t",
        base: semaphore::NAME,
        note: "a slot of 64 taken and given back",
        entrants: || slots(2),
    },
];

const ONE_THREAD: Loop = Loop::Timed { threads: 1 };

fn reserve(ours: impl super::contenders::Hot + 'static) -> Fallible<Vec<Entrant<'static>>> {
    let check = tidegate::Handle::new(Allowance::ENDLESS)?;
    Ok(vec![
        handle(tidegate::NAME, Role::Ours, ours, Expect::Allowed, ONE_THREAD),
        handle(CHECK, Role::Variant, check, Expect::Allowed, ONE_THREAD),
    ])
}

fn windows(
    limit: &str,
    starts_max: u32,
    period: Duration,
    expect: Expect,
) -> Fallible<Vec<Entrant<'static>>> {
    let by_hand = by_hand::Window::new(Real::new(), starts_max, period);
    Ok(vec![
        handle(tidegate::NAME, Role::Ours, tidegate::Handle::with(limit)?, expect, ONE_THREAD),
        handle(by_hand::WINDOW, Role::Peer, by_hand, expect, ONE_THREAD),
        handle(pingora::NAME, Role::Peer, pingora::Window::new(starts_max), expect, ONE_THREAD),
    ])
}

fn full_logs() -> Fallible<Vec<Entrant<'static>>> {
    // One start leaves the window at each step.
    let clock = || Stepped::by(SECOND / LOG);
    let ours = tidegate::SteppedHandle::new(clock(), &format!("{LOG} per 1s sliding-log"))?;
    let by_hand = by_hand::Log::new(clock(), LOG as usize, SECOND);
    Ok(vec![
        handle(tidegate::NAME, Role::Ours, ours, Expect::Allowed, ONE_THREAD),
        handle(by_hand::LOG, Role::Peer, by_hand, Expect::Allowed, ONE_THREAD),
    ])
}

fn denying_logs() -> Fallible<Vec<Entrant<'static>>> {
    let ours = tidegate::Handle::with(&format!("{LOG} per 1day sliding-log"))?;
    let by_hand = by_hand::Log::new(Real::new(), LOG as usize, DAY);
    Ok(vec![
        handle(tidegate::NAME, Role::Ours, ours, Expect::Denied, ONE_THREAD),
        handle(by_hand::LOG, Role::Peer, by_hand, Expect::Denied, ONE_THREAD),
    ])
}

fn warm_up() -> Fallible<Vec<Entrant<'static>>> {
    // A cold key has a third of the rate.
    let (cold, warm) = (Stepped::by(Duration::from_millis(3)), Stepped::by(Duration::from_millis(1)));
    let ours = tidegate::SteppedHandle::new(cold, "1000/s warmup 30s")?;
    let bucket = tidegate::SteppedHandle::new(warm, "1000/s burst 1")?;
    Ok(vec![
        handle(tidegate::NAME, Role::Ours, ours, Expect::Allowed, ONE_THREAD),
        handle(BUCKET, Role::Variant, bucket, Expect::Allowed, ONE_THREAD),
    ])
}

fn slots(threads: usize) -> Fallible<Vec<Entrant<'static>>> {
    let ours = tidegate::Reserving(tidegate::Handle::with(&format!("{SLOTS} concurrent"))?);
    let (expect, figure) = (Expect::Allowed, Loop::Timed { threads });
    Ok(vec![
        handle(tidegate::NAME, Role::Ours, ours, expect, figure),
        handle(semaphore::NAME, Role::Peer, semaphore::Slots::new(SLOTS), expect, figure),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::contenders::Hot;
    use super::*;

    #[test]
    fn a_cold_key_is_allowed_at_a_third_of_its_rate_and_no_faster() {
        let allowed = |step_ms| {
            let clock = Stepped::by(Duration::from_millis(step_ms));
            let gate = tidegate::SteppedHandle::new(clock, "1000/s warmup 30s").unwrap();
            (0..1_000).filter(|_| gate.check()).count()
        };
        assert_eq!(allowed(3), 1_000);
        assert!(allowed(1) < 600);
    }

    #[test]
    fn a_log_on_the_stepped_clock_is_full_at_every_check() {
        let allowed = |step| {
            let gate = tidegate::SteppedHandle::new(Stepped::by(step), "100 per 1s sliding-log").unwrap();
            (0..10_000).filter(|_| gate.check()).count()
        };
        assert_eq!(allowed(SECOND / LOG), 10_000);
        assert!((5_000..=5_100).contains(&allowed(SECOND / LOG / 2)));
    }
}
