//! Named places where a process can end: between two steps that belong together. Tests end
//! a real process there; otherwise nothing happens here.

/// A crash window.
#[derive(Clone, Copy, Debug)]
pub(super) enum Point {
    /// Redis has the order, the broker has not.
    Reserved,
    /// The broker has it, and it is still in the outbox.
    Published,
    /// The database has it, and the broker does not know.
    Committed,
    /// The database has given units back, Redis has not.
    Returned,
    /// Redis has them back, and the database does not know.
    Given,
    /// The database has a new epoch, Redis is not loaded.
    Counted,
}

#[cfg(not(test))]
pub(super) fn reach(_point: Point) {}

/// Ends the process as a kill does, if `TIDEGATE_END_AT` names this place and how often it
/// was passed before: `Published 3`.
#[cfg(test)]
pub(super) fn reach(point: Point) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    static END: OnceLock<Option<(String, u32)>> = OnceLock::new();
    static PASSED: AtomicU32 = AtomicU32::new(0);
    let end = END.get_or_init(|| {
        let text = std::env::var("TIDEGATE_END_AT").ok()?;
        let (name, nth) = text.split_once(' ')?;
        Some((name.to_owned(), nth.parse().ok()?))
    });
    if let Some((name, nth)) = end
        && *name == format!("{point:?}")
        && PASSED.fetch_add(1, Ordering::SeqCst) >= *nth
    {
        // Nothing runs any more, nothing is flushed.
        std::process::abort();
    }
}
