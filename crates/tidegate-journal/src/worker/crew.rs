//! What the tasks of one worker share, and the books of what they did.

use super::drive::Until;
use super::held::Held;
use super::{Method, Plan};
use crate::backend::{Claimed, ERROR_MAX, End, Lease, Settled};
use crate::clock::instant;
use crate::stats::{Pass, WorkerStats};
use crate::{Guid, Journal, JournalError};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, watch};

pub(super) struct Crew {
    pub(super) journal: Journal,
    pub(super) plan: Plan,
    pub(super) until: Until,
    pub(super) begun: Instant,
    pub(super) methods: Vec<Arc<Method>>,
    pub(super) held: Held,
    /// The places that any method may take, beside the one that each has of its own.
    pub(super) shared: Arc<Semaphore>,
    /// One place for those that may be why their workers died.
    pub(super) suspects: Arc<Semaphore>,
    pub(super) closing: watch::Receiver<bool>,
    pub(super) tally: Arc<Tally>,
    outcomes: mpsc::UnboundedSender<Outcome>,
}

/// What came of a turn, on its way into the database.
pub(super) struct Outcome {
    method: Arc<str>,
    settled: Settled,
}

impl Crew {
    pub(super) fn new(
        journal: &Journal,
        plan: &Plan,
        until: Until,
        methods: Vec<Arc<Method>>,
        tally: &Arc<Tally>,
        closing: watch::Receiver<bool>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Outcome>) {
        // What waits here is held, and what is held is bounded.
        let (outcomes, entered) = mpsc::unbounded_channel();
        let backend = journal.shared.backend.clone();
        let shared = plan.concurrency.saturating_sub(methods.len());
        let crew = Self {
            journal: journal.clone(),
            shared: Arc::new(Semaphore::new(shared)),
            suspects: Arc::new(Semaphore::new(1)),
            plan: plan.clone(),
            until,
            begun: instant(),
            methods,
            held: Held::new(Arc::new(move || backend.clock())),
            closing,
            tally: tally.clone(),
            outcomes,
        };
        (Arc::new(crew), entered)
    }

    /// It works until what was due is done, not until it is told to close.
    pub(super) fn is_pass(&self) -> bool {
        matches!(self.until, Until::Done { .. })
    }

    /// Told to close, or nobody is left who could tell.
    pub(super) fn is_closing(&self) -> bool {
        *self.closing.borrow() || self.closing.has_changed().is_err()
    }

    /// Ready when the worker closes, also when that was before.
    pub(super) async fn closed(&self) {
        let mut closing = self.closing.clone();
        // Nobody left who could say so means the same.
        let _ = closing.wait_for(|is_closing| *is_closing).await;
    }

    /// Enters an end, soon. An attempt is counted with it, unless there was none, or it was
    /// counted when it began.
    pub(super) fn settle(&self, method: &Arc<str>, lease: Lease, end: End, is_counted: bool) {
        let outcome = Outcome { method: method.clone(), settled: Settled { lease, end, is_counted } };
        // The other end lives for as long as anything is held.
        let _ = self.outcomes.send(outcome);
    }

    /// Lets go of what cannot be entered any more.
    pub(super) fn lost(&self, lease: &Lease) {
        self.tally.lost();
        self.held.remove(lease);
    }

    /// The end of a failed attempt: again, or not.
    pub(super) fn after_error(&self, claimed: &Claimed, reason: &str) -> End {
        let most = claimed.max_attempts.unwrap_or(self.plan.max_attempts);
        let attempt = claimed.attempts + 1;
        if attempt >= u32::from(most) {
            return End::Failed { reason: clean(&format!("gave up after {attempt} attempts: {reason}")) };
        }
        End::Again { reason: clean(reason), after: self.plan.backoff.wait(attempt) }
    }
}

/// How many outcomes share a transaction at most.
const SETTLE_MAX: usize = 1_000;

