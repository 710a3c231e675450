// Compiles in a crate that denies what it can, beside other attributes.
#![deny(warnings, missing_docs, unused, unreachable_pub)]
#![forbid(unsafe_code)]
//! Documented.

use tidegate::{Limiter, Refusal, limited};

/// Documented.
#[limited("5/s")]
#[tracing::instrument]
fn above(id: u64) -> Result<u64, Refusal> {
    Ok(id)
}

#[tracing::instrument(skip_all)]
#[limited("5/s wait 1ms", key = id)]
async fn below(id: u64) -> Result<u64, Refusal> {
    Ok(id)
}

#[limited("5/s")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Refusal> {
    assert_eq!(above(7)?, 7);
    assert_eq!(below(7).await?, 7);
    assert_eq!(Limiter::global().gates().len(), 3);
    Ok(())
}
