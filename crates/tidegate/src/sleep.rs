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
        if self.clock.now() < self.until {
            let waker = context.waker().clone();
            self.alarm = Some(self.clock.timer().arm(self.until, self.alarm, waker));
            // The clock may have passed it before the alarm stood.
            if self.clock.now() < self.until {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(alarm) = self.alarm.take() {
            self.clock.timer().disarm(alarm);
        }
    }
}
