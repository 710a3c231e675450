//! What the code of `#[limited(..., otherwise = defer)]` calls: how a refused call is recorded,
//! and how its record is read and run again.
//!
//! Not for people: everything here is hidden, and changes with the attribute. Limits are not
//! known here either: what a gate asks is in the code that the attribute makes.

use crate::{Call, CallError, DeferError, Deferred, Go, JobError, Journal, Method, Replay};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Once};

/// The arguments of a refused call: `{"order_id":17,"to":"Bern"}`.
pub struct Arguments {
    method: String,
    json: Result<String, serde_json::Error>,
}

impl Arguments {
    /// None yet.
    pub fn of(method: String) -> Self {
        Self { method, json: Ok(String::from("{")) }
    }

    /// One more.
    #[must_use]
    pub fn with<A: Recorded + ?Sized>(mut self, name: &'static str, argument: &A) -> Self {
        self.json = self.json.and_then(|mut json| {
            let joint = if json.len() > 1 { ",\"" } else { "\"" };
            json.extend([joint, name, "\":", &argument.json()?]);
            Ok(json)
        });
        self
    }

    /// The call that they make.
    pub fn call(self) -> Result<Call, CallError> {
        match self.json {
            Ok(json) => Call::build(&self.method, json + "}"),
            Err(source) => Err(CallError::Json { method: self.method, source }),
        }
    }
}

/// Records a call, in the process's journal unless another is given.
pub async fn record(
    call: Result<Call, CallError>,
    journal: Option<&Journal>,
) -> Result<Deferred, DeferError> {
    journal_or_global(journal)?.defer(call?).await.map(Deferred::new)
}

/// [`record`] for a function that is not async.
pub fn record_blocking(
    call: Result<Call, CallError>,
    journal: Option<&Journal>,
) -> Result<Deferred, DeferError> {
    journal_or_global(journal)?.defer_blocking(call?).map(Deferred::new)
}

fn journal_or_global(journal: Option<&Journal>) -> Result<&Journal, DeferError> {
    static SAID: Once = Once::new();
    journal.or(Journal::global()).ok_or_else(|| {
        // A mistake in the program, so it is said once, also where callers swallow the error.
        SAID.call_once(|| tracing::error!("{}", DeferError::NoJournal));
        DeferError::NoJournal
    })
}

/// Replays what was recorded as `name`: `gate` says when, `body` is the function itself.
pub fn method<G, Asked, B, Run, T>(name: &str, gate: G, body: B) -> Method
where
    G: Fn(Replayed) -> Asked + Send + Sync + 'static,
    Asked: Future<Output = Result<Go, JobError>> + Send + 'static,
    B: Fn(Replayed) -> Run + Send + Sync + 'static,
    Run: Future<Output = Result<T, JobError>> + Send + 'static,
    T: Serialize,
{
    let ask = move |replay: Replay| {
        let asked = Replayed::of(&replay).map(&gate);
        async move {
            let go = match asked {
                Ok(asked) => asked.await,
                Err(error) => Err(error),
            };
            go.unwrap_or_else(Go::never)
        }
    };
    let run = move |replay: Replay, arguments| body(Replayed { method: replay.method, arguments });
    Method::new(name, run).gate(ask)
}

/// The arguments of a record that is replayed; each is read when its type is known.
pub struct Replayed {
    method: Arc<str>,
    arguments: HashMap<String, Box<RawValue>>,
}

impl Replayed {
    fn of(replay: &Replay) -> Result<Self, JobError> {
        let method = replay.method.clone();
        match serde_json::from_str(&replay.params) {
            Ok(arguments) => Ok(Self { method, arguments }),
            Err(error) => Err(does_not_fit(&method, &error)),
        }
    }

    /// One of them. An `Option` that older records do not have is none.
    pub fn read<A: Readable>(&self, name: &'static str) -> Result<A, JobError> {
        let json = self.arguments.get(name).map(|raw| raw.get());
        A::read(json.unwrap_or("null")).map_err(|error| match json {
            Some(_) => does_not_fit(&self.method, &format!("`{name}`: {error}")),
            None => does_not_fit(&self.method, &format!("there is no `{name}`")),
        })
    }
}

fn does_not_fit(method: &str, what: &dyn Display) -> JobError {
    JobError::Permanent(format!("the parameters do not fit `{method}`: {what}"))
}

/// A function that has a thread or waits for one. Where nobody waits for it any more, such as when its
/// lease has ended, one that has not started never does. One that has cannot be stopped.
struct Waited<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Waited<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs a function that is not async where it holds nobody up. What its replay holds, such as a
/// place of a limit, and its record are held until it has ended, also where nobody waits for it any
/// more.
pub async fn on_a_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let current = crate::worker::Current::get();
    let run = move || match current {
        Some(current) => current.scope(body),
        None => body(),
    };
    let mut thread = Waited(tokio::task::spawn_blocking(run));
    match (&mut thread.0).await {
        Ok(ended) => ended,
        Err(error) => match error.try_into_panic() {
            // It counts as any other panic of a handler.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => panic!("{error}"),
        },
    }
}

