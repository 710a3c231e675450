//! The id of this process, without a system call each time. Whatever depends on a thread compares
//! it, to find out that it was inherited by `fork`, which copies no threads.
#![cfg_attr(unix, expect(unsafe_code, reason = "the standard library has no hook for a fork"))]

/// The id of this process. A child made by the bare system call, past the C library's
/// `fork`, still has its parent's.
#[cfg(unix)]
pub(crate) fn id() -> u32 {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// 0 until it was read in this process.
    static ID: AtomicU32 = AtomicU32::new(0);
    static IS_RESET_BY_FORK: OnceLock<bool> = OnceLock::new();

    extern "C" fn forget() {
        ID.store(0, Ordering::Relaxed);
    }

    let known = ID.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let id = std::process::id();
    // SAFETY: the handler only stores to an atomic, which may be done after a fork of a
    // process with threads, and it is never unloaded.
    if *IS_RESET_BY_FORK.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(forget)) } == 0) {
        ID.store(id, Ordering::Relaxed);
    }
    id
}

#[cfg(not(unix))]
pub(crate) fn id() -> u32 {
    std::process::id()
}
