//! One method's line: its records one after the other through its gate, then side by side.
//!
//! A line of its own, so that a method whose gate is shut, or whose records are poison, holds
//! nobody else up. Within it, a record that the gate puts off steps aside.

use super::Method;
use super::crew::{Crew, clean};
use super::gate::{Go, Start};
use super::hand::{From, Hand};
use super::handler::{Finished, JobError, Replay};
use super::held::Why;
use super::line::Line;
use super::places::Places;
use super::turn::Turn;
use crate::backend::{Claimed, End};
use crate::clock::instant;
use futures_util::FutureExt as _;
use std::any::Any;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// A pass waits no longer for a record that its gate puts off; the next one asks again.
const PASS_WAIT: Duration = Duration::from_secs(60);

/// How long a suspect steps aside while another runs.
const NEXT_SUSPECT: Duration = Duration::from_millis(50);

/// One method's line, until the driver lets go of the other end.
pub(super) struct Lane {
    crew: Arc<Crew>,
    method: Arc<Method>,
    line: Arc<Line>,
    turns: mpsc::UnboundedReceiver<Turn>,
    places: Places,
    hand: Hand,
    is_open: bool,
}

impl Lane {
    /// `most` records of the method are in hand at most.
    pub(super) fn new(
        crew: &Arc<Crew>,
        method: &Arc<Method>,
        line: &Arc<Line>,
        turns: mpsc::UnboundedReceiver<Turn>,
        most: u32,
    ) -> Self {
        Self {
            crew: crew.clone(),
            method: method.clone(),
            line: line.clone(),
            turns,
            places: Places::beside(&crew.shared),
            hand: Hand::of(most),
            is_open: true,
        }
    }

    pub(super) async fn run(mut self) {
        while self.is_due().await {
            // The place first, and only then whose turn it is: one of a higher priority may have
            // come while the others waited.
            let Some(place) = self.meanwhile(place(self.crew.clone(), self.places.clone())).await else {
                break;
            };
            self.receive();
            let Some((turn, from)) = self.hand.take_next() else { continue };
            let line = self.line.clone();
            let admitted = self.meanwhile(admit(self.crew.clone(), self.method.clone(), line, place, turn));
            match (admitted.await, from) {
                (Admitted::Later(turn, wait), _) => self.hand.aside.add(turn, wait),
                (Admitted::Started, From::Aside) => self.hand.aside.started(),
                (Admitted::Started, From::Ready) => self.hand.aside.found(),
                (Admitted::Ended, _) => {}
            }
            self.make_room();
            self.line.set_aside(self.hand.aside.len());
        }
        self.give_back();
    }

    /// Waits until somebody could be asked; false when the driver has let go.
    async fn is_due(&mut self) -> bool {
        self.hand.aside.rest().await;
        loop {
            self.receive();
            if self.hand.next_look() <= instant() {
                self.end_those_over();
            }
            if !self.is_open || self.hand.is_due() {
                return self.is_open;
            }
            tokio::select! {
                biased;
                turn = self.turns.recv() => match turn {
                    Some(turn) => self.hand.add(turn),
                    None => return false,
                },
                () = self.line.look.notified() => self.end_those_over(),
                () = self.hand.aside.due() => {}
            }
        }
    }

    /// All that has come.
    fn receive(&mut self) {
        while self.is_open {
            match self.turns.try_recv() {
                Ok(turn) => self.hand.add(turn),
                Err(mpsc::error::TryRecvError::Empty) => return,
                Err(mpsc::error::TryRecvError::Disconnected) => self.is_open = false,
            }
        }
    }

    /// Waits for a place or at the gate, and looks after the others meanwhile. Those that could
    /// not start for the length of a lease go back: handlers that hang here, or a gate that is
    /// shut here, must not keep them from other workers.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut stuck_at: Option<Instant> = None;
        loop {
            let next_look = self.hand.next_look();
            tokio::select! {
                biased;
                done = &mut work => {
                    if self.line.go_on() {
                        self.crew.held.room.notify_one();
                    }
                    return done;
                }
                turn = self.turns.recv(), if self.is_open => match turn {
                    Some(turn) => self.hand.add(turn),
                    None => self.is_open = false,
                },
                () = self.line.look.notified() => self.end_those_over(),
                () = async {
                    let stuck_at = *stuck_at.get_or_insert_with(|| instant() + self.crew.plan.lease);
                    tokio::time::sleep_until(next_look.min(stuck_at).into()).await;
                } => {
                    self.end_those_over();
                    if stuck_at.is_some_and(|at| at <= instant()) {
                        self.line.stick();
                        self.give_back();
                        stuck_at = None;
                    }
                }
            }
        }
    }

    fn end_those_over(&mut self) {
        for turn in self.hand.take_over() {
            if turn.stop.is_lost() {
                self.crew.lost(&turn.claimed.lease);
            } else {
                let end = turn.expired();
                self.crew.settle(&self.method.name, turn.claimed.lease, end, false);
            }
        }
    }

    fn give_back(&mut self) {
        for turn in self.hand.take_all() {
            let end = turn.returned(&self.crew);
            self.crew.settle(&self.method.name, turn.claimed.lease, end, false);
        }
        self.line.set_aside(0);
    }

    /// A pass has to run all that was due when it began, so it gives nothing back for this.
    fn make_room(&mut self) {
        if self.crew.is_pass() {
            return;
        }
        for (turn, after) in self.hand.aside.surplus() {
            self.crew.settle(&self.method.name, turn.claimed.lease, End::PutOff { after }, false);
        }
    }
}

