//! Waiting on a thread, for functions that are not async.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tokio::runtime::{Handle, RuntimeFlavor};

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future that others drive on.
///
/// Within a task, tokio lets so many things be ready in one turn and then none, until the task
/// gives way. Nobody gives way here, so that must not count.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(tokio::task::unconstrained(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

/// Waits for something that needs the runtime to go on. Nothing where this may be its only
/// thread; with several, another takes over what this one had to do.
pub(crate) fn within_runtime<T>(wait: impl FnOnce() -> T) -> Option<T> {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Err(_) => Some(wait()),
        Ok(RuntimeFlavor::CurrentThread) => None,
        Ok(_) => Some(tokio::task::block_in_place(wait)),
    }
}
