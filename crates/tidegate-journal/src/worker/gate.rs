//! What a gate answers. The journal knows no limits: whoever does says when a replay may start.

use std::any::Any;
use std::time::Duration;

/// When a replay may start.
///
/// A decision of the limiter fits: allowed now is [`now`](Self::now), allowed after a wait is
/// [`after`](Self::after), refused is [`ask_again`](Self::ask_again) with its retry time, and
/// what could never fit is [`never`](Self::never).
#[derive(Debug)]
pub struct Go {
    pub(super) start: Start,
    pub(super) held: Option<Box<dyn Any + Send>>,
}

#[derive(Clone, Debug)]
pub(super) enum Start {
    After(Duration),
    AskAgain(Duration),
    Never(String),
}

impl Go {
    /// At once.
    pub fn now() -> Self {
        Self::after(Duration::ZERO)
    }

    /// After so much time, without asking again. Those behind it wait as well.
    pub fn after(wait: Duration) -> Self {
        Self { start: Start::After(wait), held: None }
    }

    /// Not yet: ask again after so much time. Meanwhile others of the method are asked, who may
    /// have another key.
    pub fn ask_again(wait: Duration) -> Self {
        Self { start: Start::AskAgain(wait), held: None }
    }

    /// Not now nor later: the record fails with this reason, and those behind it move up.
    pub fn never(reason: impl std::fmt::Display) -> Self {
        Self { start: Start::Never(reason.to_string()), held: None }
    }

    /// Keeps something until the replay has ended, such as the permit of a concurrency limit.
    #[must_use]
    pub fn holding(mut self, permit: impl Any + Send) -> Self {
        self.held = Some(Box::new(permit));
        self
    }
}
