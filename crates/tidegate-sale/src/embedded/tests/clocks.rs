//! The machine's clock.

use super::OnFile;
use crate::embedded::ledger::Asked;
use crate::sale::{Change, Sale};
use crate::suite::{Harness as _, ask, buy, change, phone, sale, until};
use crate::time::now_ms;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_does_not_close_a_sale_that_has_opened() {
    let place = OnFile::start().await;
    let engine = place.engine();
    let opens = now_ms() + 100;
    engine.create(Sale { opens_at: Some(opens), ..sale(10) }, "test").await.unwrap();
    change(&*engine, &phone(), Change::Warm).await;
    until("it has opened", async || engine.reserve(ask(&*engine, "ann", 1)).await.ok()).await;
    // The next tick stores it.
    let shelf = place.engine.shelf(&phone()).unwrap();
    until("a clock an hour behind sells", async || {
        let asked = shelf.ask(ask(&*engine, "bob", 1), &place.engine.parts.writer, opens - 3_600_000).ok()?;
        matches!(asked, Asked::Waits(_)).then_some(())
    })
    .await;
    buy(&*engine, "cid", 1).await;
}
