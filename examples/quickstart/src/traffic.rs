//! The traffic: a quiet service, a promotion that goes live, and the crowd after it.

/// How long it lasts.
pub(crate) const LENGTH_MS: u64 = 5_000;

/// When calls come, in order.
pub(crate) fn arrivals_ms() -> Vec<u64> {
    let quiet = (0..1_000).step_by(100);
    let promotion = (1_000..1_300).step_by(5);
    let crowd = (1_300..3_000).step_by(25);
    let straggling = (3_000..LENGTH_MS).step_by(80);
    quiet.chain(promotion).chain(crowd).chain(straggling).collect()
}
