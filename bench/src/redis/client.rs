//! A client process: one contender on one connection and one thread, driven by many callers that
//! each send the next request as soon as the one before is decided. It prints a line when it is ready, begins when it
//! is wait_for_go to, and prints another when it is done.
//!
//! One thread each, for everybody: two clients and the server share the machine's processors.

use super::contenders::scripts::{Scripted, connect};
use super::contenders::{Contender, Decision, Nobody, Target, Who, tidegate};
use crate::inproc::keys::Key;
use crate::{Fallible, procfs};
use ::redis::aio::MultiplexedConnection;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::coop::consume_budget;

/// What a client process is wait_for_go to do, as its only argument, in JSON.
#[derive(Clone, Serialize, Deserialize)]
pub struct Job {
    pub who: Who,
    pub target: Target,
    pub work: Work,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum Work {
    /// All callers use one key.
    Hot { callers: u32, run_ms: u64 },
    /// Every caller uses any of the keys.
    Random { callers: u32, keys: u32, run_ms: u64 },
    /// Every key is requested once.
    Fill { callers: u32, keys: u32 },
}

/// What a client process prints.
#[derive(Serialize, Deserialize)]
pub enum Line {
    Ready,
    Done(Outcome),
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub decisions: u64,
    pub allowed: u64,
    pub failed: u64,
    pub elapsed_us: u64,
    /// By the server's clock: before the first call, and after the last.
    pub first_us: u64,
    pub last_us: u64,
    pub cpu_us: u64,
}

#[derive(clap::Args)]
pub struct ClientOptions {
    job: String,
}

/// Longer than any work takes; a contender that never replies must not keep the bench waiting.
const TIME_MAX: Duration = Duration::from_secs(90);

pub fn child(options: &ClientOptions) -> Fallible<()> {
    let job: Job = serde_json::from_str(&options.job)?;
    std::thread::spawn(|| {
        std::thread::sleep(TIME_MAX);
        eprintln!("bench: the client's time is over, a request was never decided");
        std::process::exit(1);
    });
    let outcome = perform(&job, || {
        println!("{}", serde_json::to_string(&Line::Ready)?);
        std::io::stdin().read_line(&mut String::new())?;
        Ok(())
    })?;
    println!("{}", serde_json::to_string(&Line::Done(outcome))?);
    Ok(())
}

/// Connects, waits for the signal to begin, and does the work.
pub fn perform(job: &Job, wait_for_go: impl FnOnce() -> Fallible<()>) -> Fallible<Outcome> {
    let target = &job.target;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match job.who {
            Who::Ours(layers) => run(tidegate::Remote::new(target, layers)?, job, wait_for_go).await,
            Who::Zset => run(Scripted::zset(target).await?, job, wait_for_go).await,
            Who::Tokens => run(Scripted::tokens(target).await?, job, wait_for_go).await,
            Who::Gcra => run(Scripted::gcra(target).await?, job, wait_for_go).await,
            #[cfg(feature = "limitador-redis")]
            Who::Limitador => {
                use super::contenders::limitador::Limitador;
                run(Limitador::plain(target).await?, job, wait_for_go).await
            }
            #[cfg(feature = "limitador-redis")]
            Who::LimitadorCached => {
                use super::contenders::limitador::Limitador;
                run(Limitador::cached(target).await?, job, wait_for_go).await
            }
            #[cfg(not(feature = "limitador-redis"))]
            Who::Limitador | Who::LimitadorCached => Err("built without limitador-redis".into()),
            Who::Nobody => run(Nobody, job, wait_for_go).await,
            #[cfg(test)]
            Who::SeedsZset => run(Scripted::seeds_zset(target).await?, job, wait_for_go).await,
        }
    })
}

async fn run(
    contender: impl Contender,
    job: &Job,
    wait_for_go: impl FnOnce() -> Fallible<()>,
) -> Fallible<Outcome> {
    let mut clock = connect(&job.target).await?;
    warm_up(&contender).await?;
    let keys = Keys::of(job);
    wait_for_go()?;
    let first_us = server_time_us(&mut clock).await?;
    let cpu_us = own_cpu_us()?;
    let begun = Instant::now();
    let stop = begun + Duration::from_millis(job.work.run_ms());
    let callers: Vec<_> = (0..job.work.callers())
        .map(|caller| tokio::spawn(call(contender.clone(), keys.for_caller(caller, job), stop)))
        .collect();
    let mut outcome = Outcome { first_us, ..Outcome::default() };
    for caller in callers {
        let counted = caller.await?;
        outcome.decisions += counted.decisions;
        outcome.allowed += counted.allowed;
        outcome.failed += counted.failed;
    }
    outcome.failed += contender.defects();
    outcome.elapsed_us = begun.elapsed().as_micros() as u64;
    outcome.cpu_us = own_cpu_us()? - cpu_us;
    outcome.last_us = server_time_us(&mut clock).await?;
    Ok(outcome)
}

