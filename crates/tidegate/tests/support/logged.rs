//! What is logged while something runs, as lines.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fmt::Write;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Writes what is logged under one target into lines.
#[derive(Clone)]
struct Log {
    target: &'static str,
    level: Level,
    lines: Arc<Mutex<Vec<String>>>,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == self.target && *metadata.level() <= self.level
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.lines.lock().unwrap().push(line.0);
    }
}

pub(crate) fn logged(target: &'static str, level: Level, run: impl FnOnce()) -> Vec<String> {
    let log = Log { target, level, lines: Arc::default() };
    // While there is one log only, a place in the code that another test's thread passes
    // first, without a log, counts as one that nobody wants to hear of. With two, every
    // log is asked.
    let _second = tracing::Dispatch::new(log.clone());
    tracing::subscriber::with_default(log.clone(), || {
        tracing::callsite::rebuild_interest_cache();
        run();
    });
    std::mem::take(&mut *log.lines.lock().unwrap())
}
