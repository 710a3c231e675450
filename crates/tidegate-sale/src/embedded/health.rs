//! Whether the file can be written. Orders tell that it cannot; a write of its own, as long as
//! it fails, tells that it can again: a process that is not ready gets no orders to try with.

use super::desk::Desk;
use super::fault::{Kind, WriteFault};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Room for some hundred orders. One row alone may fit where the next order does not.
const PROBE_BYTES: u32 = 64 * 1024;

/// Why the file cannot be written; none if it can.
#[derive(Default)]
pub(super) struct Health {
    fault: Mutex<Option<Arc<str>>>,
}

impl Health {
    pub(super) fn fault(&self) -> Option<Arc<str>> {
        self.lock().clone()
    }

    /// The first of a row of failures is logged: a full disk fails every order.
    pub(super) fn note(&self, fault: &WriteFault) {
        if fault.kind != Kind::File {
            return;
        }
        let was = self.lock().replace(fault.what.clone());
        if was.is_none() {
            tracing::error!(error = %fault.what, "the sale's file cannot be written; orders are answered 50302");
        }
    }

    fn recovered(&self) {
        if self.lock().take().is_some() {
            tracing::info!("the sale's file can be written again");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    /// Writes something large and removes it. The file keeps its pages for the next orders.
    pub(super) fn probe(&self) {
        let write = "INSERT OR REPLACE INTO sale_settings VALUES ('probe', zeroblob(?1))";
        let written = self.conn.execute(write, [PROBE_BYTES]);
        let removed =
            written.and_then(|_| self.conn.execute("DELETE FROM sale_settings WHERE name = 'probe'", []));
        match removed {
            Ok(_) => self.health.recovered(),
            Err(error) => tracing::debug!(%error, "the sale's file still cannot be written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tracing::{Event, Level, Metadata, Subscriber, span};

    /// Counts errors.
    #[derive(Clone, Default)]
    struct Errors(Arc<AtomicUsize>);

    impl Subscriber for Errors {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == Level::ERROR
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_full_disk_is_logged_once_until_it_has_room_again() {
        let errors = Errors::default();
        // With one log only, a place in the code that another thread passes first counts as one
        // that nobody wants to hear of.
        let _second = tracing::Dispatch::new(errors.clone());
        tracing::subscriber::with_default(errors.clone(), || {
            tracing::callsite::rebuild_interest_cache();
            let health = Health::default();
            for _ in 0..2 {
                for _ in 0..668 {
                    health.note(&WriteFault { kind: Kind::File, what: "database or disk is full".into() });
                }
                health.recovered();
            }
            health.note(&WriteFault::stopped());
            assert!(health.fault().is_none(), "not the file's fault");
        });
        assert_eq!(errors.0.load(Ordering::Relaxed), 2);
    }
}
