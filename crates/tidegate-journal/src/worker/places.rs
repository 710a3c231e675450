//! Room for replays: one place that is the method's own, and those that all methods share.
//!
//! So methods whose handlers hang, be they all but one, can take every shared place and still
//! hold nobody else up.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What one method may take.
#[derive(Clone)]
pub(super) struct Places {
    own: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

impl Places {
    pub(super) fn beside(shared: &Arc<Semaphore>) -> Self {
        Self { own: Arc::new(Semaphore::new(1)), shared: shared.clone() }
    }

    /// Waits for a place, which is free again when this is dropped.
    pub(super) async fn take(&self) -> OwnedSemaphorePermit {
        let place = tokio::select! {
            biased;
            own = self.own.clone().acquire_owned() => own,
            shared = self.shared.clone().acquire_owned() => shared,
        };
        place.expect("the semaphores are never closed")
    }
}