/// Connects whoever has not yet, and brings the scripts to the server. Not at the first try where
/// the machine is busy: nothing is measured yet, so there is time.
async fn warm_up(contender: &impl Contender) -> Fallible<()> {
    for _ in 0..20 {
        if contender.check("warm-up").await != Decision::Failed {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err("not one decision in two seconds".into())
}

#[derive(Default)]
struct Counted {
    decisions: u64,
    allowed: u64,
    failed: u64,
}

async fn call(contender: impl Contender, mut keys: CallerKeys, stop: Instant) -> Counted {
    let mut counted = Counted::default();
    while let Some(key) = keys.next() {
        let decision = contender.check(key).await;
        counted.decisions += 1;
        counted.allowed += u64::from(decision == Decision::Allowed);
        counted.failed += u64::from(decision == Decision::Failed);
        if Instant::now() >= stop {
            break;
        }
        // A caller whose requests are decided at once yields to the others after as
        // many as tokio's own channels and sockets would give it in one go. Without this, a
        // limiter that decides locally would serve one caller only.
        consume_budget().await;
    }
    counted
}

impl Work {
    fn callers(self) -> u32 {
        match self {
            Self::Hot { callers, .. } | Self::Random { callers, .. } | Self::Fill { callers, .. } => callers,
        }
    }

    fn run_ms(self) -> u64 {
        match self {
            Self::Hot { run_ms, .. } | Self::Random { run_ms, .. } => run_ms,
            // Ends by itself; this is only the bound.
            Self::Fill { .. } => TIME_MAX.as_millis() as u64,
        }
    }
}

/// The keys as text, made before anything is timed.
struct Keys(Arc<[Key]>);

impl Keys {
    fn of(job: &Job) -> Self {
        let keys = match job.work {
            Work::Hot { .. } => 1,
            Work::Random { keys, .. } | Work::Fill { keys, .. } => keys,
        };
        Self((0..keys).map(Key::numbered).collect())
    }

    fn for_caller(&self, caller: u32, job: &Job) -> CallerKeys {
        let order = match job.work {
            Work::Hot { .. } => Order::Same,
            // Repeatable, and different for every caller.
            Work::Random { .. } => {
                Order::Random(SmallRng::seed_from_u64(u64::from(caller) << 16 | u64::from(job.target.node)))
            }
            Work::Fill { callers, .. } => Order::Each { next: caller as usize, step: callers as usize },
        };
        CallerKeys { keys: self.0.clone(), order }
    }
}

struct CallerKeys {
    keys: Arc<[Key]>,
    order: Order,
}

enum Order {
    Same,
    Random(SmallRng),
    Each { next: usize, step: usize },
}

impl CallerKeys {
    fn next(&mut self) -> Option<&str> {
        let index = match &mut self.order {
            Order::Same => 0,
            Order::Random(source) => source.random_range(0..self.keys.len()),
            Order::Each { next, step } => {
                let index = *next;
                *next += *step;
                index
            }
        };
        self.keys.get(index).map(Key::as_str)
    }
}

async fn server_time_us(connection: &mut MultiplexedConnection) -> Fallible<u64> {
    let (seconds, micros): (u64, u64) = ::redis::cmd("TIME").query_async(connection).await?;
    Ok(seconds * 1_000_000 + micros)
}

fn own_cpu_us() -> Fallible<u64> {
    let times = procfs::times("self").ok_or("this system has no processor time of a process")?;
    Ok(times.itself * 1_000_000 / procfs::TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::allowance::Allowance;

    fn job(work: Work) -> Job {
        Job { who: Who::Gcra, target: Target { port: 1, node: 0, allowance: Allowance::HOT }, work }
    }

    #[test]
    fn callers_who_fill_visit_every_key_once_between_them() {
        let job = job(Work::Fill { callers: 3, keys: 10 });
        let keys = Keys::of(&job);
        let mut seen = Vec::new();
        for caller in 0..3 {
            let mut own = keys.for_caller(caller, &job);
            while let Some(key) = own.next() {
                seen.push(key.to_owned());
            }
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 10);
    }

    #[test]
    fn a_job_survives_the_way_to_its_process() {
        let text = serde_json::to_string(&job(Work::Hot { callers: 128, run_ms: 3_000 })).unwrap();
        let back: Job = serde_json::from_str(&text).unwrap();
        assert_eq!(back.who, Who::Gcra);
        assert_eq!((back.work.callers(), back.work.run_ms()), (128, 3_000));
    }
}
