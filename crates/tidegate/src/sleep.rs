//! Sleeping until a time on a clock, under any executor.

use crate::clock::{StoreClock, Timestamp};
use crate::timer::Alarm;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Ready from a time on. Dropped before, it takes its alarm along.
pub(crate) struct Sleep {
    clock: StoreClock,
    until: Timestamp,
    alarm: Option<Alarm>,
}

impl Sleep {
    pub(crate) fn until(clock: StoreClock, until: Timestamp) -> Self {
        Self { clock, until, alarm: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let waker = context.waker();
        let (until, timer) = (self.until, self.clock.timer());
        if self.clock.now() >= until {
            return Poll::Ready(());
        }
        if self.alarm.is_some_and(|alarm| timer.rearm(alarm, waker)) {
            return Poll::Pending;
        }
        let alarm = timer.arm(until, waker.clone());
        // The clock may have passed it before the alarm stood.
        let is_over = self.clock.now() >= until;
        self.alarm = Some(alarm);
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(alarm) = self.alarm.take() {
            self.clock.timer().disarm(alarm);
        }
    }
}