/// Enters outcomes, together where several have come, until nothing more can come.
pub(super) async fn enter(crew: Arc<Crew>, mut outcomes: mpsc::UnboundedReceiver<Outcome>) {
    let mut batch = Vec::new();
    while outcomes.recv_many(&mut batch, SETTLE_MAX).await > 0 {
        let settled: Vec<Settled> = batch.iter().map(|outcome| outcome.settled.clone()).collect();
        let entered = until_settled(&crew, settled).await;
        let ended = batch
            .iter()
            .filter(|one| one.settled.end.columns().0 != 0 && entered.contains(&one.settled.lease.guid));
        crew.journal.shared.waiters.tell_ended(ended.map(|one| &one.settled.lease.guid));
        for Outcome { method, settled } in batch.drain(..) {
            if entered.contains(&settled.lease.guid) {
                crew.tally.entered(&method, &settled.end);
                crew.held.remove(&settled.lease);
            } else {
                crew.lost(&settled.lease);
            }
        }
    }
}

/// Tries until it works; after closing, only for the grace time. Then leases lapse, and others
/// repeat the work. What is refused is tried alone, and then without its words: one end that the
/// database does not take must not keep the others from being entered.
async fn until_settled(crew: &Crew, settled: Vec<Settled>) -> HashSet<Guid> {
    let mut wait = Duration::from_millis(50);
    let mut closing_since: Option<Instant> = None;
    let mut entered = HashSet::new();
    let mut groups = vec![settled];
    while let Some(group) = groups.pop() {
        let error = match crew.journal.backend().settle(group.clone()).await {
            Ok(guids) => {
                entered.extend(guids);
                continue;
            }
            Err(error) => error,
        };
        if let (JournalError::Refused(_), [first, others @ ..]) = (&error, &*group) {
            if !others.is_empty() {
                groups.extend(group.iter().cloned().map(|one| vec![one]));
                continue;
            }
            tracing::warn!("what {} ended with cannot be kept: {error}", first.lease.guid);
            // Refused even so, it is let go of: its lease lapses, and it is replayed after that.
            groups.extend(first.end.without_words().map(|end| vec![Settled { end, ..first.clone() }]));
            continue;
        }
        tracing::warn!("{} outcomes cannot be entered yet: {error}", group.len());
        if crew.is_closing() && closing_since.get_or_insert_with(instant).elapsed() > crew.plan.grace {
            break;
        }
        // The others first.
        groups.insert(0, group);
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(2));
    }
    entered
}

/// Text that any database takes: no NUL, and not endless.
pub(super) fn clean(text: &str) -> String {
    text.chars().filter(|c| *c != '\0').take(ERROR_MAX).collect()
}

/// What a worker did.
#[derive(Default)]
pub(super) struct Tally {
    figures: Mutex<Figures>,
}

#[derive(Default)]
struct Figures {
    total: Pass,
    methods: BTreeMap<Arc<str>, Pass>,
    lost: u64,
}

impl Tally {
    pub(super) fn picked(&self, method: &Arc<str>) {
        self.add(Some(method), Pass { picked: 1, ..Pass::default() });
    }

    /// What was expired, failed or purged without being picked; of no method where it has none.
    pub(super) fn tidied(&self, method: Option<&str>, pass: Pass) {
        self.add(method.map(Arc::from).as_ref(), pass);
    }

    /// What another has counted.
    pub(super) fn add_all(&self, other: &Self) {
        let other = other.lock();
        let mut figures = self.lock();
        figures.total += other.total;
        figures.lost += other.lost;
        for (method, pass) in &other.methods {
            *figures.methods.entry(method.clone()).or_default() += *pass;
        }
    }

    pub(super) fn total(&self) -> Pass {
        self.lock().total
    }

    pub(super) fn stats(&self, held: usize) -> WorkerStats {
        let figures = self.lock();
        let methods = figures.methods.iter().map(|(method, pass)| (method.to_string(), *pass)).collect();
        WorkerStats { total: figures.total, methods, held, lost: figures.lost }
    }

    fn entered(&self, method: &Arc<str>, end: &End) {
        let mut pass = Pass::default();
        match end {
            End::Done { .. } => pass.done = 1,
            End::Failed { .. } => pass.failed = 1,
            End::Expired { .. } => pass.expired = 1,
            End::Again { .. } => pass.retried = 1,
            End::PutOff { .. } | End::Returned { .. } => {}
        }
        self.add(Some(method), pass);
    }

    fn lost(&self) {
        self.lock().lost += 1;
    }

    fn add(&self, method: Option<&Arc<str>>, pass: Pass) {
        let mut figures = self.lock();
        figures.total += pass;
        if let Some(method) = method {
            *figures.methods.entry(method.clone()).or_default() += pass;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
