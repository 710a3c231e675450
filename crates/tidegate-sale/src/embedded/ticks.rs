//! What happens by itself: sales open and close, unpaid orders end, the books are compared, and a file that could not
//! be written is tried again.

use super::desk::Desk;
use super::{Parts, accounts, admin, repair, turns};
use crate::time::now_ms;
use std::sync::Weak;
use std::time::Duration;

/// Unpaid orders are looked for this often.
const EXPIRY: Duration = Duration::from_millis(200);
/// Memory and file are compared after this many of those, the file's orders are counted after
/// that many.
const RECONCILE: u32 = 5;
const COUNT: u32 = 50;

/// Until the engine is gone or stops.
pub(super) async fn run(parts: Weak<Parts>) {
    let mut ticks = tokio::time::interval(EXPIRY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut nth = 0u32;
    loop {
        ticks.tick().await;
        nth = nth.wrapping_add(1);
        let Some(parts) = parts.upgrade() else { return };
        if parts.is_stopping() {
            return;
        }
        // A file that cannot be written is tried by the probe alone.
        if parts.health.fault().is_none() {
            keep_times(&parts).await;
            expire(&parts).await;
        }
        if nth.is_multiple_of(RECONCILE) {
            reconcile(&parts).await;
            probe(&parts).await;
        }
        if nth.is_multiple_of(COUNT) {
            count(&parts).await;
        }
    }
}

/// Stores that a sale has opened or closed by its times.
async fn keep_times(parts: &Parts) {
    let shelves = parts.shelves.load_full();
    for shelf in shelves.values() {
        // Whose books are in doubt waits for an operator.
        let due = shelf.with(|ledger| match ledger.is_in_doubt {
            true => None,
            false => ledger.state.due(now_ms(), &ledger.sale),
        });
        if let Some(change) = due
            && let Err(error) = admin::change(&parts.writer, shelf.clone(), change, "schedule").await
        {
            tracing::warn!(goods = %shelf.goods, %error, "its schedule could not be written down");
        }
    }
}

async fn expire(parts: &Parts) {
    let shelves = parts.shelves.load_full();
    for shelf in shelves.values() {
        // Whose books are in doubt waits: what it gives back could not be entered.
        let mut is_more = shelf.with(|ledger| ledger.sale.pay_within.is_some() && !ledger.is_in_doubt);
        while is_more {
            let ended = turns::expire(&parts.writer, shelf.goods.clone()).await;
            if let Err(fault) = &ended {
                tracing::warn!(goods = %shelf.goods, error = %fault.what, "unpaid orders could not be ended");
            }
            is_more = ended.unwrap_or(false);
        }
    }
}

async fn reconcile(parts: &Parts) {
    let shelves = parts.shelves.load_full();
    for shelf in shelves.values() {
        let compared = accounts::reconcile(&parts.writer, shelf.clone()).await;
        if let Err(fault) = compared {
            tracing::warn!(goods = %shelf.goods, error = %fault.what, "the books could not be compared");
        }
    }
}

/// As long as the file cannot be written.
async fn probe(parts: &Parts) {
    if parts.health.fault().is_some() {
        // It fails only where the engine has stopped.
        let _ = parts.writer.look(Desk::probe).await;
    }
}

async fn count(parts: &Parts) {
    let shelves = parts.shelves.load_full();
    for shelf in shelves.values() {
        let goods = shelf.goods.clone();
        match parts.counter.look(move |conn| repair::difference(conn, &goods)).await {
            Ok(difference) if !difference.is_wrong() => {}
            Ok(difference) => {
                let reason = difference.to_string();
                // It fails only where the engine has stopped.
                let _ = accounts::pause(&parts.writer, shelf.clone(), reason).await;
            }
            Err(fault) => tracing::warn!(goods = %shelf.goods, %fault, "the orders could not be counted"),
        }
    }
}
