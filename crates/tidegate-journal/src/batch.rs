//! Work on many records in small batches, each its own short transaction, so that nobody waits
//! for it.

use crate::JournalError;
use crate::backend::Answer;

pub(crate) const BATCH: u32 = 1_000;

/// Batch after batch, until one is not full; how many in all. `told` hears that after each.
pub(crate) async fn until_few<'a>(
    batch: impl Fn() -> Answer<'a, u64>,
    mut told: impl FnMut(u64),
) -> Result<u64, JournalError> {
    let mut all = 0;
    loop {
        let count = batch().await?;
        all += count;
        told(all);
        if count < u64::from(BATCH) {
            return Ok(all);
        }
        tokio::task::yield_now().await;
    }
}
