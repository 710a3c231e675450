//! The attribute `#[limited]`, through what it does to functions.

mod keys;
mod methods;
mod observe;
mod process;
mod refused;
mod shapes;
mod waiting;

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tidegate::{Limiter, ManualClock};

fn on_manual_clock() -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    (clock.clone(), Limiter::builder().clock(clock).max_keys(100).build())
}

/// What a future that needs nobody else is.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match poll(&mut pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("still waiting"),
    }
}

fn poll<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}
