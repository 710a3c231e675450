//! One method's line: its records one after the other through its gate, then side by side.
//!
//! A line of its own, so that a method whose gate is shut, or whose records are poison, holds
//! nobody else up. Within it, a record that the gate puts off steps aside.

use super::Method;
use super::aside::Aside;
use super::crew::{Crew, clean};
use super::gate::{Go, Start};
use super::handler::{Finished, JobError, Replay};
use super::held::{Stop, Why};
use super::places::Places;
use crate::backend::{Claimed, EXPIRED, End};
use crate::clock::instant;
use futures_util::FutureExt as _;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// A claimed record in its line.
pub(super) struct Turn {
    pub(super) claimed: Claimed,
    pub(super) stop: Arc<Stop>,
    /// By when it has to start, on this process's clock.
    pub(super) start_by: Option<Instant>,
}

impl Turn {
    pub(super) fn new(claimed: Claimed, stop: Arc<Stop>) -> Self {
        let start_by = claimed.left.and_then(|left| instant().checked_add(left));
        Self { claimed, stop, start_by }
    }

    /// Its last worker died, with it or because of it. Attempts are counted when they end, which
    /// is for nothing while nobody dies; a record that kills its workers would be tried for ever,
    /// so a suspect's attempts are counted before they begin.
    fn is_suspect(&self) -> bool {
        self.claimed.lapses > 0
    }

    /// It was begun, and two workers died. Of these one runs at a time: if it is the one that
    /// kills, no other loses an attempt by it. It waits for nobody else, and nobody for it; who
    /// runs beside it when it kills was not counted yet, and is next time.
    fn is_strong_suspect(&self) -> bool {
        self.claimed.lapses > 1 && self.claimed.attempts > 0
    }
}

/// A pass waits no longer for a record that its gate puts off; the next one asks again.
const PASS_WAIT: Duration = Duration::from_secs(60);

/// How long a suspect steps aside while another runs.
const NEXT_SUSPECT: Duration = Duration::from_millis(50);

/// Until the driver lets go of the other end. `most` records of the method are in hand at most.
pub(super) async fn lane(
    crew: Arc<Crew>,
    method: Arc<Method>,
    mut turns: mpsc::UnboundedReceiver<Turn>,
    most: u32,
) {
    let places = Places::beside(&crew.shared);
    let mut aside = Aside::of(most);
    loop {
        // One of those aside and one of the others by turns: neither waits for all of the other.
        if let Some(turn) = aside.take_due() {
            match admit(&crew, &method, &places, turn).await {
                Admitted::Later(turn, wait) => aside.add(turn, wait),
                Admitted::Started => aside.started(),
                Admitted::Ended => {}
            }
        }
        aside.rest().await;
        tokio::select! {
            biased;
            turn = turns.recv() => match turn {
                None => break,
                Some(turn) => match admit(&crew, &method, &places, turn).await {
                    Admitted::Later(turn, wait) => aside.add(turn, wait),
                    Admitted::Started => aside.found(),
                    Admitted::Ended => {}
                },
            },
            () = aside.due() => {}
        }
        make_room(&crew, &method, &mut aside);
    }
    for turn in aside.into_turns() {
        crew.settle(&method.name, turn.claimed.lease, End::Returned, false);
    }
}

/// A pass has to run all that was due when it began, so it gives nothing back for this.
fn make_room(crew: &Crew, method: &Method, aside: &mut Aside) {
    if crew.is_pass() {
        return;
    }
    for (turn, after) in aside.surplus() {
        crew.settle(&method.name, turn.claimed.lease, End::PutOff { after }, false);
    }
}

/// What a replay holds until it has ended.
struct Admission {
    _place: OwnedSemaphorePermit,
    _suspect: Option<OwnedSemaphorePermit>,
    _held: Option<Box<dyn Any + Send>>,
}

tokio::task_local! {
    /// Of the replay that this task runs.
    static ADMISSION: Arc<Mutex<Admission>>;
}

/// What the replay that this task runs holds, for a thread that may outlive the task.
pub(crate) fn held() -> Option<Arc<impl Send>> {
    ADMISSION.try_with(Arc::clone).ok()
}

/// What became of a turn at the gate.
enum Admitted {
    Started,
    Ended,
    /// To be asked again after so much time.
    Later(Turn, Duration),
}

async fn admit(crew: &Arc<Crew>, method: &Arc<Method>, places: &Places, turn: Turn) -> Admitted {
    let replay = Replay::new(&turn.claimed);
    match pass(crew, method, places, &turn, &replay).await {
        Ok(admission) => {
            tokio::spawn(run(crew.clone(), method.clone(), turn, replay, admission));
            return Admitted::Started;
        }
        Err(Not::Yet(wait)) => return Admitted::Later(turn, wait),
        Err(Not::AtAll(end)) => crew.settle(&method.name, turn.claimed.lease, end, false),
        Err(Not::Ours) => crew.lost(&turn.claimed.lease),
    }
    Admitted::Ended
}

/// Why a turn does not start.
enum Not {
    /// To be asked again after so much time.
    Yet(Duration),
    /// It ends without a start.
    AtAll(End),
    /// It was cancelled, or somebody else has it.
    Ours,
}

