//! Replays what is due: claims in batches, asks the gate, runs the handler, enters the end.
//!
//! ```text
//! drive ── claim ──> lane (one a method) ── gate ──> run ──> enter (many ends, one commit)
//!   keep_leases, watch_leases, hear_cancelled, tidy: beside it
//! ```

mod aside;
mod backoff;
mod crew;
mod dealt;
mod drive;
mod gate;
mod hand;
mod handler;
mod held;
mod lane;
mod line;
mod method;
mod places;
mod tidy;
mod turn;

pub use gate::Go;
pub use handler::{JobError, Replay};
pub use method::Method;

pub(crate) use lane::Current;

use crate::schedule::Schedule;
use crate::stats::{Pass, WorkerStats};
use crate::{Journal, JournalError};
use backoff::Backoff;
use crew::{Crew, Tally};
use drive::{Engine, Until, live};
use method::{Gate, shared};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Replays the methods that it knows.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("calls.db");
/// use tidegate_journal::{Call, JobError, Journal, Worker};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct CancelTask { task: u64, reason: String }
///
/// let journal = Journal::sqlite(path).await?;
/// let call = CancelTask { task: 17, reason: "changed my mind".to_owned() };
/// journal.defer(Call::new("cancel_task", &call)?).await?;
///
/// let worker = Worker::new(&journal).on("cancel_task", |call: CancelTask| async move {
///     if call.task == 0 {
///         return Err(JobError::permanent("there is no task 0"));
///     }
///     Ok(format!("cancelled {}: {}", call.task, call.reason))
/// });
/// let pass = worker.run_once().await?; // from cron; or worker.start() for as long as it lives
/// assert_eq!((pass.picked, pass.done), (1, 1));
/// # Ok(()) }
/// ```
pub struct Worker {
    journal: Journal,
    plan: Plan,
    methods: BTreeMap<Arc<str>, Method>,
    gate: Option<Gate>,
    tally: Arc<Tally>,
}

/// How a worker works.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    owner: String,
    concurrency: usize,
    buffer: u32,
    lease: Duration,
    poll: Duration,
    grace: Duration,
    replay_max: Option<Duration>,
    max_attempts: u16,
    backoff: Backoff,
    keep: Duration,
    purge: Schedule,
    orphan_after: Duration,
}

impl Worker {
    /// Knows nothing yet.
    pub fn new(journal: &Journal) -> Self {
        let plan = Plan {
            owner: format!("worker-{}-{:08x}", std::process::id(), fastrand::u32(..)),
            concurrency: 64,
            buffer: 1_024,
            lease: Duration::from_secs(30),
            poll: Duration::from_millis(200),
            grace: Duration::from_secs(10),
            replay_max: None,
            max_attempts: 10,
            backoff: Backoff { first: Duration::from_secs(1), most: Duration::from_secs(600) },
            keep: Duration::from_secs(86_400),
            purge: Schedule::every(Duration::from_secs(60)),
            orphan_after: Duration::from_secs(3_600),
        };
        Self { journal: journal.clone(), plan, methods: BTreeMap::new(), gate: None, tally: Arc::default() }
    }

