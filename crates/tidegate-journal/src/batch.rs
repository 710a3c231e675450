//! Work on many records in small batches, each its own short transaction, so that nobody waits
//! for it.

use crate::JournalError;
use tokio::time::Instant;

pub(crate) const BATCH: u32 = 1_000;

/// Batch after batch, until one is not full; how many in all. `told` hears that after each.
///
/// Between two of them it rests as long as the last one took, so that others have the database
/// for at least half of the time: those who wait for SQLite's one lock only look now and then
/// whether it is free, and would hardly ever meet a moment without a batch.
pub(crate) async fn until_few<F: Future<Output = Result<u64, JournalError>>>(
    batch: impl Fn() -> F,
    mut told: impl FnMut(u64),
) -> Result<u64, JournalError> {
    let mut all = 0;
    loop {
        let begun = Instant::now();
        let count = batch().await?;
        all += count;
        told(all);
        if count < u64::from(BATCH) {
            return Ok(all);
        }
        tokio::time::sleep(begun.elapsed()).await;
    }
}
