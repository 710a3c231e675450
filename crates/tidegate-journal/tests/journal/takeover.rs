//! A worker whose lease ended without its knowing, while its handler went on: somebody else has
//! the record, and what the first one says of it is not entered.

use crate::place::{Place, call, end, until, worker};
use std::sync::Arc;
use std::time::Duration;
use tidegate_journal::{Guid, JobError, Journal, Running, Status};
use tokio::sync::Notify;

on_both! {
    a_handler_that_returns_after_another_owner_has_ended_its_record_changes_nothing,
    a_handler_that_returns_while_another_owner_runs_its_record_changes_nothing,
}

/// So long that no sign of life comes in a test: neither prolongs it, nor learns of its loss.
const LEASE: Duration = Duration::from_secs(3_600);

async fn a_handler_that_returns_after_another_owner_has_ended_its_record_changes_nothing(place: &Place) {
    for says in SAYS {
        let (guid, first, second) = taken_over(place, says).await;
        second.goes_on.notify_one();
        let record = end(&second.journal, &guid).await;
        assert_eq!((record.status, record.result.as_deref()), (Status::Done, Some(r#""second""#)));
        let row = || place.sql(&format!("SELECT * FROM t_method_limit_log WHERE guid = '{guid}'"));
        let before = row();
        first.goes_on.notify_one();
        first.has_lost().await;
        assert_eq!(row(), before);
        assert_two_owners(place, &guid);
        assert_eq!((first.stop().await, second.stop().await), (0, 1));
    }
}

/// The record waits for an end, and has an owner: nothing but its number turns the first away.
async fn a_handler_that_returns_while_another_owner_runs_its_record_changes_nothing(place: &Place) {
    for says in SAYS {
        let (guid, first, second) = taken_over(place, says).await;
        first.goes_on.notify_one();
        first.has_lost().await;
        let record = second.journal.find(&guid).await.unwrap().unwrap();
        assert_eq!((record.status, record.result, record.last_error), (Status::Running, None, None));
        assert_eq!(record.lease_owner.as_deref(), Some("second"));
        second.goes_on.notify_one();
        let record = end(&second.journal, &guid).await;
        assert_eq!((record.status, record.result.as_deref()), (Status::Done, Some(r#""second""#)));
        assert_two_owners(place, &guid);
        assert_eq!((first.stop().await, second.stop().await), (0, 1));
    }
}

/// How the handler of the first one ends.
#[derive(Clone, Copy, Debug)]
enum Says {
    Done,
    Again,
    Never,
}

const SAYS: [Says; 3] = [Says::Done, Says::Again, Says::Never];

/// A worker, as if in a process of its own, whose handler has begun.
struct Owner {
    journal: Journal,
    running: Running,
    goes_on: Arc<Notify>,
}

impl Owner {
    async fn begun(place: &Place, name: &'static str, says: Says) -> Self {
        let journal = place.journal().await;
        let (began, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begins, waits) = (began.clone(), goes_on.clone());
        // No room for a second record: it would take its own over.
        let running = worker(&journal)
            .name(name)
            .lease(LEASE)
            .buffer(1)
            .on("ship", move |_: u32| {
                let (begins, waits) = (begins.clone(), waits.clone());
                async move {
                    begins.notify_one();
                    waits.notified().await;
                    match says {
                        Says::Done => Ok(name),
                        Says::Again => Err(JobError::retry(name)),
                        Says::Never => Err(JobError::permanent(name)),
                    }
                }
            })
            .start();
        began.notified().await;
        Self { journal, running, goes_on }
    }

    async fn has_lost(&self) {
        until("it was turned away", async || (self.running.stats().held == 0).then_some(())).await;
        assert_eq!(self.running.stats().lost, 1);
    }

    /// How many ends it entered in all.
    async fn stop(self) -> u64 {
        let pass = self.running.stop().await;
        pass.done + pass.failed + pass.retried
    }
}

/// A record in the hands of two, of whom the first does not know.
async fn taken_over(place: &Place, says: Says) -> (Guid, Owner, Owner) {
    let guid = place.journal().await.defer(call("ship", 1)).await.unwrap();
    let first = Owner::begun(place, "first", says).await;
    place.age(&["lease_until", "next_time"], 2 * LEASE);
    let second = Owner::begun(place, "second", Says::Done).await;
    (guid, first, second)
}

/// Two leases, and one attempt: what the first one did is told by nobody, and not counted.
fn assert_two_owners(place: &Place, guid: &Guid) {
    let numbers = "SELECT lease_no, attempts, lapses FROM t_method_limit_log";
    assert_eq!(place.sql(&format!("{numbers} WHERE guid = '{guid}'")), "2|1|0");
}
