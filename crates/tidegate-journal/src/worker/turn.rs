//! A claimed record in its line.

use super::crew::Crew;
use super::held::Stop;
use crate::backend::{Claimed, End, expired_reason};
use crate::clock::instant;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub(super) struct Turn {
    pub(super) claimed: Claimed,
    pub(super) stop: Arc<Stop>,
    /// By when it has to start, on this process's clock.
    pub(super) start_by: Option<Instant>,
    taken: Instant,
}

/// The highest priority first, then the oldest.
pub(super) type Rank = (Reverse<u8>, SystemTime);

impl Turn {
    pub(super) fn new(claimed: Claimed, stop: Arc<Stop>) -> Self {
        let taken = instant();
        let start_by = claimed.left.and_then(|left| taken.checked_add(left));
        Self { claimed, stop, start_by, taken }
    }

    pub(super) fn rank(&self) -> Rank {
        (Reverse(self.claimed.priority), self.claimed.create_time)
    }

    /// It cannot start any more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.stop.is_lost() || self.start_by.is_some_and(|start_by| start_by <= now)
    }

    /// Its end where its deadline has passed.
    pub(super) fn expired(&self) -> End {
        End::Expired { reason: expired_reason(self.claimed.attempts, self.claimed.last_error.as_deref()) }
    }

    /// Its end where it goes back without having run. It is due since it was taken; of a pass,
    /// since before that began, so that the pass may still take it up again.
    pub(super) fn returned(&self, crew: &Crew) -> End {
        let due_for = if crew.is_pass() {
            // The database's time may pass faster than ours.
            crew.begun.elapsed() * 2 + Duration::from_secs(1)
        } else {
            self.taken.elapsed()
        };
        End::Returned { due_for }
    }

    /// Its last worker died, with it or because of it. Attempts are counted when they end, which
    /// is for nothing while nobody dies; a record that kills its workers would be tried for ever,
    /// so a suspect's attempts are counted before they begin.
    pub(super) fn is_suspect(&self) -> bool {
        self.claimed.lapses > 0
    }

    /// It was begun, and two workers died. Of these one runs at a time: if it is the one that
    /// kills, no other loses an attempt by it. It waits for nobody else, and nobody for it; who
    /// runs beside it when it kills was not counted yet, and is next time.
    pub(super) fn is_strong_suspect(&self) -> bool {
        self.claimed.lapses > 1 && self.claimed.attempts > 0
    }
}
