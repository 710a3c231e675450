//! An answer that is to come, under any executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The side that answers.
pub(crate) struct Promise<T>(Arc<Shared<T>>);

/// The side that waits. Dropped before the answer, nobody waits any more.
pub(crate) struct Awaited<T>(Arc<Shared<T>>);

struct Shared<T>(Mutex<State<T>>);

enum State<T> {
    Waiting(Option<Waker>),
    Kept(T),
    /// The answer was taken.
    Taken,
    Gone,
    Broken,
}

pub(crate) fn promise<T>() -> (Promise<T>, Awaited<T>) {
    let shared = Arc::new(Shared(Mutex::new(State::Waiting(None))));
    (Promise(shared.clone()), Awaited(shared))
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Promise<T> {
    /// Answers; gives the answer back if nobody waits for it.
    pub(crate) fn keep(&self, answer: T) -> Option<T> {
        let mut state = self.0.lock();
        match &mut *state {
            State::Waiting(waker) => {
                let waker = waker.take();
                *state = State::Kept(answer);
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                }
                None
            }
            State::Kept(_) | State::Taken | State::Gone | State::Broken => Some(answer),
        }
    }

    /// True if nobody waits any more.
    pub(crate) fn is_forsaken(&self) -> bool {
        matches!(*self.0.lock(), State::Gone)
    }
}

impl<T> Awaited<T> {
    /// Goes away; an answer that had come is handed out.
    pub(crate) fn leave(&self) -> Option<T> {
        let mut state = self.0.lock();
        if let State::Taken = *state {
            return None;
        }
        let left = std::mem::replace(&mut *state, State::Gone);
        // A waker may own anything: it is dropped without the lock.
        drop(state);
        match left {
            State::Kept(answer) => Some(answer),
            State::Waiting(_) | State::Taken | State::Gone | State::Broken => None,
        }
    }
}

/// Whoever drops a promise breaks it, and nobody waits for ever.
impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if let State::Waiting(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Broken;
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<T> Drop for Awaited<T> {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

impl<T> Future for Awaited<T> {
    /// None if the promise was broken.
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        // Cloned and dropped without the lock: a waker may own anything.
        let mut waker = Some(context.waker().clone());
        let mut state = self.0.lock();
        if let State::Waiting(held) = &mut *state {
            std::mem::swap(held, &mut waker);
            drop(state);
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Kept(answer) => Poll::Ready(Some(answer)),
            State::Broken => Poll::Ready(None),
            State::Waiting(_) | State::Taken | State::Gone => panic!("an answer was awaited twice"),
        }
    }
}
