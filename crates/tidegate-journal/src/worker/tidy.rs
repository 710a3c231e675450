//! What has to happen beside the replays: saying which methods are known here, ending what
//! cannot run any more, removing what ended long ago.

use super::Plan;
use super::crew::Crew;
use crate::JournalError;
use crate::backend::Backend;
use crate::batch::{BATCH, until_few};
use crate::clock::wall;
use crate::stats::Pass;
use std::sync::Arc;
use std::time::Duration;

/// How often methods are announced and overdue records looked for.
const ROUND: Duration = Duration::from_secs(15);

/// How often the kept counts are compared with the table, which others may write to.
const RECOUNT: Duration = Duration::from_secs(3_600);

/// Side by side: what takes long, such as a large purge, must not keep others from learning that
/// this worker lives, or they would fail the methods that it knows.
pub(super) async fn from_time_to_time(crew: Arc<Crew>) {
    tokio::join!(announce(&crew), end(&crew), purge(&crew), recount(&crew));
}

async fn announce(crew: &Crew) {
    loop {
        if let Err(error) = crew.journal.backend().announce(names(crew)).await {
            tracing::warn!("other workers cannot be told which methods are known here: {error}");
        }
        tokio::time::sleep(crew.plan.round()).await;
    }
}

async fn end(crew: &Crew) {
    let (backend, plan) = (crew.journal.backend(), &crew.plan);
    let told = |ended: Result<Pass, JournalError>| match ended {
        Ok(pass) => crew.tally.tidied(pass),
        Err(error) => tracing::warn!("what cannot run any more cannot be ended now: {error}"),
    };
    loop {
        told(expire(backend).await);
        // Before the first look for orphans, workers that start together can say what they know.
        tokio::time::sleep(plan.round()).await;
        told(fail_orphans(backend, plan).await);
    }
}

async fn purge(crew: &Crew) {
    let mut next = crew.plan.purge.next_after(wall());
    loop {
        if wall() >= next {
            match purge_all(crew.journal.backend(), &crew.plan).await {
                Ok(pass) => crew.tally.tidied(pass),
                Err(error) => tracing::warn!("what is old cannot be removed now: {error}"),
            }
            next = crew.plan.purge.next_after(wall());
        }
        // A wall clock that jumps is noticed within a round.
        let left = next.duration_since(wall()).unwrap_or_default();
        tokio::time::sleep(left.clamp(Duration::from_millis(10), ROUND)).await;
    }
}

async fn recount(crew: &Crew) {
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

/// All of it once, for a pass: how much it ended and removed.
pub(super) async fn tidy(
    backend: &dyn Backend,
    plan: &Plan,
    methods: &[String],
) -> Result<Pass, JournalError> {
    backend.announce(methods.to_vec()).await?;
    let mut pass = expire(backend).await?;
    pass += fail_orphans(backend, plan).await?;
    pass += purge_all(backend, plan).await?;
    Ok(pass)
}

async fn expire(backend: &dyn Backend) -> Result<Pass, JournalError> {
    let expired = until_few(|| backend.expire(BATCH), |_| ()).await?;
    Ok(Pass { expired, ..Pass::default() })
}

async fn fail_orphans(backend: &dyn Backend, plan: &Plan) -> Result<Pass, JournalError> {
    let failed = until_few(|| backend.fail_orphans(plan.orphan_after, BATCH), |_| ()).await?;
    Ok(Pass { failed, ..Pass::default() })
}

async fn purge_all(backend: &dyn Backend, plan: &Plan) -> Result<Pass, JournalError> {
    let purged = until_few(|| backend.purge(plan.keep, BATCH), |_| ()).await?;
    Ok(Pass { purged, ..Pass::default() })
}
