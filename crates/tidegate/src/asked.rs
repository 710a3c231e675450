//! Answers that are to come, under any executor. In memory they have come already.

use crate::acquire::block_on;
use crate::algorithm::Mode;
use crate::ask::{OwnedAsk, decide};
use crate::decision::Decision;
#[cfg(feature = "redis")]
use crate::store::redis::{Change, How, Meter, What, promise};
use crate::verdict::Verdict;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
#[cfg(feature = "redis")]
use std::sync::Arc;
use std::task::{Context, Poll};

/// Becomes the [`Decision`] of [`Gate::check_async`](crate::Gate::check_async), within the
/// store's deadline. It is on its way from the call on, so that many can be asked before
/// the first is awaited; dropped before its answer, it may count as spent.
#[must_use = "the decision is what it becomes when it is awaited"]
pub struct DecisionFuture(Deciding);

enum Deciding {
    Ready(Option<Decision>),
    #[cfg(feature = "redis")]
    Asked(crate::store::redis::Asked),
}

impl DecisionFuture {
    pub(crate) fn ready(decision: Decision) -> Self {
        Self(Deciding::Ready(Some(decision)))
    }

    #[cfg(feature = "redis")]
    pub(crate) fn new(meter: &Arc<Meter>, key: &[u8], cost: u64, how: How) -> Self {
        match meter.begin(key, cost, how) {
            Ok(asked) => Self(Deciding::Asked(asked)),
            Err(decision) => Self::ready(decision),
        }
    }
}

impl Future for DecisionFuture {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Decision> {
        #[cfg(not(feature = "redis"))]
        let _ = context;
        match &mut self.0 {
            Deciding::Ready(decision) => match decision.take() {
                Some(decision) => Poll::Ready(decision),
                None => panic!("`DecisionFuture` was polled after it was ready"),
            },
            #[cfg(feature = "redis")]
            Deciding::Asked(asked) => asked.poll(context),
        }
    }
}

impl fmt::Debug for DecisionFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionFuture").finish_non_exhaustive()
    }
}

/// Becomes the [`Verdict`] of `reserve_async` and `check_async`, within the store's
/// deadline for each place that it has to ask. Nothing is asked before it is awaited, and
/// what was charged goes back if it is dropped after that and before the verdict.
#[must_use = "a future does nothing unless it is awaited"]
pub struct VerdictFuture(Judging);

enum Judging {
    /// To be decided in memory, at once, by whoever awaits it: what is decided before could
    /// not always be taken back.
    Memory(Option<(Vec<OwnedAsk>, Mode)>),
    #[cfg(feature = "redis")]
    Parts(Pin<Box<dyn Future<Output = Verdict> + Send>>),
}

impl VerdictFuture {
    pub(crate) fn new(asks: Vec<OwnedAsk>, mode: Mode) -> Self {
        #[cfg(feature = "redis")]
        if asks.iter().any(|ask| matches!(ask, OwnedAsk::Redis(_))) {
            return Self(Judging::Parts(Box::pin(crate::parts::decide(asks, mode))));
        }
        Self(Judging::Memory(Some((asks, mode))))
    }
}

impl Future for VerdictFuture {
    type Output = Verdict;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Verdict> {
        #[cfg(not(feature = "redis"))]
        let _ = context;
        match &mut self.0 {
            Judging::Memory(asks) => match asks.take() {
                Some((asks, mode)) => Poll::Ready(decide(asks, mode)),
                None => panic!("`VerdictFuture` was polled after it was ready"),
            },
            #[cfg(feature = "redis")]
            Judging::Parts(parts) => parts.as_mut().poll(context),
        }
    }
}

impl fmt::Debug for VerdictFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerdictFuture").finish_non_exhaustive()
    }
}

/// Becomes true once a key is reset, false if the store did not answer in time. It is
/// on its way also if nobody awaits it.
pub struct ResetFuture(Resetting);

enum Resetting {
    Done,
    #[cfg(feature = "redis")]
    Asked(Pin<Box<dyn Future<Output = bool> + Send>>),
}

impl ResetFuture {
    pub(crate) fn done() -> Self {
        Self(Resetting::Done)
    }

    #[cfg(feature = "redis")]
    pub(crate) fn new(meter: &Arc<Meter>, key: &[u8]) -> Self {
        let hash = meter.hash(key);
        meter.forget(hash);
        meter.cancelled.forget(hash);
        let key = meter.key(key, hash);
        // Held places stay held.
        if key.version.is_place() {
            return Self::done();
        }
        let (promise, awaited) = promise();
        let since = meter.core().now();
        meter.core().change(Change { key: Some(key), what: What::Reset, since, promise: Some(promise) });
        Self(Resetting::Asked(Box::pin(async move { matches!(awaited.await, Some(Ok(_))) })))
    }

    /// Waits on this thread.
    pub fn blocking(self) -> bool {
        block_on(self)
    }
}

impl Future for ResetFuture {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        #[cfg(not(feature = "redis"))]
        let _ = context;
        match &mut self.0 {
            Resetting::Done => Poll::Ready(true),
            #[cfg(feature = "redis")]
            Resetting::Asked(asked) => asked.as_mut().poll(context),
        }
    }
}

impl fmt::Debug for ResetFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResetFuture").finish_non_exhaustive()
    }
}
