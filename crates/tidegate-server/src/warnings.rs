//! What the libraries warn of, for whoever runs the program: a line each on standard error.
//!
//! Deliberately absent: spans, levels to choose from, and times. This is a command, not a server.

use crate::terminal;
use std::fmt::{Debug, Write as _};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Hands each line to this function.
pub(crate) struct Warnings(pub(crate) fn(&str));

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        (self.0)(&line(event));
    }

    // There are no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn line(event: &Event<'_>) -> String {
    let mut text = Text::default();
    event.record(&mut text);
    let level = if *event.metadata().level() == Level::ERROR { "error" } else { "warning" };
    // It may repeat what strangers wrote.
    terminal::plain(&format!("{level}: {}{}", text.message, text.others))
}

#[derive(Default)]
struct Text {
    message: String,
    others: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.others, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn warnings_and_errors_are_told_in_one_harmless_line_and_nothing_else_is() {
        static KEPT: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let warnings = Warnings(|line| KEPT.lock().unwrap().push(line.to_owned()));
        tracing::subscriber::with_default(warnings, || {
            tracing::info!("nobody asked");
            tracing::warn!(code = 7, "a\x1b[2J\nb");
            tracing::error!("it's gone");
        });
        assert_eq!(*KEPT.lock().unwrap(), ["warning: a\\u{1b}[2J\\nb code=7", "error: it's gone"]);
    }
}
