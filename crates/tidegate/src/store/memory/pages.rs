//! The memory of a table: zeroed words that the system backs as they are touched.
//!
//! An allocator promises that only for memory that it never gave out before: a block that was
//! freed it fills with zeros, and the whole table is resident before it holds a key. So a large
//! table is mapped, and unmapped when it is dropped.
//!
//! Pages of four kilobytes cost a look-up of their own on nearly every decision over millions of
//! keys; huge ones spare it. They are resident as a whole, so a table advises for them only if
//! its number of keys was configured, and otherwise against them, because some systems use them
//! by default.
//!
//! Small tables, systems without `mmap`, loom and miri use the allocator.
#![expect(unsafe_code, reason = "the standard library neither maps memory nor advises on it")]

use crate::sync::AtomicU64;
use std::ops::Deref;
use std::ptr::NonNull;

/// What a table is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Small ones, as keys touch them.
    AsTouched,
    /// Huge ones, where the system has them and the size makes it worth it.
    Huge,
}

/// Smaller tables are filled with zeros in a few microseconds.
const MAPPED_BYTES_MIN: usize = 128 << 10;
/// Smaller tables fit the processor's own table of pages.
const HUGE_BYTES_MIN: u64 = 8 << 20;
/// Larger ones are more likely a wish for no bound than a count of keys: a few thousand keys
/// would make all of it resident.
const HUGE_BYTES_MAX: u64 = 16 << 30;

/// Words that start as zeros, in one piece that never moves.
pub(crate) struct Words {
    words: NonNull<[AtomicU64]>,
    is_mapped: bool,
}

// SAFETY: the words are owned by this value alone, as by a box, and are shared as
// `&[AtomicU64]` only, which is `Send` and `Sync`.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    pub(crate) fn zeroed(length: usize, pages: Pages) -> Self {
        let bytes = length.saturating_mul(size_of::<AtomicU64>());
        let mapped = if bytes < MAPPED_BYTES_MIN { None } else { system::map(bytes) };
        match mapped {
            Some(start) => {
                let huge =
                    pages == Pages::Huge && (HUGE_BYTES_MIN..=HUGE_BYTES_MAX).contains(&(bytes as u64));
                system::advise(start, bytes, if huge { Pages::Huge } else { Pages::AsTouched });
                Self { words: NonNull::slice_from_raw_parts(start.cast(), length), is_mapped: true }
            }
            // Where the system gives no room to map, the allocator ends the process as it does
            // for any memory that is not there.
            None => Self { words: NonNull::from(Box::leak(allocated(length))), is_mapped: false },
        }
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `length` words that live as long as this value, aligned to a page or by
        // the allocator. A mapping starts as zeros, which are `AtomicU64`s, and nobody
        // holds a `&mut` to them.
        unsafe { self.words.as_ref() }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if self.is_mapped {
            system::unmap(self.words.cast(), size_of_val::<[AtomicU64]>(self));
        } else {
            // SAFETY: it was leaked from such a box in `zeroed`, and is not used any more.
            drop(unsafe { Box::from_raw(self.words.as_ptr()) });
        }
    }
}

#[cfg(not(tidegate_loom))]
fn allocated(length: usize) -> Box<[AtomicU64]> {
    bytemuck::allocation::zeroed_slice_box(length)
}

#[cfg(tidegate_loom)]
fn allocated(length: usize) -> Box<[AtomicU64]> {
    (0..length).map(|_| AtomicU64::new(0)).collect()
}

#[cfg(all(unix, not(any(tidegate_loom, miri))))]
mod system {
    use super::Pages;
    use std::ptr::NonNull;

    /// Address space without memory behind it, starting at a page; `None` if there is none.
    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // Nothing is set aside for what may never be touched, also where the system would
        // otherwise refuse a table that is larger than what is free.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping wherever the system likes touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
    }

    /// The advice changes what backs the pages and never what they hold; a system that does
    /// not take it goes on without.
    #[cfg(target_os = "linux")]
    pub(super) fn advise(start: NonNull<u8>, bytes: usize, pages: Pages) {
        let advice = match pages {
            Pages::Huge => libc::MADV_HUGEPAGE,
            Pages::AsTouched => libc::MADV_NOHUGEPAGE,
        };
        // SAFETY: the range is a mapping of ours, which starts at a page.
        let _ = unsafe { libc::madvise(start.as_ptr().cast(), bytes, advice) };
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn advise(_start: NonNull<u8>, _bytes: usize, _pages: Pages) {}

    pub(super) fn unmap(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the mapping as `map` made it, whole; its owner is being dropped.
        let result = unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
        debug_assert_eq!(result, 0, "a whole mapping can be given back");
    }
}

#[cfg(not(all(unix, not(any(tidegate_loom, miri)))))]
mod system {
    use super::Pages;
    use std::ptr::NonNull;

    pub(super) fn map(_bytes: usize) -> Option<NonNull<u8>> {
        None
    }

    pub(super) fn advise(_start: NonNull<u8>, _bytes: usize, _pages: Pages) {}

    pub(super) fn unmap(_start: NonNull<u8>, _bytes: usize) {}
}
