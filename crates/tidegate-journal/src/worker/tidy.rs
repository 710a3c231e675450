//! What has to happen beside the replays: saying which methods are known here, ending what
//! cannot run any more, removing what ended long ago.

use super::Plan;
use super::crew::Crew;
use crate::JournalError;
use crate::backend::Backend;
use crate::batch::{BATCH, until_few};
use crate::clock::{instant, wall};
use crate::stats::Pass;
use std::sync::Arc;
use std::time::Duration;

/// How often methods are announced and overdue records looked for.
const ROUND: Duration = Duration::from_secs(15);

/// How often the kept counts are compared with the table, which others may write to.
const RECOUNT: Duration = Duration::from_secs(3_600);

pub(super) async fn from_time_to_time(crew: Arc<Crew>) {
    // The first at any time within the interval, so that workers that start together do not
    // count together.
    let mut next_recount = instant() + RECOUNT.mul_f64(fastrand::f64());
    let mut next_purge = crew.plan.purge.next_after(wall());
    loop {
        let backend = crew.journal.backend();
        let mut purges = false;
        if wall() >= next_purge {
            purges = true;
            next_purge = crew.plan.purge.next_after(wall());
        }
        match tidy(backend, &crew.plan, &names(&crew), purges).await {
            Ok(pass) => crew.tally.tidied(pass),
            Err(error) => tracing::warn!("the journal cannot be tidied now: {error}"),
        }
        if instant() >= next_recount {
            next_recount = instant() + RECOUNT;
            if let Err(error) = backend.recount().await {
                tracing::warn!("pending records cannot be counted now: {error}");
            }
        }
        // A wall clock that jumps is noticed within a round.
        let until_purge = next_purge.duration_since(wall()).unwrap_or_default();
        tokio::time::sleep(crew.plan.round().min(until_purge.max(Duration::from_millis(10)))).await;
    }
}

pub(super) fn names(crew: &Crew) -> Vec<String> {
    crew.methods.iter().map(|method| method.name.to_string()).collect()
}

impl Plan {
    /// Often enough to notice orphans and lapses in time.
    fn round(&self) -> Duration {
        ROUND.min(self.orphan_after / 3).max(Duration::from_millis(50))
    }
}

/// One round: how much it ended and removed.
pub(super) async fn tidy(
    backend: &dyn Backend,
    plan: &Plan,
    methods: &[String],
    purges: bool,
) -> Result<Pass, JournalError> {
    backend.announce(methods.to_vec()).await?;
    let expired = until_few(|| backend.expire(BATCH), |_| ()).await?;
    let failed = until_few(|| backend.fail_orphans(plan.orphan_after, BATCH), |_| ()).await?;
    let purged = if purges { until_few(|| backend.purge(plan.keep, BATCH), |_| ()).await? } else { 0 };
    Ok(Pass { expired, failed, purged, ..Pass::default() })
}
