//! New records on their way: callers that come while a commit is under way share the next.
//!
//! A statement that breaks off is repeated: the guid is ours and unique, so a record that was
//! committed after all is found, not written twice.

use super::core::Core;
use super::fault::Fault;
use crate::backend::{Deferral, Repeated};
use crate::clock::micros;
use crate::{Bound, Call, DeferError, Guid, JournalError};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// How many transactions with new records are under way at once. Near a bound only one: what
/// it adds, the next has to see.
const FLIGHTS: u32 = 2;

/// So many full batches away from a bound, it cannot be reached before the next look. A flight
/// tells what was there when it began, so what is not seen yet is its own batch, that of the one
/// that flew beside it, and those of the two that fly when the next look is taken.
const NEAR: u64 = 4;

/// A call that waits for its commit.
pub(super) struct Waiting {
    pub(super) guid: Guid,
    pub(super) call: Call,
    pub(super) reply: oneshot::Sender<Deferral>,
}

/// How far to go, and under which number this process counts.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) method_max: u64,
    pub(super) pending_max: u64,
    pub(super) batch_max: usize,
    pub(super) slot: i16,
}

/// Until nobody can ask any more.
pub(super) async fn gather(core: Arc<Core>, bounds: Bounds, mut queue: mpsc::Receiver<Waiting>) {
    let flights = Arc::new(Semaphore::new(FLIGHTS as usize));
    let near = Arc::new(Near::default());
    for nth in 1.. {
        let mut permit = flights.clone().acquire_owned().await.expect(OPEN);
        // Only now: while this one waited, others landed, and may have told that it is near.
        if near.is_so() {
            permit.merge(flights.clone().acquire_many_owned(FLIGHTS - 1).await.expect(OPEN));
        }
        let mut batch = Vec::new();
        if queue.recv_many(&mut batch, bounds.batch_max).await == 0 {
            return;
        }
        let flight = Flight { core: core.clone(), bounds, near: near.clone(), nth };
        tokio::spawn(async move {
            flight.fly(batch).await;
            drop(permit);
        });
    }
}

const OPEN: &str = "the semaphore is never closed";

/// Whether a bound is near, as far as the flights that landed could see.
struct Near(Mutex<Seen>);

struct Seen {
    is_near: bool,
    /// The latest flight that told.
    nth: u64,
}

impl Default for Near {
    fn default() -> Self {
        Self(Mutex::new(Seen { is_near: true, nth: 0 }))
    }
}

impl Near {
    fn is_so(&self) -> bool {
        self.lock().is_near
    }

