//! Timeouts of silent connections. If a server waits for a request for ever, a client could
//! otherwise block the listener, with as many connections as there are slots.
//!
//! Bytes in either direction count, also slow ones: how long a request may take is a setting of
//! the server.

use super::Settings;
use crate::clock::Timestamp;
use crate::sleep::Sleep;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The timer of one connection.
pub(super) struct IdleTimer {
    settings: Arc<Settings>,
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
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        Self { since: settings.clock.now(), settings, is_first: true, deadlines: [None, None] }
    }

    /// Bytes came or went.
    pub(super) fn reset(&mut self) {
        self.since = self.settings.clock.now();
        self.is_first = false;
    }

    /// Ready once the connection was silent for too long.
    pub(super) fn poll(&mut self, direction: Direction, context: &mut Context<'_>) -> Poll<io::Error> {
        let Settings { clock, first_byte_timeout, idle_timeout, .. } = &*self.settings;
        let until = self.since + if self.is_first { *first_byte_timeout } else { *idle_timeout };
        loop {
            let now = clock.now();
            if now >= until {
                let reason = match self.is_first {
                    true => format!("no byte came within {first_byte_timeout:?} of the connection"),
                    false => format!("no byte came or went for {idle_timeout:?}"),
                };
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, reason));
            }
            let deadline = &mut self.deadlines[direction as usize];
            // A timer that ends earlier stays, and is checked again then, instead of being set anew
            // for every byte.
            deadline.take_if(|set| set.until > until || set.until <= now);
            let set = deadline.get_or_insert_with(|| Deadline {
                until,
                waker: Waker::noop().clone(),
                sleep: Sleep::until(clock.clone(), until),
            });
            if set.waker.will_wake(context.waker()) {
                return Poll::Pending;
            }
            set.waker.clone_from(context.waker());
            if Pin::new(&mut set.sleep).poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