    /// Replays `method` so. Parameters that do not fit fail the record at once; a panic counts
    /// as an error that may pass. What it returns is kept as JSON, up to 64 KiB.
    ///
    /// A replay may happen more than once, after a crash: what it does should bear that.
    ///
    /// # Panics
    /// Where it is known already, as [`with`](Self::with).
    #[must_use]
    pub fn on<P, T, F, Fut>(self, method: &str, handler: F) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        T: Serialize,
        F: Fn(P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, JobError>> + Send + 'static,
    {
        self.on_replay(method, move |_, params| handler(params))
    }

    /// The same for a handler that wants to know the record's guid, attempt and lease.
    ///
    /// ```
    /// # use tidegate_journal::{JobError, Journal, Worker};
    /// # fn worker(journal: &Journal) -> Worker {
    /// Worker::new(journal).on_replay("charge", |replay, cents: u64| async move {
    ///     // The guid is the same in every attempt: an idempotency key for whom it calls.
    ///     Ok::<_, JobError>(format!("charge {cents} once, as {}", replay.guid))
    /// })
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where it is known already, as [`with`](Self::with).
    #[must_use]
    pub fn on_replay<P, T, F, Fut>(self, method: &str, handler: F) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        T: Serialize,
        F: Fn(Replay, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, JobError>> + Send + 'static,
    {
        self.with(Method::new(method, handler))
    }

    /// Replays what a function under `#[limited(..., otherwise = defer)]` recorded, behind that
    /// function's own limits: `worker.with(ship_deferred())`.
    ///
    /// # Panics
    /// Where a method of that name is known already: one of the two would run the other's calls.
    #[must_use]
    pub fn with(mut self, method: Method) -> Self {
        let name = method.name.clone();
        let before = self.methods.insert(name.clone(), method);
        assert!(before.is_none(), "two handlers for `{name}`: give each method a name of its own");
        self
    }

    /// Asked before each replay of every method without a gate of its own. Of each method one
    /// replay at a time stands at the gate, in order.
    #[must_use]
    pub fn gate<F, Fut>(mut self, gate: F) -> Self
    where
        F: Fn(Replay) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Go> + Send + 'static,
    {
        self.gate = Some(shared(gate));
        self
    }

    /// Asked before each replay of this method, which has to be known already.
    ///
    /// # Panics
    /// Where it is not.
    #[must_use]
    pub fn gate_of<F, Fut>(mut self, method: &str, gate: F) -> Self
    where
        F: Fn(Replay) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Go> + Send + 'static,
    {
        let known = self.methods.get_mut(method);
        let known =
            known.unwrap_or_else(|| panic!("`{method}` has no handler yet: call `on` before `gate_of`"));
        known.gate = Some(shared(gate));
        self
    }

    /// What stands in `lease_owner`; made up of process and chance unless said.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.plan.owner = name.chars().filter(|c| *c != '\0').take(64).collect();
        self
    }

    /// How many replays run at once, in all; 64 unless said. One place is each method's own, so
    /// that no other can hold it up; the rest is for all. Where there are more methods than that,
    /// each has its own place and no more.
    #[must_use]
    pub fn concurrency(mut self, replays: usize) -> Self {
        self.plan.concurrency = replays.clamp(1, 100_000);
        self
    }

    /// How many records are held at once at most, running or about to; 1,024 unless said. Each
    /// method has its share of them. Fewer are held where handlers are slow: what runs, and what
    /// will have started a moment later.
    #[must_use]
    pub fn buffer(mut self, records: u32) -> Self {
        self.plan.buffer = records.max(1);
        self
    }

    /// How long a record is ours without a sign of life; 30 s unless said. Prolonged three
    /// times in that time, for as long as it is worked on.
    #[must_use]
    pub fn lease(mut self, length: Duration) -> Self {
        self.plan.lease = length.clamp(Duration::from_millis(100), Duration::from_secs(86_400));
        self
    }

    /// How often to look for records that others deferred; 200 ms unless said. What this
    /// process defers is seen at once.
    #[must_use]
    pub fn poll(mut self, interval: Duration) -> Self {
        self.plan.poll = interval.clamp(Duration::from_millis(1), Duration::from_secs(86_400));
        self
    }

    /// How long running replays may go on after the worker was asked to stop; 10 s unless said.
    /// What is cut off then goes back, and its attempt does not count.
    #[must_use]
    pub fn grace(mut self, time: Duration) -> Self {
        self.plan.grace = time;
        self
    }

    /// A replay that takes longer is dropped, and counts as an error that may pass. As long as
    /// it likes unless said. A `blocking` function cannot be dropped: it can ask
    /// [`Replay::lease_holds`], and its record is tried again only after it has returned.
    #[must_use]
    pub fn replay_max(mut self, time: Duration) -> Self {
        self.plan.replay_max = Some(time);
        self
    }

    /// How often a record is tried that does not say so itself; 10 unless said.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u16) -> Self {
        self.plan.max_attempts = attempts.clamp(1, i16::MAX.unsigned_abs());
        self
    }

