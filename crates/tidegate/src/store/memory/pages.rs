//! How the system backs a large table.
//!
//! Pages of four kilobytes cost a look-up of their own on nearly every decision over
//! millions of keys; huge ones spare it. They come whole, so a table is advised only
//! if somebody has said how many keys it is for.

use crate::sync::AtomicU64;

/// What a table is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Small ones, as keys touch them.
    AsTouched,
    /// Huge ones, where the system has them.
    Huge,
}

/// Smaller tables fit the processor's own table of pages.
const WORTH_BYTES: usize = 8 << 20;

#[cfg(all(target_os = "linux", not(any(tidegate_loom, miri))))]
#[expect(unsafe_code, reason = "the standard library has no safe call for this advice")]
pub(crate) fn advise(words: &[AtomicU64], pages: Pages) {
    const PAGE: usize = 4096;
    let bytes = size_of_val(words);
    if pages == Pages::AsTouched || bytes < WORTH_BYTES {
        return;
    }
    let start = words.as_ptr();
    let skipped = start.align_offset(PAGE);
    let Some(rest) = skipped.checked_mul(size_of::<AtomicU64>()).and_then(|skip| bytes.checked_sub(skip))
    else {
        return;
    };
    let start = start.wrapping_add(skipped).cast_mut().cast();
    // SAFETY: the range lies within `words`, which is alive, starts at a page and ends
    // before the slice does. The advice changes what backs it and never what it holds,
    // and a system that does not take it says so and goes on.
    let _ = unsafe { libc::madvise(start, rest / PAGE * PAGE, libc::MADV_HUGEPAGE) };
}

#[cfg(not(all(target_os = "linux", not(any(tidegate_loom, miri)))))]
pub(crate) fn advise(_words: &[AtomicU64], _pages: Pages) {
    let _ = WORTH_BYTES;
}
