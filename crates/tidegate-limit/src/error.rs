//! Why a limit is not one: what was wrong, where, and what to write instead.

use std::fmt;
use std::ops::Range;

/// Why a text or a builder does not make a [`Limit`](crate::Limit).
///
/// Displays as one line that names what was wrong, where, and a right example.
///
/// ```
/// let error = "1000/s burst fast".parse::<tidegate::Limit>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "`burst` needs a number of units or a duration, not `fast` \
///      (at column 14 of `1000/s burst fast`); write for example `1000/s burst 20`"
/// );
/// assert_eq!(error.span(), Some(13..17));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitError {
    what: String,
    example: &'static str,
    span: Option<Range<usize>>,
}

/// Of longer texts only the beginning is printed: an error is read by people.
const SHOWN_MAX: usize = 120;

impl LimitError {
    pub(crate) fn new(what: impl Into<String>, example: &'static str) -> Self {
        Self { what: what.into(), example, span: None }
    }

    pub(crate) fn at(mut self, text: &str, span: Range<usize>) -> Self {
        // Characters before the span, and one: what an editor shows.
        let column = text.char_indices().take_while(|(at, _)| *at < span.start).count() + 1;
        self.what = format!("{} (at column {column} of `{}`)", self.what, bounded(text));
        self.span = Some(span);
        self
    }

    /// The bytes of the text that are wrong, where the limit was a text.
    pub fn span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }

    /// A text that would have been right.
    pub fn example(&self) -> &str {
        self.example
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; write for example `{}`", self.what, self.example)
    }
}

impl std::error::Error for LimitError {}

/// A limit that is one already cannot be wrong.
impl From<std::convert::Infallible> for LimitError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// What a user wrote, fit for a message: bounded and without control characters.
pub(crate) fn bounded(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(SHOWN_MAX) {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    if text.chars().nth(SHOWN_MAX).is_some() {
        out.push('…');
    }
    out
}