    /// The wait after an error: at random up to `first`, doubled with each attempt up to
    /// `most`; 1 s and 10 min unless said.
    #[must_use]
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        self.plan.backoff = Backoff { first, most };
        self
    }

    /// How long ended records are kept, counted from their end; a day unless said.
    #[must_use]
    pub fn keep(mut self, time: Duration) -> Self {
        self.plan.keep = time;
        self
    }

    /// When ended records are removed; every minute unless said.
    #[must_use]
    pub fn purge(mut self, schedule: Schedule) -> Self {
        self.plan.purge = schedule;
        self
    }

    /// Records of methods that no worker knows fail after so much time; an hour unless said.
    /// Two looks at least that far apart have to miss it, such as two passes, with nobody between
    /// them who knows it: while everything is down, nothing fails.
    #[must_use]
    pub fn orphan_after(mut self, time: Duration) -> Self {
        self.plan.orphan_after = time.max(Duration::from_millis(1));
        self
    }

    /// Works until told to stop. Needs a runtime of tokio.
    pub fn start(self) -> Running {
        let (stop, closing) = watch::channel(false);
        let engine =
            Engine::start(&self.journal, &self.plan, Until::Closed, self.known(), &self.tally, closing);
        let crew = engine.crew.clone();
        Running { stop, crew, tally: self.tally, life: tokio::spawn(live(engine)) }
    }

    /// One pass: ends what is overdue, removes what is old, replays what is due now, each
    /// record once, and returns when all of it has ended. For cron. What its gate puts off for
    /// more than a minute is left to a later pass.
    ///
    /// # Errors
    /// Where the database fails. What was claimed by then is given back, or its lease lapses.
    pub async fn run_once(&self) -> Result<Pass, JournalError> {
        self.run_once_until(std::future::pending()).await
    }

    /// The same, cut short when `stop` is ready: takes up nothing more, gives back what has not
    /// started, and lets the rest run for its grace time. While it still tidies, it ends at once,
    /// and does not count what that had ended or removed.
    ///
    /// # Errors
    /// As [`run_once`](Self::run_once).
    pub async fn run_once_until(&self, stop: impl Future<Output = ()>) -> Result<Pass, JournalError> {
        let names: Vec<String> = self.methods.keys().map(ToString::to_string).collect();
        let (backend, plan) = (self.journal.backend(), &self.plan);
        // For as long as it takes, or others would fail what it has not come to yet.
        tokio::select! {
            pass = self.pass(stop, &names) => pass,
            never = tidy::announce_again(backend, plan, &names) => match never {},
        }
    }

    async fn pass(&self, stop: impl Future<Output = ()>, names: &[String]) -> Result<Pass, JournalError> {
        let tally = Arc::<Tally>::default();
        let backend = self.journal.backend();
        let tidied = async {
            backend.recount().await?;
            tidy::tidy(backend, &self.plan, names, &tally).await?;
            backend.now().await
        };
        let mut stop = std::pin::pin!(stop);
        let as_of = tokio::select! {
            biased;
            () = &mut stop => return Ok(Pass::default()),
            tidied = tidied => tidied?,
        };
        let (close, closing) = watch::channel(false);
        let mut engine =
            Engine::start(&self.journal, &self.plan, Until::Done { as_of }, self.known(), &tally, closing);
        // The driver is told, not dropped: it may be in the middle of a claim.
        let told = async {
            stop.await;
            close.send_replace(true);
            std::future::pending::<()>().await;
        };
        let driven = tokio::select! {
            driven = engine.drive() => driven,
            () = told => Ok(()),
        };
        close.send_replace(true);
        engine.close().await;
        self.tally.add_all(&tally);
        driven.map(|()| tally.total())
    }

    /// Its methods, each with the gate that it stands before.
    fn known(&self) -> Vec<Arc<Method>> {
        let gated = |method: &Method| {
            let gate = method.gate.clone().or_else(|| self.gate.clone());
            Arc::new(Method { gate, ..method.clone() })
        };
        self.methods.values().map(gated).collect()
    }

    /// What it did in all its passes.
    pub fn stats(&self) -> WorkerStats {
        self.tally.stats(0)
    }
}

/// A worker at work. Dropping it stops it in the background, in order.
pub struct Running {
    stop: watch::Sender<bool>,
    crew: Arc<Crew>,
    tally: Arc<Tally>,
    life: JoinHandle<()>,
}

impl Running {
    /// Takes up nothing more, gives back what has not started, lets the rest run for its grace
    /// time, and returns when every end is entered.
    pub async fn stop(self) -> Pass {
        self.stop.send_replace(true);
        if let Err(error) = self.life.await {
            tracing::error!("the worker ended by itself: {error}");
        }
        self.tally.total()
    }

    /// What it did so far.
    pub fn stats(&self) -> WorkerStats {
        self.tally.stats(self.crew.held.count())
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("methods", &self.methods.keys())
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
