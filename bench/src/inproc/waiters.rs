//! A thousand tasks that wait for one allowance, each again as soon as it has started: what a start
//! costs the processors. The limit decides how many start, so a throughput would say nothing.

use super::contenders::{Acquired, Allowance, direct, governor, tidegate};
use crate::report::{Base, Better, Case, Plan, median};
use crate::rounds::{Entrant, Measured, Role, alternate};
use crate::{Fallible, Wanted};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NAME: &str = "acquire.1k-waiters";
const WAITERS: usize = 1_000;
const WARM_UP: Duration = Duration::from_millis(300);
const MEASURED: Duration = Duration::from_millis(1_000);

/// So that everybody waits for a tenth of a second.
const LIMIT: Allowance =
    Allowance { units: 10, period: Duration::from_millis(1), burst: 10, text: "10000/s burst 10 wait 1s" };

/// In percent of what the limit allows, by contender, a figure a round.
type Started = RefCell<BTreeMap<&'static str, Vec<f64>>>;

pub fn run(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    if !wanted.case(NAME) {
        return Ok(Vec::new());
    }
    let started = Started::default();
    let entrants = vec![
        entrant(tidegate::NAME, Role::Ours, || tidegate::Waiting::new(LIMIT.text), &started),
        entrant(governor::NAME, Role::Peer, || governor::Waiting::new(LIMIT), &started),
        entrant(direct::LEAKY_BUCKET, Role::Peer, || Ok(direct::LeakyBucket::new(LIMIT)), &started),
    ];
    let series = alternate(NAME, entrants, wanted.rounds)?;
    let started = started.into_inner();
    let started = started.iter().map(|(name, values)| format!("{name} {:.1}", median(values)));
    let notes = vec![
        format!(
            "{WAITERS} tasks on one thread, each acquires again as soon as it may start; {}; processor time of the process for each start",
            LIMIT.text
        ),
        "governor's `until_ready`: it wakes all who wait at once, and all but one wait anew".to_owned(),
        format!(
            "started, in % of what the limit allows: {}; more than that counts as wrong",
            started.collect::<Vec<_>>().join(", ")
        ),
    ];
    let base = Base::BestPeerAndAlso(governor::NAME);
    let plan = Plan { name: NAME, unit: "µs", better: Better::Lower, base, notes };
    Ok(vec![Case::new(plan, &series)?])
}

fn entrant<'a, A: Acquired>(
    name: &'static str,
    role: Role,
    build: impl Fn() -> Fallible<A> + 'a,
    started: &'a Started,
) -> Entrant<'a> {
    Entrant::new(name, role, move |_| {
        let (measured, percent) = measure(build()?)?;
        started.borrow_mut().entry(name).or_default().push(percent);
        Ok(measured)
    })
}

/// Microseconds of processor time a start, and the starts in percent of what the limit allows.
fn measure(contender: impl Acquired) -> Fallible<(Measured, f64)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let contender = Arc::new(contender);
    let (starts, denied) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let begun = Instant::now();
    for _ in 0..WAITERS {
        let (contender, starts, denied) = (contender.clone(), starts.clone(), denied.clone());
        runtime.spawn(async move {
            loop {
                let count = if contender.acquire().await { &starts } else { &denied };
                count.fetch_add(1, Ordering::Relaxed);
                // Whoever never has to wait lets the others go on.
                tokio::task::consume_budget().await;
            }
        });
    }
    let (before, cpu) = runtime.block_on(async {
        tokio::time::sleep(WARM_UP).await;
        let before = (starts.load(Ordering::Relaxed), Instant::now(), process_time());
        tokio::time::sleep(MEASURED).await;
        (before, process_time() - before.2)
    });
    let (elapsed, measured) = (begun.elapsed(), before.1.elapsed());
    let (all, denied) = (starts.load(Ordering::Relaxed), denied.load(Ordering::Relaxed));
    let counted = all - before.0;
    if counted == 0 {
        return Err("nobody started in the whole time".into());
    }
    // From the beginning: a task may be woken late, but it cannot start early.
    let forbidden = all.saturating_sub(at_most(elapsed)) + denied;
    let value = cpu.as_secs_f64() * 1e6 / counted as f64;
    let wrong = forbidden as f64 / (all + denied) as f64;
    let percent = counted as f64 * 100.0 / (measured.as_secs_f64() * per_second());
    Ok((Measured { value, wrong }, percent))
}

fn per_second() -> f64 {
    f64::from(LIMIT.units) / LIMIT.period.as_secs_f64()
}

/// A burst, what flows in, and a refill on top for those that refill at once what others let
/// flow.
fn at_most(elapsed: Duration) -> u64 {
    u64::from(LIMIT.burst + LIMIT.units) + (elapsed.as_secs_f64() * per_second()) as u64
}

fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_that_the_limit_forbids_are_counted_as_wrong() {
        struct Unlimited;
        impl Acquired for Unlimited {
            async fn acquire(&self) -> bool {
                true
            }
        }
        let (measured, percent) = measure(Unlimited).unwrap();
        assert!(measured.wrong > 0.1 && percent > 100.0, "{} {percent}", measured.wrong);
    }
}
