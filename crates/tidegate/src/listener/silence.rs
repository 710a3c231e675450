//! How long a connection may be silent. A server that waits for a request for ever would
//! otherwise let anyone close the listener, with as many connections as there are places.
//!
//! Bytes in either direction count. Slow ones do, too: how long a request may take is the
//! server's business.

use crate::clock::{StoreClock, Timestamp};
use crate::sleep::Sleep;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The times that are allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) first_byte: Duration,
    pub(super) idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        // Clients begin at once; an answer may take its time.
        Self { first_byte: Duration::from_secs(10), idle: Duration::from_mins(5) }
    }
}

/// Watches one connection.
pub(super) struct Silence {
    clock: StoreClock,
    timeouts: Timeouts,
    since: Timestamp,
    is_first: bool,
    /// One for who reads and one for who writes: they may be two tasks.
    watches: [Option<Watch>; 2],
}

#[derive(Clone, Copy)]
pub(super) enum Side {
    Read,
    Write,
}

struct Watch {
    until: Timestamp,
    waker: Waker,
    sleep: Sleep,
}

impl Silence {
    pub(super) fn new(clock: StoreClock, timeouts: Timeouts) -> Self {
        let since = clock.now();
        Self { clock, timeouts, since, is_first: true, watches: [None, None] }
    }

    /// Bytes came or went.
    pub(super) fn broken(&mut self) {
        self.since = self.clock.now();
        self.is_first = false;
    }

    /// Ready once it has lasted too long.
    pub(super) fn poll(&mut self, side: Side, context: &mut Context<'_>) -> Poll<io::Error> {
        let until = self.since + if self.is_first { self.timeouts.first_byte } else { self.timeouts.idle };
        loop {
            let now = self.clock.now();
            if now >= until {
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, self.reason()));
            }
            let watch = &mut self.watches[side as usize];
            match watch {
                // One that ends earlier stays: it looks again then, instead of being set
                // anew for every byte.
                Some(set) if set.until <= until && now < set.until => {
                    if set.waker.will_wake(context.waker()) {
                        return Poll::Pending;
                    }
                    set.waker.clone_from(context.waker());
                    if Pin::new(&mut set.sleep).poll(context).is_pending() {
                        return Poll::Pending;
                    }
                }
                _ => {
                    let mut sleep = Sleep::until(self.clock.clone(), until);
                    let is_pending = Pin::new(&mut sleep).poll(context).is_pending();
                    *watch = Some(Watch { until, waker: context.waker().clone(), sleep });
                    if is_pending {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    fn reason(&self) -> String {
        match self.is_first {
            true => format!("no byte came within {:?} of the connection", self.timeouts.first_byte),
            false => format!("no byte came or went for {:?}", self.timeouts.idle),
        }
    }
}
