//! The future of a check, under any executor.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// The future of an `_async` method, ready within the store's deadline, or of `acquire`, ready at
/// the start. In memory a decision is ready at once.
///
/// A single check is sent by the call, so that many can be in flight before the first is awaited;
/// dropped before its result, it may count as spent. Several checks, and those
/// that reserve, are sent when they are first polled, and what was charged goes back if the
/// future is dropped before its result.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Pending<T>(State<T>);

enum State<T> {
    /// None once it was taken.
    Ready(Option<T>),
    Waiting(Pin<Box<dyn Future<Output = T> + Send>>),
}

// Nothing of `T` is ever pinned: it is moved out when it is ready.
impl<T> Unpin for Pending<T> {}

impl<T> Pending<T> {
    /// Ready from the start.
    pub fn ready(value: T) -> Self {
        Self(State::Ready(Some(value)))
    }

    /// Ready when this future is.
    pub fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(State::Waiting(Box::pin(future)))
    }

    /// The result, if it is known without waiting.
    ///
    /// # Errors
    /// If it is not: the future goes on.
    pub fn try_ready(self) -> Result<T, Self> {
        match self.0 {
            State::Ready(Some(value)) => Ok(value),
            state => Err(Self(state)),
        }
    }

    /// Waits on this thread, for code without an executor. In async code, await instead.
    pub fn blocking(self) -> T {
        self.try_ready().unwrap_or_else(block_on)
    }
}

impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            State::Ready(value) => Poll::Ready(value.take().expect("nobody polls it after it was ready")),
            State::Waiting(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self.0, State::Ready(_)) { "Pending(Ready)" } else { "Pending(Waiting)" })
    }
}

/// Waits for a future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}
