//! What a method's replay runs, with typed parameters on the outside and JSON on the inside.

use super::crew::clean;
use super::held::Stop;
use crate::Guid;
use crate::backend::Claimed;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Why a replay did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// May succeed later: tried again after a while, up to the most attempts.
    #[error("{0}")]
    Retry(String),
    /// Never will: failed at once.
    #[error("{0}")]
    Permanent(String),
}

impl JobError {
    /// May succeed later.
    pub fn retry(reason: impl std::fmt::Display) -> Self {
        Self::Retry(reason.to_string())
    }

    /// Never will.
    pub fn permanent(reason: impl std::fmt::Display) -> Self {
        Self::Permanent(reason.to_string())
    }
}

/// What is replayed. A gate is asked about it, and a handler may want to know it: the guid is
/// the same in every attempt, so it is the key with which the work behind can be made to
/// happen once.
#[derive(Clone)]
#[non_exhaustive]
pub struct Replay {
    /// The record.
    pub guid: Guid,
    /// The method.
    pub method: Arc<str>,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// 0 to 9, the highest first.
    pub priority: u8,
    /// The number of this lease. It grows with each owner, so whoever guards something by it
    /// can turn away a handler that lost its lease and does not know yet.
    pub lease: i64,
    /// The parameters, as JSON: a gate may take its key from them.
    pub params: Arc<str>,
    stop: Arc<Stop>,
}

impl Replay {
    /// The one that this task or thread runs: for functions under
    /// `#[limited(..., otherwise = defer)]`, which are not handed it.
    pub fn current() -> Option<Self> {
        super::lane::Current::get().map(|current| current.replay)
    }

    /// Whether this attempt still counts. False as soon as the lease has ended, another worker has
    /// the record, it was cancelled, it took longer than
    /// [`replay_max`](crate::Worker::replay_max), or its worker stops.
    ///
    /// A worker drops the future of an async handler then. What runs on a thread, or blocks the
    /// thread of its task, cannot be stopped: let it ask before each step that must not happen
    /// twice. It asks a clock and a flag, so it costs next to nothing.
    ///
    /// ```
    /// # use tidegate_journal::{JobError, Journal, Worker};
    /// # fn print_label(parcel: u64) {}
    /// # fn worker(journal: &Journal) -> Worker {
    /// Worker::new(journal).on_replay("label", |replay, parcels: Vec<u64>| async move {
    ///     let printed = tokio::task::spawn_blocking(move || {
    ///         parcels.into_iter().take_while(|_| replay.lease_holds()).map(print_label).count()
    ///     });
    ///     printed.await.map_err(JobError::retry)
    /// })
    /// # }
    /// ```
    pub fn lease_holds(&self) -> bool {
        self.stop.counts()
    }

    pub(super) fn new(claimed: &Claimed, stop: &Arc<Stop>) -> Self {
        Self {
            stop: stop.clone(),
            guid: claimed.lease.guid.clone(),
            method: claimed.method.as_str().into(),
            attempt: claimed.attempts + 1,
            priority: claimed.priority,
            lease: claimed.lease.number,
            params: claimed.params.as_str().into(),
        }
    }
}

/// Without its parameters, which may be personal and must not get into a log by accident.
impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay")
            .field("guid", &self.guid)
            .field("method", &self.method)
            .field("attempt", &self.attempt)
            .field("priority", &self.priority)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// A result of at most so many bytes, as JSON, is kept.
const RESULT_MAX: usize = 64 * 1024;

/// A result, or why there is none.
pub(super) struct Finished {
    pub(super) result: Option<String>,
    pub(super) note: Option<String>,
}

pub(super) type Handler = Arc<dyn Fn(Replay) -> BoxFuture<'static, Result<Finished, JobError>> + Send + Sync>;

/// Hides the types.
pub(super) fn erase<P, T, F, Fut>(handler: F) -> Handler
where
    P: DeserializeOwned + Send + 'static,
    T: Serialize,
    F: Fn(Replay, P) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, JobError>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |replay| {
        let handler = handler.clone();
        let run = async move {
            let params: P = serde_json::from_str(&replay.params).map_err(|error| {
                JobError::Permanent(format!("the parameters do not fit `{}`: {error}", replay.method))
            })?;
            Ok(finished(&handler(replay, params).await?))
        };
        AssertUnwindSafe(run)
            .catch_unwind()
            .map(|caught| caught.unwrap_or_else(|panic| Err(panicked(&*panic))))
            .boxed()
    })
}

/// The work is done, whatever can be kept of its result.
fn finished<T: Serialize>(value: &T) -> Finished {
    match serde_json::to_string(value) {
        Ok(json) if json.len() > RESULT_MAX => {
            let note =
                format!("done; its result of {} bytes was not kept (at most {RESULT_MAX} are)", json.len());
            Finished { result: None, note: Some(note) }
        }
        Ok(json) => Finished { result: Some(json), note: None },
        Err(error) => Finished {
            result: None,
            note: Some(clean(&format!("done; its result cannot be written as JSON: {error}"))),
        },
    }
}

/// A panic may be a passing thing, so it counts as an attempt like any other error.
fn panicked(panic: &(dyn Any + Send)) -> JobError {
    JobError::Retry(format!("the handler panicked: {}", said(panic)))
}

/// What a panic said.
pub(super) fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