/// What can be made of a deferred call without being told how.
#[diagnostic::on_unimplemented(
    message = "`#[limited(..., otherwise = defer)]` cannot turn a deferred call into `{Self}`",
    label = "this function has no way to say that it was deferred",
    note = "return `Result<T, E>` where `E: From<tidegate_journal::Deferred> + From<tidegate::Refusal>`"
)]
pub trait Kept {
    /// The answer as what the function returns.
    fn kept(deferred: Deferred) -> Self;
}

impl<T, E: OfDeferred> Kept for Result<T, E> {
    fn kept(deferred: Deferred) -> Self {
        Err(E::of(deferred))
    }
}

/// Errors that say "deferred".
#[diagnostic::on_unimplemented(
    message = "`#[limited(..., otherwise = defer)]` cannot turn a deferred call into the error `{Self}`",
    label = "`{Self}` does not implement `From<tidegate_journal::Deferred>`",
    note = "a refused call is deferred, or refused where it cannot be recorded, and the error says which: return \
            one of your own, such as `enum ShipError {{ Busy(tidegate::Refusal), \
            Later(tidegate_journal::Deferred) }}`, with `From` for both and `Display`",
    note = "or return `Box<dyn std::error::Error + Send + Sync>`, into which both convert",
    note = "if `{Self}` is a type of yours, write `impl From<tidegate_journal::Deferred> for {Self}`"
)]
pub trait OfDeferred {
    /// The answer as this error.
    fn of(deferred: Deferred) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<Deferred>> OfDeferred for E {
    fn of(deferred: Deferred) -> Self {
        Self::from(deferred)
    }
}

/// Arguments that can be written down.
#[diagnostic::on_unimplemented(
    message = "an argument of type `{Self}` cannot be recorded",
    label = "`{Self}` does not implement `serde::Serialize`",
    note = "`otherwise = defer` writes all arguments down: derive `Serialize` and `Deserialize` for it, \
            or put it into `self`, which is given again when the call is replayed"
)]
pub trait Recorded {
    /// As JSON.
    fn json(&self) -> serde_json::Result<String>;
}

#[diagnostic::do_not_recommend]
impl<A: Serialize + ?Sized> Recorded for A {
    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

/// Arguments that can be read again.
#[diagnostic::on_unimplemented(
    message = "an argument of type `{Self}` cannot be read again from its record",
    label = "`{Self}` does not implement `serde::Deserialize`, or borrows from what it reads",
    note = "derive `Deserialize` for it; an argument `&T` is replayed from an owned `T`"
)]
pub trait Readable: Sized {
    /// From JSON.
    fn read(json: &str) -> serde_json::Result<Self>;
}

#[diagnostic::do_not_recommend]
impl<A: DeserializeOwned> Readable for A {
    fn read(json: &str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }
}

/// What an error of the function means for its record: what `impl From<E> for JobError` says,
/// and without one, that it may pass.
///
/// Both traits have the method; the compiler takes the one that needs fewer references.
pub trait SaysWhether {
    /// By conversion.
    fn __tidegate_kind(&self) -> Converted {
        Converted
    }
}

impl<E: Into<JobError>> SaysWhether for E {}

/// The other one.
pub trait MayPass {
    /// By its text.
    fn __tidegate_kind(&self) -> Shown {
        Shown
    }
}

impl<E: Display> MayPass for &E {}

/// See [`SaysWhether`].
pub struct Converted;

/// See [`MayPass`].
pub struct Shown;

impl Converted {
    /// As the conversion says.
    pub fn job_error(self, error: impl Into<JobError>) -> JobError {
        error.into()
    }
}

impl Shown {
    /// May pass.
    pub fn job_error(self, error: impl Display) -> JobError {
        JobError::retry(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// The lease of a replay that waits for a thread may end before there is one.
    #[test]
    fn what_still_waits_for_a_thread_does_not_start_when_nobody_waits_for_it_any_more() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.max_blocking_threads(1).build().unwrap().block_on(async {
            let (open, opened) = std::sync::mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || opened.recv());
            let has_run = Arc::new(AtomicBool::new(false));
            let runs = has_run.clone();
            let mut waits = Box::pin(on_a_thread(move || runs.store(true, Ordering::SeqCst)));
            std::future::poll_fn(|context| {
                assert!(waits.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            drop(waits);
            open.send(()).unwrap();
            busy.await.unwrap().unwrap();
            // It comes after the other.
            on_a_thread(|| ()).await;
            assert!(!has_run.load(Ordering::SeqCst));
        });
    }
}
