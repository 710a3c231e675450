//! A method that a worker knows: its name, what a replay runs, and the gate before it.

use super::gate::Go;
use super::handler::{Handler, JobError, Replay, erase};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

pub(super) type Gate = Arc<dyn Fn(Replay) -> BoxFuture<'static, Go> + Send + Sync>;

/// A method that a worker can replay, as `#[limited(..., otherwise = defer)]` makes one beside
/// a function: give it to [`Worker::with`](crate::Worker::with).
#[derive(Clone)]
pub struct Method {
    pub(super) name: Arc<str>,
    pub(super) handler: Handler,
    /// The worker's gate, where it has none of its own.
    pub(super) gate: Option<Gate>,
}

impl Method {
    pub(crate) fn new<P, T, F, Fut>(name: &str, handler: F) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        T: Serialize,
        F: Fn(Replay, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, JobError>> + Send + 'static,
    {
        Self { name: name.into(), handler: erase(handler), gate: None }
    }

    /// What stands in `method_name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asked before each replay, instead of what was asked before.
    #[must_use]
    pub fn gate<F, Fut>(mut self, gate: F) -> Self
    where
        F: Fn(Replay) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Go> + Send + 'static,
    {
        self.gate = Some(shared(gate));
        self
    }
}

pub(super) fn shared<F, Fut>(gate: F) -> Gate
where
    F: Fn(Replay) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Go> + Send + 'static,
{
    Arc::new(move |replay| gate(replay).boxed())
}

impl std::fmt::Debug for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let has_own_gate = self.gate.is_some();
        f.debug_struct("Method").field("name", &self.name).field("has_own_gate", &has_own_gate).finish()
    }
}