/// Waits for a place and for the gate, which may say that it opens later, or never for this one.
///
/// All that takes time comes before the gate, so that a replay starts when the gate says so: a
/// crowd that was let through and waits for something else would start all at once.
async fn pass(
    crew: &Crew,
    method: &Method,
    places: &Places,
    turn: &Turn,
    replay: &Replay,
) -> Result<Admission, Not> {
    if crew.is_closing() {
        return Err(Not::AtAll(End::Returned));
    }
    let most = turn.claimed.max_attempts.unwrap_or(crew.plan.max_attempts);
    if turn.claimed.attempts >= u32::from(most) {
        // It was begun that often, and nobody ever entered an end: it kills its workers, or
        // outlives their leases.
        let last = turn.claimed.last_error.as_deref().unwrap_or("none of them told how it ended");
        let reason = clean(&format!("gave up after {most} attempts: {last}"));
        return Err(Not::AtAll(End::Failed { reason }));
    }
    let place = unless_over(crew, turn, places.take()).await?;
    // Only with a place in hand: suspects of other methods would wait for it as well.
    let suspect = match turn.is_strong_suspect().then(|| crew.suspects.clone().try_acquire_owned()) {
        Some(Err(_)) => return Err(Not::Yet(NEXT_SUSPECT)),
        Some(Ok(suspect)) => Some(suspect),
        None => None,
    };
    if turn.is_suspect() && !is_counted(crew, turn, turn.claimed.attempts + 1).await {
        // Whoever cannot be told does not begin: the lease lapses, and somebody tries later.
        return Err(Not::Ours);
    }
    let asked = match unless_over(crew, turn, ask(method, replay)).await.flatten() {
        Err(Not::Yet(after)) if crew.is_pass() && after > PASS_WAIT => Err(Not::AtAll(End::PutOff { after })),
        asked => asked,
    };
    if asked.is_err() {
        uncount(crew, turn).await;
    }
    Ok(Admission { _place: place, _suspect: suspect, _held: asked? })
}

/// Waits, unless the turn is over before that.
async fn unless_over<T>(crew: &Crew, turn: &Turn, waiting: impl Future<Output = T>) -> Result<T, Not> {
    tokio::select! {
        biased;
        why = turn.stop.heard() => Err(match why {
            Why::Lost => Not::Ours,
            Why::Closing => Not::AtAll(End::Returned),
        }),
        () = crew.closed() => Err(Not::AtAll(End::Returned)),
        () = until(turn.start_by) => Err(Not::AtAll(End::Expired { reason: EXPIRED.to_owned() })),
        waited = waiting => Ok(waited),
    }
}

/// What the gate gives to hold, once it lets the replay start.
async fn ask(method: &Method, replay: &Replay) -> Result<Option<Box<dyn Any + Send>>, Not> {
    let Some(gate) = &method.gate else { return Ok(None) };
    // A gate that panics must not end the line, be it before or while it is awaited.
    let asked = AssertUnwindSafe(async { gate(replay.clone()).await }).catch_unwind().await;
    let go = asked.unwrap_or_else(|_| {
        tracing::error!("the gate of `{}` panicked; it is asked again in a second", method.name);
        Go::ask_again(Duration::from_secs(1))
    });
    match go.start {
        Start::After(wait) => {
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            Ok(go.held)
        }
        Start::AskAgain(wait) => Err(Not::Yet(wait)),
        Start::Never(reason) => Err(Not::AtAll(End::Failed { reason: clean(&reason) })),
    }
}

async fn run(crew: Arc<Crew>, method: Arc<Method>, turn: Turn, replay: Replay, admission: Admission) {
    let admission = Arc::new(Mutex::new(admission));
    let work = ADMISSION.scope(admission.clone(), (method.handler)(replay));
    let end = tokio::select! {
        biased;
        result = within(crew.plan.replay_max, work) => Some(end_of(&crew, &turn.claimed, result)),
        why = turn.stop.heard() => match why {
            Why::Lost => return crew.lost(&turn.claimed.lease),
            Why::Closing => None,
        },
    };
    drop(admission);
    match end {
        Some(end) => {
            let is_suspect = turn.is_suspect();
            crew.settle(&method.name, turn.claimed.lease, end, !is_suspect);
        }
        // Cut off by its worker, which is not its fault: the attempt does not count.
        None => {
            uncount(&crew, &turn).await;
            crew.settle(&method.name, turn.claimed.lease, End::Returned, false);
        }
    }
}

/// Writes down how many attempts there were; false if that could not be done.
async fn is_counted(crew: &Crew, turn: &Turn, attempts: u32) -> bool {
    crew.journal.backend().count(turn.claimed.lease.clone(), attempts).await.unwrap_or(false)
}

/// It did not begin after all, or was cut off. Where that cannot be told, it has lost an attempt, or its lease.
async fn uncount(crew: &Crew, turn: &Turn) {
    if turn.is_suspect() {
        is_counted(crew, turn, turn.claimed.attempts).await;
    }
}

fn end_of(crew: &Crew, claimed: &Claimed, result: Result<Finished, JobError>) -> End {
    match result {
        Ok(Finished { result, note }) => End::Done { result, note },
        Err(JobError::Permanent(reason)) => End::Failed { reason: clean(&reason) },
        Err(JobError::Retry(reason)) => crew.after_error(claimed, &reason),
    }
}

async fn within(
    most: Option<Duration>,
    work: impl Future<Output = Result<Finished, JobError>>,
) -> Result<Finished, JobError> {
    let Some(most) = most else { return work.await };
    let late = |_| Err(JobError::Retry(format!("it took longer than {most:?}")));
    tokio::time::timeout(most, work).await.unwrap_or_else(late)
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}
