//! Wall clocks that jump: on SQLite they are all there is.

use crate::place::{Place, call, end, until, worker};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tidegate_journal::{JobError, Journal, Status, TimeSource};
use tokio::sync::Notify;

/// Stands still until told, and jumps when told.
#[derive(Clone)]
struct Manual(Arc<Mutex<(SystemTime, Duration)>>);

impl Manual {
    fn new() -> Self {
        Self(Arc::new(Mutex::new((
            SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
            Duration::ZERO,
        ))))
    }

    fn pass(&self, time: Duration) {
        let mut both = self.0.lock().unwrap();
        both.0 += time;
        both.1 += time;
    }

    fn jump(&self, forward: bool, by: Duration) {
        let mut both = self.0.lock().unwrap();
        both.0 = if forward { both.0 + by } else { both.0 - by };
    }
}

impl TimeSource for Manual {
    fn wall(&self) -> SystemTime {
        self.0.lock().unwrap().0
    }

    fn monotonic(&self) -> Duration {
        self.0.lock().unwrap().1
    }
}

const HOUR: Duration = Duration::from_secs(3_600);
const LEASE: Duration = Duration::from_secs(60);

#[test]
fn a_jump_neither_steals_a_lease_nor_keeps_it_from_ending() {
    for forward in [true, false] {
        crate::place::run(&Place::sqlite(), async |place: &Place| {
            let clock = Manual::new();
            let journal = place.open(Journal::builder().time_source(clock.clone())).await.unwrap();
            let guid = journal.defer(call("ship", 1)).await.unwrap();
            let (began, runs) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
            let at_work = |journal: &Journal| {
                let (began, runs) = (began.clone(), runs.clone());
                worker(journal).lease(LEASE).grace(Duration::ZERO).on("ship", move |_: u32| {
                    let (began, nth) = (began.clone(), runs.fetch_add(1, Ordering::SeqCst));
                    async move {
                        began.notify_one();
                        if nth == 0 {
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, JobError>(())
                    }
                })
            };
            // Its owner hangs, and gives no sign of life: the lease is never prolonged, since
            // real time does not reach a third of it.
            let owner = at_work(&journal).start();
            began.notified().await;
            let other = place.open(Journal::builder().time_source(clock.clone())).await.unwrap();
            let thief = at_work(&other).on("other", |_: u32| async { Ok::<_, JobError>(()) }).start();
            clock.jump(forward, HOUR);
            // At least 8/9 of its length it is safe, whatever the wall clock says.
            clock.pass(LEASE * 8 / 9 - Duration::from_secs(1));
            for nth in 0..20 {
                let guid = other.defer(call("other", nth)).await.unwrap();
                assert_eq!(end(&other, &guid).await.status, Status::Done, "it looks, and finds nothing else");
            }
            assert_eq!(runs.load(Ordering::SeqCst), 1, "the lease holds");
            // And after 8/7 of it, it ends.
            clock.pass(LEASE * 8 / 7 - LEASE * 8 / 9 + Duration::from_secs(2));
            assert_eq!(end(&other, &guid).await.status, Status::Done);
            assert_eq!(runs.load(Ordering::SeqCst), 2);
            thief.stop().await;
            owner.stop().await;
            assert_eq!(end(&journal, &guid).await.status, Status::Done, "the late owner changed nothing");
        });
    }
}

#[test]
fn a_process_started_under_a_clock_that_is_behind_takes_over_the_time_of_the_file() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        let ahead = Manual::new();
        ahead.jump(true, HOUR);
        let journal = place.open(Journal::builder().time_source(ahead)).await.unwrap();
        let guid = journal.defer(call("ship", 1)).await.unwrap();
        drop(journal);
        // To its own clock, the record is due in an hour.
        let journal = place.open(Journal::builder().time_source(Manual::new())).await.unwrap();
        let running = worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(()) }).start();
        until("it is done all the same", async || {
            (journal.status(&guid).await.unwrap() == Some(Status::Done)).then_some(())
        })
        .await;
        running.stop().await;
    });
}
