//! What has to happen beside the replays: saying which methods are known here, ending what
//! cannot run any more, removing what ended long ago.

use super::Plan;
use super::crew::{Crew, Tally};
use super::handler::said;
use crate::JournalError;
use crate::backend::Backend;
use crate::batch::{BATCH, until_few};
use crate::clock::wall;
use crate::stats::Pass;
use futures_util::FutureExt as _;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// How often methods are announced and overdue records looked for.
const ROUND: Duration = Duration::from_secs(15);

/// How often the kept counts are compared with the table, which others may write to.
const RECOUNT: Duration = Duration::from_secs(3_600);

/// Side by side: what takes long, such as a large purge, must not keep others from learning that
/// this worker lives, or they would fail the methods that it knows.
pub(super) async fn from_time_to_time(crew: Arc<Crew>) {
    let (crew, names) = (&*crew, names(&crew));
    tokio::join!(
        always("announcing", || announce_again(crew.journal.backend(), &crew.plan, &names)),
        always("ending", || end(crew)),
        always("purging", || purge(crew)),
        always("counting", || recount(crew)),
    );
}

/// One that panics is begun anew, after a while: it must not be gone for the rest of a worker's
/// life without anybody knowing.
async fn always<F: Future<Output = Infallible>>(what: &str, mut work: impl FnMut() -> F) {
    loop {
        let Err(panic) = AssertUnwindSafe(async { work().await }).catch_unwind().await;
        tracing::error!("{what} panicked, and begins anew: {}", said(&*panic));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Before the first claim: who holds leases was seen by the server's clock, and a clock that steps
/// back after that is noticed.
pub(super) async fn announce_first(crew: &Crew) {
    let announced = crew.journal.backend().announce(names(crew));
    tokio::select! {
        announced = announced => told_known(announced),
        () = crew.closed() => {}
    }
}

/// For as long as it is let, from the next round on.
pub(super) async fn announce_again(backend: &dyn Backend, plan: &Plan, names: &[String]) -> Infallible {
    loop {
        tokio::time::sleep(plan.round()).await;
        told_known(backend.announce(names.to_vec()).await);
    }
}

fn told_known(announced: Result<(), JournalError>) {
    if let Err(error) = announced {
        tracing::warn!("other workers cannot be told which methods are known here: {error}");
    }
}

async fn end(crew: &Crew) -> Infallible {
    let (backend, plan, tally) = (crew.journal.backend(), &crew.plan, &crew.tally);
    let told = |ended: Result<(), JournalError>| {
        if let Err(error) = ended {
            tracing::warn!("what cannot run any more cannot be ended now: {error}");
        }
    };
    loop {
        if let Err(error) = clamp_times(backend).await {
            tracing::warn!("times cannot be compared with the server's clock now: {error}");
        }
        told(expire(backend, tally).await);
        // Before the first look for orphans, workers that start together can say what they know.
        tokio::time::sleep(plan.round()).await;
        told(fail_orphans(backend, plan, tally).await);
    }
}

async fn purge(crew: &Crew) -> Infallible {
    let schedule = &crew.plan.purge;
    let mut next = schedule.next_after(wall());
    loop {
        if wall() >= next {
            if let Err(error) = purge_all(crew.journal.backend(), &crew.plan, &crew.tally).await {
                tracing::warn!("what is old cannot be removed now: {error}");
            }
            next = schedule.next_after(wall());
        }
        // A wall clock that jumps is noticed within a round: forwards its time has come, and
        // backwards the next time is sooner than the one that was fixed before.
        next = next.min(schedule.next_after(wall()));
        let left = next.duration_since(wall()).unwrap_or_default();
        tokio::time::sleep(left.clamp(Duration::from_millis(10), ROUND)).await;
    }
}

async fn recount(crew: &Crew) -> Infallible {
    // The first at any time within the interval, so that workers that start together do not
    // count together.
    let mut wait = RECOUNT.mul_f64(fastrand::f64());
    loop {
        tokio::time::sleep(wait).await;
        wait = RECOUNT;
        if let Err(error) = crew.journal.backend().recount().await {
            tracing::warn!("pending records cannot be counted now: {error}");
        }
    }
}

fn names(crew: &Crew) -> Vec<String> {
    crew.methods.iter().map(|method| method.name.to_string()).collect()
}

impl Plan {
    /// Often enough to notice orphans and lapses in time.
    fn round(&self) -> Duration {
        ROUND.min(self.orphan_after / 3).max(Duration::from_millis(50))
    }
}

/// All of it once, for a pass.
pub(super) async fn tidy(
    backend: &dyn Backend,
    plan: &Plan,
    methods: &[String],
    tally: &Tally,
) -> Result<(), JournalError> {
    clamp_times(backend).await?;
    backend.announce(methods.to_vec()).await?;
    expire(backend, tally).await?;
    fail_orphans(backend, plan, tally).await?;
    purge_all(backend, plan, tally).await
}

/// Before anything is looked for by its time.
async fn clamp_times(backend: &dyn Backend) -> Result<(), JournalError> {
    let clamped = until_few(|| backend.clamp_times(BATCH), |_| ()).await?;
    if clamped > 0 {
        tracing::warn!(
            records = clamped,
            "records were changed in the future: the server's clock stepped back, or others write local time"
        );
    }
    Ok(())
}

async fn expire(backend: &dyn Backend, tally: &Tally) -> Result<(), JournalError> {
    let batch = || async {
        let ended = backend.expire(BATCH).await?;
        ended.tell(|method, expired| tally.tidied(method, Pass { expired, ..Pass::default() }));
        Ok(ended.count())
    };
    until_few(batch, |_| ()).await.map(|_| ())
}

async fn fail_orphans(backend: &dyn Backend, plan: &Plan, tally: &Tally) -> Result<(), JournalError> {
    let batch = || async {
        let ended = backend.fail_orphans(plan.orphan_after, BATCH).await?;
        ended.tell(|method, failed| tally.tidied(method, Pass { failed, ..Pass::default() }));
        Ok(ended.count())
    };
    until_few(batch, |_| ()).await.map(|_| ())
}

async fn purge_all(backend: &dyn Backend, plan: &Plan, tally: &Tally) -> Result<(), JournalError> {
    let purged = until_few(|| backend.purge(plan.keep, BATCH), |_| ()).await?;
    tally.tidied(None, Pass { purged, ..Pass::default() });
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn what_panics_begins_anew() {
        let times = AtomicU32::new(0);
        let work = || async {
            let nth = times.fetch_add(1, Ordering::SeqCst);
            assert!(nth > 0, "a bug");
            std::future::pending().await
        };
        let begun_anew = async {
            while times.load(Ordering::SeqCst) < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let at_most = Duration::from_secs(60);
        tokio::select! {
            () = always("testing", work) => unreachable!("it never ends"),
            begun_anew = tokio::time::timeout(at_most, begun_anew) => begun_anew.unwrap(),
        }
    }
}