/// A place, unless the worker closes before there is one.
async fn place(crew: Arc<Crew>, places: Places) -> Option<OwnedSemaphorePermit> {
    tokio::select! {
        biased;
        place = places.take() => Some(place),
        () = crew.closed() => None,
    }
}

/// What a replay holds until it has ended.
struct Admission {
    /// Dropped with the rest of it: then nothing of the replay runs any more.
    _inside: oneshot::Sender<Infallible>,
    _place: OwnedSemaphorePermit,
    _suspect: Option<OwnedSemaphorePermit>,
    _held: Option<Box<dyn Any + Send>>,
}

/// The replay that a task or a thread runs, and what that holds.
#[derive(Clone)]
pub(crate) struct Current {
    pub(super) replay: Replay,
    _admission: Arc<Mutex<Admission>>,
}

tokio::task_local! {
    static CURRENT: Current;
}

impl Current {
    /// Of this task or thread.
    pub(crate) fn get() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Runs it on this thread, which may outlive the task that waits for it.
    pub(crate) fn scope<T>(self, body: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self, body)
    }
}

/// What became of a turn at the gate.
enum Admitted {
    Started,
    Ended,
    /// To be asked again after so much time.
    Later(Turn, Duration),
}

async fn admit(
    crew: Arc<Crew>,
    method: Arc<Method>,
    line: Arc<Line>,
    place: OwnedSemaphorePermit,
    turn: Turn,
) -> Admitted {
    let replay = Replay::new(&turn.claimed, &turn.stop);
    match pass(&crew, &method, place, &turn, &replay).await {
        // The gate may have waited for long, or the machine was suspended.
        Ok(_) if turn.stop.is_lost() => crew.lost(&turn.claimed.lease),
        Ok((admission, left)) => {
            line.start();
            let current = Current { replay, _admission: Arc::new(Mutex::new(admission)) };
            tokio::spawn(run(crew, method, turn, current, left));
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

/// With a place in hand, waits for the gate, which may say that it opens later, or never for this
/// one.
///
/// All that takes time comes before the gate, so that a replay starts when the gate says so: a
/// crowd that was let through and waits for something else would start all at once.
async fn pass(
    crew: &Crew,
    method: &Method,
    place: OwnedSemaphorePermit,
    turn: &Turn,
    replay: &Replay,
) -> Result<(Admission, oneshot::Receiver<Infallible>), Not> {
    if turn.stop.is_lost() {
        return Err(Not::Ours);
    }
    if crew.is_closing() {
        return Err(Not::AtAll(turn.returned(crew)));
    }
    if turn.is_over(instant()) {
        return Err(Not::AtAll(turn.expired()));
    }
    let most = turn.claimed.max_attempts.unwrap_or(crew.plan.max_attempts);
    if turn.claimed.attempts >= u32::from(most) {
        // It was begun that often, and nobody ever entered an end: it kills its workers, or
        // outlives their leases.
        let last = turn.claimed.last_error.as_deref().unwrap_or("none of them told how it ended");
        let reason = clean(&format!("gave up after {most} attempts: {last}"));
        return Err(Not::AtAll(End::Failed { reason }));
    }
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
    let (inside, left) = oneshot::channel();
    Ok((Admission { _inside: inside, _place: place, _suspect: suspect, _held: asked? }, left))
}

/// Waits, unless the turn is over before that.
async fn unless_over<T>(crew: &Crew, turn: &Turn, waiting: impl Future<Output = T>) -> Result<T, Not> {
    tokio::select! {
        biased;
        why = turn.stop.heard() => Err(match why {
            Why::Lost => Not::Ours,
            Why::Closing => Not::AtAll(turn.returned(crew)),
        }),
        () = crew.closed() => Err(Not::AtAll(turn.returned(crew))),
        () = until(turn.start_by) => Err(Not::AtAll(turn.expired())),
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

async fn run(
    crew: Arc<Crew>,
    method: Arc<Method>,
    turn: Turn,
    current: Current,
    mut left: oneshot::Receiver<Infallible>,
) {
    let replay = current.replay.clone();
    let work = CURRENT.scope(current, (method.handler)(replay));
    let end = tokio::select! {
        biased;
        result = within(crew.plan.replay_max, work) => Some(end_of(&crew, &turn.claimed, result)),
        why = turn.stop.heard() => match why {
            Why::Lost => return crew.lost(&turn.claimed.lease),
            Why::Closing => None,
        },
    };
    turn.stop.give_up();
    // What runs on a thread goes on after its future was dropped. The record stays ours until it
    // has ended, or somebody else would run it beside that.
    loop {
        tokio::select! {
            biased;
            _ = &mut left => break,
            why = turn.stop.heard() => if why == Why::Lost {
                return crew.lost(&turn.claimed.lease);
            },
        }
    }
    match end {
        Some(end) => {
            let is_suspect = turn.is_suspect();
            crew.settle(&method.name, turn.claimed.lease, end, !is_suspect);
        }
        // Cut off by its worker, which is not its fault: the attempt does not count.
        None => {
            uncount(&crew, &turn).await;
            let end = turn.returned(&crew);
            crew.settle(&method.name, turn.claimed.lease, end, false);
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