    /// Told by the `nth` flight. One that began before another that told saw less than that
    /// one, so its all-clear does not count.
    fn tell(&self, nth: u64, is_near: bool) {
        let mut seen = self.lock();
        if is_near || nth >= seen.nth {
            *seen = Seen { is_near, nth: nth.max(seen.nth) };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One transaction with new records on its way, and those that follow from it.
struct Flight {
    core: Arc<Core>,
    bounds: Bounds,
    near: Arc<Near>,
    nth: u64,
}

/// So often another may record a call's key, and end in vain, just before it is looked for.
const RACES_MAX: u32 = 3;

impl Flight {
    async fn fly(&self, batch: Vec<Waiting>) {
        let calls: Vec<(&Guid, &Call)> = batch.iter().map(|one| (&one.guid, &one.call)).collect();
        let answers = match self.write(&calls).await {
            Err(fault) if batch.len() > 1 && !fault.error.is_passing() && !fault.is_unknown => {
                // One of them is at fault; the others must not suffer for it.
                batch.iter().map(|_| None).collect()
            }
            Err(fault) => calls.iter().map(|(guid, _)| Some(failed(guid, &fault))).collect(),
            Ok(answers) => answers,
        };
        let mut all = Vec::with_capacity(batch.len());
        for (call, answer) in calls.iter().zip(answers) {
            all.push(match answer {
                Some(answer) => answer,
                None => self.alone(*call).await,
            });
        }
        for (one, answer) in batch.into_iter().zip(all) {
            // Whoever asked may have gone away.
            let _ = one.reply.send(answer);
        }
    }

    /// One call in a transaction of its own.
    async fn alone(&self, call: (&Guid, &Call)) -> Deferral {
        for _ in 0..RACES_MAX {
            match self.write(&[call]).await {
                Ok(mut answers) => {
                    if let Some(answer) = answers.pop().flatten() {
                        return answer;
                    }
                }
                Err(fault) => return failed(call.0, &fault),
            }
        }
        let text = "others record and end its key all the time; repeat it".to_owned();
        Err(DeferError::NotRecorded(JournalError::Failed(text)))
    }

    /// One transaction, one trip. Nothing is answered for a call whose key another had, which is
    /// gone or ended in vain by now: it is free.
    async fn write(&self, calls: &[(&Guid, &Call)]) -> Result<Vec<Option<Deferral>>, Fault> {
        let Self { core, bounds, .. } = self;
        let column = |part: fn(&Call) -> i16| calls.iter().map(|(_, call)| part(call)).collect::<Vec<i16>>();
        let guids: Vec<&str> = calls.iter().map(|(guid, _)| guid.as_str()).collect();
        let methods: Vec<&str> = calls.iter().map(|(_, call)| call.method.as_str()).collect();
        let params: Vec<&str> = calls.iter().map(|(_, call)| call.params.as_str()).collect();
        let keys: Vec<Option<&str>> = calls.iter().map(|(_, call)| call.key.as_deref()).collect();
        let priorities = column(|call| i16::from(call.priority));
        let delays: Vec<i64> = calls.iter().map(|(_, call)| micros(call.delay)).collect();
        let deadlines: Vec<Option<i64>> = calls.iter().map(|(_, call)| call.deadline.map(micros)).collect();
        let attempts: Vec<Option<i16>> = calls
            .iter()
            .map(|(_, call)| call.max_attempts.map(|most| i16::try_from(most).unwrap_or(i16::MAX)))
            .collect();
        let of = |max: u64| i64::try_from(max).unwrap_or(i64::MAX);
        let (method_max, pending_max) = (of(bounds.method_max), of(bounds.pending_max));
        let answer = core
            .ask_within(
                core.patience,
                &core.sql.defer,
                &[
                    &guids,
                    &methods,
                    &params,
                    &keys,
                    &priorities,
                    &delays,
                    &deadlines,
                    &attempts,
                    &method_max,
                    &pending_max,
                    &bounds.slot,
                ],
            )
            .await
            // It may have been written all the same.
            .inspect_err(|_| self.near.tell(self.nth, true))?;
        if let Some(row) = answer.rows.first() {
            let room = |max: i64, held: i64| max.saturating_sub(held);
            let room = room(pending_max, row.get(4)).min(room(method_max, row.get(5)));
            self.near.tell(self.nth, room < of(NEAR * bounds.batch_max as u64));
        }
        let judged: HashMap<&str, Judged> =
            answer.rows.iter().map(|row| (row.get(0), Judged::of(row))).collect();
        let is_new = |guid: &Guid| judged.get(guid.as_str()).is_some_and(|one| one.is_new);
        let others: Vec<&(&Guid, &Call)> = calls.iter().filter(|(guid, _)| !is_new(guid)).collect();
        let there = if others.is_empty() { HashMap::new() } else { there(core, &others).await? };
        let deferral = |(guid, call): &(&Guid, &Call)| match (judged.get(guid.as_str()), there.get(*guid)) {
            (Some(Judged { is_new: true, .. }), _) => Some(Ok(((*guid).clone(), Repeated::No))),
            (_, Some(first)) => {
                Some(Ok((first.clone(), if first == *guid { Repeated::No } else { Repeated::Yes })))
            }
            (Some(one), None) => one.refusal(guid, call, *bounds, answer.is_repeated).map(Err),
            (None, None) => {
                Some(Err(DeferError::NotRecorded(JournalError::Failed("no answer for it".to_owned()))))
            }
        };
        Ok(calls.iter().map(deferral).collect())
    }
}

fn failed(guid: &Guid, fault: &Fault) -> Deferral {
    Err(if fault.is_unknown {
        DeferError::Unknown { guid: guid.clone(), source: fault.error.clone() }
    } else {
        DeferError::NotRecorded(fault.error.clone())
    })
}

/// Which of these calls have a record, by their own guid or by their key.
async fn there(core: &Core, calls: &[&(&Guid, &Call)]) -> Result<HashMap<Guid, Guid>, Fault> {
    let guids: Vec<&str> = calls.iter().map(|(guid, _)| guid.as_str()).collect();
    let methods: Vec<&str> = calls.iter().map(|(_, call)| call.method.as_str()).collect();
    let keys: Vec<Option<&str>> = calls.iter().map(|(_, call)| call.key.as_deref()).collect();
    let answer = core.ask_within(core.patience, &core.sql.there, &[&guids, &methods, &keys]).await;
    let answer = answer.map_err(|fault| Fault { is_unknown: true, ..fault })?;
    Ok(answer.rows.iter().map(|row| (Guid::stored(row.get(0)), Guid::stored(row.get(1)))).collect())
}

/// What the statement did with one record.
#[derive(Clone, Copy)]
struct Judged {
    is_new: bool,
    fits_method: bool,
    fits_all: bool,
}

impl Judged {
    fn of(row: &tokio_postgres::Row) -> Self {
        Self { is_new: row.get(1), fits_method: row.get(2), fits_all: row.get(3) }
    }

    /// Why it has no record; nothing if another had its key.
    fn refusal(self, guid: &Guid, call: &Call, bounds: Bounds, is_repeated: bool) -> Option<DeferError> {
        if is_repeated {
            // The first try may still be on its way through the server.
            let source = JournalError::Gone("the connection broke while it was recorded".to_owned());
            return Some(DeferError::Unknown { guid: guid.clone(), source });
        }
        let bound = if !self.fits_method {
            Bound::Method { method: call.method.clone(), max: bounds.method_max }
        } else if !self.fits_all {
            Bound::All { max: bounds.pending_max }
        } else {
            return None;
        };
        Some(DeferError::Full { bound })
    }
}
