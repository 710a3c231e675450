//! Wall clocks that jump: on SQLite they are all there is, on PostgreSQL the server's counts.

use crate::place::{PATIENCE, Place, call, end, until, worker};
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

/// `Instant` stands still while a machine is suspended; the leases of others do not.
#[test]
fn a_handler_stops_once_its_machine_was_suspended_for_longer_than_its_lease() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        let clock = Manual::new();
        let journal = place.open(Journal::builder().time_source(clock.clone())).await.unwrap();
        let guid = journal.defer(call("ship", 1)).await.unwrap();
        let began = Arc::new(Notify::new());
        let begins = began.clone();
        let running = worker(&journal)
            .lease(LEASE)
            .buffer(1)
            .on("ship", move |_: u32| {
                begins.notify_one();
                std::future::pending::<Result<(), JobError>>()
            })
            .start();
        began.notified().await;
        clock.pass(LEASE);
        until("it is stopped", async || (running.stats().lost == 1).then_some(())).await;
        journal.cancel(&guid).await.unwrap();
        running.stop().await;
    });
}

/// Nobody can stop it, and the task that watches its lease has no thread.
#[test]
fn a_handler_that_blocks_the_only_thread_can_ask_whether_its_lease_holds() {
    let place = Place::sqlite();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let clock = Manual::new();
        let journal = place.open(Journal::builder().time_source(clock.clone())).await.unwrap();
        let guid = journal.defer(call("ship", 1)).await.unwrap();
        let ship = worker(&journal).lease(LEASE).on_replay("ship", move |replay, _: u32| {
            let clock = clock.clone();
            async move {
                let before = replay.lease_holds();
                clock.pass(LEASE * 8 / 9 - Duration::from_secs(1));
                let nearly = replay.lease_holds();
                clock.pass(Duration::from_secs(1));
                Ok::<_, JobError>((before, nearly, replay.lease_holds()))
            }
        });
        ship.run_once().await.unwrap();
        let record = journal.find(&guid).await.unwrap().unwrap();
        assert_eq!(record.result.as_deref(), Some("[true,true,false]"), "{record:?}");
    });
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

/// To the records, a clock that steps back is the same as times that are all that much later.
const STEP_BACK: &str = "DO $$ DECLARE one record; BEGIN
    FOR one IN SELECT table_name, column_name FROM information_schema.columns
               WHERE table_schema = 'public' AND data_type = 'timestamp with time zone' LOOP
      EXECUTE format('UPDATE %I SET %I = %I + interval ''1 hour''', one.table_name, one.column_name, one.column_name);
    END LOOP; END $$";

/// 500 pending records lay untouched for the hour.
#[test]
fn a_servers_clock_that_steps_back_by_an_hour_delays_nothing_for_longer_than_its_own_delay() {
    crate::place::run(&Place::postgres(), async |place: &Place| {
        let journal = place.journal().await;
        let due = journal.defer_all((0..500).map(|nth| call("ship", nth))).await;
        assert!(due.iter().all(Result::is_ok));
        let later = journal.defer(call("ship", 500).delay(HOUR / 6).deadline_in(HOUR / 3)).await.unwrap();
        // One that was recorded long ago, and failed a moment before the step.
        let again = journal.defer(call("ship", 501)).await.unwrap();
        place.sql(&format!(
            "UPDATE t_method_limit_log SET create_time = now() - interval '1 day',
               next_time = update_time + interval '10 minutes' WHERE guid = '{again}'"
        ));
        place.sql(STEP_BACK);
        let ship = worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(()) });
        assert_eq!(ship.run_once().await.unwrap().done, 500);
        let now = journal.now().await.unwrap();
        for guid in [&later, &again] {
            let record = journal.find(guid).await.unwrap().unwrap();
            assert_eq!(record.status, Status::Pending);
            let ahead = record.next_time.duration_since(now).unwrap();
            assert!(ahead <= HOUR / 6 && ahead > HOUR / 6 - PATIENCE, "{ahead:?}");
        }
        let deadline = journal.find(&later).await.unwrap().unwrap().deadline.unwrap();
        assert!(deadline.duration_since(now).unwrap() <= HOUR / 3, "{deadline:?}");
        assert_eq!(place.count("update_time > now()"), 0, "nothing is from the future any more");
        assert_eq!(ship.run_once().await.unwrap().done, 0, "and nothing comes before its time");
    });
}

/// The second step took the deadline for one that was given before the record was made.
#[test]
fn a_deadline_outlives_two_steps_back_of_the_servers_clock() {
    crate::place::run(&Place::postgres(), async |place: &Place| {
        let journal = place.journal().await;
        let guid = journal.defer(call("ship", 1).delay(HOUR / 6).deadline_in(HOUR / 3)).await.unwrap();
        let ship = worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(()) });
        for _ in 0..2 {
            place.sql(STEP_BACK);
            assert_eq!(ship.run_once().await.unwrap().done, 0, "it has to wait");
            let record = journal.find(&guid).await.unwrap().unwrap();
            assert_eq!(record.status, Status::Pending, "{record:?}");
            let ahead = record.deadline.unwrap().duration_since(journal.now().await.unwrap()).unwrap();
            assert!(ahead <= HOUR / 3 && ahead > HOUR / 3 - PATIENCE, "{ahead:?}");
        }
        place.age(&["next_time"], HOUR / 6);
        assert_eq!(ship.run_once().await.unwrap().done, 1);
    });
}

/// A lease of 6 s showed 59 minutes.
#[test]
fn a_dead_workers_lease_ends_in_its_own_length_after_the_servers_clock_stepped_back() {
    crate::place::run(&Place::postgres(), async |place: &Place| {
        let journal = place.journal().await;
        // So many at once stay where they are in the index, and one is moved to the end of its lease.
        for many in [200, 1] {
            let guids = journal.defer_all((0..many).map(|nth| call("ship", nth))).await;
            dies_with_all(place.address(), many);
            assert_eq!(place.count("status = 0 AND lease_until > now()"), many as u64);
            place.sql(STEP_BACK);
            let running = worker(&journal).on("ship", |_: usize| async { Ok::<_, JobError>(()) }).start();
            for guid in guids {
                assert_eq!(end(&journal, &guid.unwrap()).await.status, Status::Done);
            }
            running.stop().await;
        }
    });
}

/// A worker that takes so many records for a few seconds, and never speaks again.
fn dies_with_all(address: String, many: usize) {
    let life = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        runtime.block_on(async {
            let began = Arc::new(AtomicUsize::new(0));
            let begins = began.clone();
            let dies = worker(&Journal::postgres(&address).await.unwrap())
                .lease(Duration::from_secs(6))
                .concurrency(many)
                .on("ship", move |_: usize| {
                    begins.fetch_add(1, Ordering::SeqCst);
                    std::future::pending::<Result<(), JobError>>()
                })
                .start();
            crate::place::seen("it has them all", || began.load(Ordering::SeqCst) == many).await;
            std::mem::forget(dies);
        });
        runtime.shutdown_background();
    });
    life.join().unwrap();
}
