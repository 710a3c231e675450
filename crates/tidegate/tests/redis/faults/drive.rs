//! Callers who ask all the while, and what they were told.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use testkit::servers::{pause, wait_until};
use tidegate::{Clock, Decision, Denial, Gate, MonotonicClock};

/// Between two questions of a caller: often enough to use everything up, seldom enough to
/// leave the machine to the servers.
const PACE: Duration = Duration::from_millis(2);

/// One clock for all callers.
static CLOCK: LazyLock<MonotonicClock> = LazyLock::new(MonotonicClock::new);

pub(super) fn now_us() -> u64 {
    CLOCK.now().as_micros()
}

/// One decision. Where it was made lies between its question and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) from_us: u64,
    pub(super) till_us: u64,
    pub(super) is_allowed: bool,
    pub(super) is_degraded: bool,
    pub(super) denial: Option<Denial>,
}

impl Record {
    /// Asks, and looks at the clock before and after.
    pub(super) fn of(ask: impl FnOnce() -> Decision) -> Self {
        let from_us = now_us();
        let decision = ask();
        Self {
            from_us,
            till_us: now_us(),
            is_allowed: decision.is_allowed(),
            is_degraded: decision.is_degraded(),
            denial: decision.denial(),
        }
    }

    pub(super) fn took(&self) -> Duration {
        Duration::from_micros(self.till_us - self.from_us)
    }
}

/// Callers of one gate, each on its thread.
pub(super) struct Driver {
    shared: Arc<Shared>,
    callers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    records: Mutex<Vec<Record>>,
    /// When the last degraded answer came.
    degraded_us: AtomicU64,
    /// When the store last let somebody through, by its question.
    exact_us: AtomicU64,
}

impl Driver {
    /// So many callers, each with its own key of `keys` in turn.
    pub(super) fn start(gate: &Gate, keys: &[&str], callers: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let caller = |nth: usize| {
            let (shared, gate) = (shared.clone(), gate.clone());
            let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
            thread::spawn(move || {
                for key in keys.iter().cycle().skip(nth) {
                    if shared.is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    shared.note(Record::of(|| gate.check(key)));
                    pause(PACE);
                }
            })
        };
        let callers = (0..callers).map(caller).collect();
        Self { shared, callers }
    }

    /// When the last degraded answer came; zero if none did.
    pub(super) fn degraded_us(&self) -> u64 {
        self.shared.degraded_us.load(Ordering::Relaxed)
    }

    /// When the last question was asked that the store answered with yes.
    pub(super) fn exact_us(&self) -> u64 {
        self.shared.exact_us.load(Ordering::Relaxed)
    }

    /// Everything so far.
    pub(super) fn records(&self) -> Vec<Record> {
        self.shared.records().clone()
    }

    /// Ends the callers. A caller who is not answered at all fails the test, instead of
    /// holding it for ever.
    pub(super) fn stop(self) -> Vec<Record> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        wait_until("every caller is answered", Duration::from_secs(10), || {
            self.callers.iter().all(JoinHandle::is_finished)
        });
        for caller in self.callers {
            caller.join().expect("a caller does not panic");
        }
        std::mem::take(&mut *self.shared.records())
    }
}

impl Shared {
    fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, record: Record) {
        if record.is_degraded {
            self.degraded_us.fetch_max(record.till_us, Ordering::Relaxed);
        } else if record.is_allowed {
            self.exact_us.fetch_max(record.from_us, Ordering::Relaxed);
        }
        self.records().push(record);
    }
}
