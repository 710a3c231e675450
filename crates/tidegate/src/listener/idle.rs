//! Timeouts of silent connections. If a server waits for a request for ever, a client could
//! otherwise block the listener, with as many connections as there are slots.
//!
//! Bytes in either direction count, also slow ones: how long a request may take is a setting of
//! the server.

use crate::clock::{StoreClock, Timestamp};
use crate::sleep::Sleep;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long a connection may be silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) first_byte: Duration,
    pub(super) idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        // Clients send at once; a response may take its time.
        Self { first_byte: Duration::from_secs(10), idle: Duration::from_mins(5) }
    }
}

/// The timer of one connection.
pub(super) struct IdleTimer {
    clock: StoreClock,
    timeouts: Timeouts,
    since: Timestamp,
    is_first: bool,
    /// One for the reader and one for the writer: they may be two tasks.
    deadlines: [Option<Deadline>; 2],
}

#[derive(Clone, Copy)]
pub(super) enum Direction {
    Read,
    Write,
}

struct Deadline {
    until: Timestamp,
    waker: Waker,
    sleep: Sleep,
}

impl IdleTimer {
    pub(super) fn new(clock: StoreClock, timeouts: Timeouts) -> Self {
        let since = clock.now();
        Self { clock, timeouts, since, is_first: true, deadlines: [None, None] }
    }

    /// Bytes came or went.
    pub(super) fn reset(&mut self) {
        self.since = self.clock.now();
        self.is_first = false;
    }

    /// Ready once the connection was silent for too long.
    pub(super) fn poll(&mut self, direction: Direction, context: &mut Context<'_>) -> Poll<io::Error> {
        let until = self.since + if self.is_first { self.timeouts.first_byte } else { self.timeouts.idle };
        loop {
            let now = self.clock.now();
            if now >= until {
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, self.reason()));
            }
            let deadline = &mut self.deadlines[direction as usize];
            match deadline {
                // A timer that ends earlier stays, and is checked again then, instead of being set
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
                    *deadline = Some(Deadline { until, waker: context.waker().clone(), sleep });
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
