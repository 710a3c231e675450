//! A database whose own sums are wrong.

use super::{Harness, at_rest, books, buy, change, open, phone, sale, until};
use crate::books::Sums;
use crate::engine::{AdminError, Engine};
use crate::sale::{Change, SaleState};

async fn paused(engine: &dyn Engine) -> String {
    until("it is paused", async || match &engine.known(&phone()).unwrap().state {
        SaleState::Paused { reason, .. } => Some(reason.clone()),
        _ => None,
    })
    .await
}

pub(crate) async fn a_pause_because_of_wrong_sums_can_be_ended(place: impl Harness) {
    let mut place = place;
    let engine = place.engine();
    open(&*engine, sale(20)).await;
    buy(&*engine, "ann", 5).await;
    let refused = engine.repair(&phone(), "ann").await;
    assert!(matches!(&refused, Err(AdminError::Refused(why)) if why.contains("`pause`")), "{refused:?}");
    place.miscount().await;
    let reason = paused(&*engine).await;
    assert!(reason.contains("`resume`"), "it says what to do: {reason}");
    let refused = engine.change(&phone(), Change::Resume, "test").await;
    assert!(matches!(&refused, Err(AdminError::Refused(why)) if why.contains("`repair`")), "{refused:?}");
    assert!(matches!(engine.known(&phone()).unwrap().state, SaleState::Paused { .. }), "it stays held");
    let shown = engine.difference(&phone()).await.unwrap().unwrap();
    let sums = |placed, orders| Sums { defined: 20, total: 20, placed, orders };
    assert_eq!((shown.stored, shown.counted), (sums(8, 1), sums(5, 1)));
    assert_eq!(engine.difference(&phone()).await.unwrap().unwrap(), shown, "a look changes nothing");
    assert_eq!(engine.repair(&phone(), "eve").await.unwrap(), shown);
    let audit = engine.audit(&phone(), 1).await.unwrap();
    assert_eq!(audit[0].by, "eve");
    assert!(audit[0].what.contains("repair") && audit[0].what.contains('8'), "{audit:?}");
    assert!(matches!(engine.known(&phone()).unwrap().state, SaleState::Paused { .. }), "it stays held");
    assert!(!engine.repair(&phone(), "eve").await.unwrap().is_wrong(), "once");
    assert_eq!(engine.audit(&phone(), 1).await.unwrap(), audit, "nothing to do is nothing done");
    change(&*engine, &phone(), Change::Resume).await;
    until("it is loaded", async || (engine.known(&phone()).unwrap().left == Some(15)).then_some(())).await;
    buy(&*engine, "bob", 2).await;
    let books = at_rest(&*engine, 0).await;
    assert!(books.is_balanced() && (books.placed, books.left, books.orders) == (7, 13, 2), "{books:?}");
    drop(engine);
    place.reopen().await;
    assert_eq!(at_rest(&*place.engine(), 0).await.left, 13);
}

pub(crate) async fn more_sold_than_there_is_is_repaired_by_the_total(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, sale(20)).await;
    buy(&*engine, "ann", 5).await;
    change(&*engine, &phone(), Change::Pause { reason: "a look".into() }).await;
    place.inflate(25).await;
    let found = engine.repair(&phone(), "eve").await.unwrap();
    assert_eq!((found.stored.placed, found.counted.placed, found.counted.total), (5, 25, 25));
    until("it goes on", async || engine.change(&phone(), Change::Resume, "test").await.ok()).await;
    let sold_out = until("it is loaded", async || {
        Some(books(&*engine).await).filter(|books| books.left == 0 && books.state == "open")
    });
    let books = sold_out.await;
    assert!(books.is_balanced() && books.total == 25, "{books:?}");
    assert_eq!(engine.known(&phone()).unwrap().sale.total, 25);
}
