//! What operators do.

use super::{Harness, ask, buy, change, open, phone, sale, until};
use crate::engine::{AdminError, Engine};
use crate::refusal::Refusal;
use crate::sale::{Change, Sale, SaleState};
use crate::time::now_ms;

pub(crate) async fn a_sale_is_sold_from_only_while_it_is_open(place: impl Harness) {
    let engine = place.engine();
    engine.create(sale(10), "test").await.unwrap();
    let refused = async || engine.reserve(ask(&*engine, "ann", 1)).await.unwrap_err();
    let not_yet = Refusal::NotOpenYet { opens_at: None };
    assert_eq!(refused().await, not_yet);
    change(&*engine, &phone(), Change::Warm).await;
    assert_eq!(refused().await, not_yet);
    let known = change(&*engine, &phone(), Change::Open).await;
    buy(&*engine, "ann", 1).await;
    change(&*engine, &phone(), Change::Pause { reason: "a look".into() }).await;
    assert_eq!(refused().await, Refusal::Paused { reason: "a look".into() });
    let resumed = change(&*engine, &phone(), Change::Resume).await;
    assert_eq!(resumed.epoch, known.epoch, "paths stay good over a pause");
    buy(&*engine, "bob", 1).await;
    change(&*engine, &phone(), Change::Close).await;
    assert_eq!(refused().await, Refusal::Closed);
    assert_eq!(engine.known(&phone()).unwrap().state, SaleState::Closed);
}

pub(crate) async fn a_sale_opens_and_closes_by_its_times(place: impl Harness) {
    let engine = place.engine();
    let later = now_ms() + 3_600_000;
    engine.create(Sale { opens_at: Some(later), ..sale(10) }, "test").await.unwrap();
    change(&*engine, &phone(), Change::Warm).await;
    let refused = engine.reserve(ask(&*engine, "ann", 1)).await;
    assert_eq!(refused, Err(Refusal::NotOpenYet { opens_at: Some(later) }));
    change(&*engine, &phone(), Change::Schedule { opens_at: Some(1), closes_at: Some(later) }).await;
    buy(&*engine, "ann", 1).await;
    closes_soon(&*engine).await;
}

/// Its time to close comes.
async fn closes_soon(engine: &dyn Engine) {
    let soon = now_ms() + 300;
    change(engine, &phone(), Change::Schedule { opens_at: Some(1), closes_at: Some(soon) }).await;
    until("its time has passed", async || {
        (engine.reserve(ask(engine, "late", 1)).await == Err(Refusal::Closed)).then_some(())
    })
    .await;
}

pub(crate) async fn a_new_schedule_does_not_close_a_sale_that_has_opened(place: impl Harness) {
    let engine = place.engine();
    let later = now_ms() + 3_600_000;
    engine.create(Sale { opens_at: Some(1), ..sale(10) }, "test").await.unwrap();
    change(&*engine, &phone(), Change::Warm).await;
    buy(&*engine, "ann", 1).await;
    change(&*engine, &phone(), Change::Schedule { opens_at: None, closes_at: Some(later) }).await;
    buy(&*engine, "bob", 1).await;
    // As a clock that is set back by an hour sees it.
    change(&*engine, &phone(), Change::Schedule { opens_at: Some(later), closes_at: None }).await;
    buy(&*engine, "cid", 1).await;
}

pub(crate) async fn a_sale_that_has_opened_by_its_time_is_stored_as_open(place: impl Harness) {
    let mut place = place;
    let engine = place.engine();
    engine.create(Sale { opens_at: Some(1), ..sale(10) }, "test").await.unwrap();
    change(&*engine, &phone(), Change::Warm).await;
    let is_open = |engine: &dyn Engine| engine.known(&phone()).unwrap().state == SaleState::Open;
    until("it is stored", async || is_open(&*engine).then_some(())).await;
    let audit = engine.audit(&phone(), 100).await.unwrap();
    let by: Vec<&str> = audit.iter().map(|line| line.by.as_str()).collect();
    assert_eq!(by, ["schedule", "test", "test"], "{audit:?}");
    assert!(audit[0].what.contains("open"), "{audit:?}");
    drop(engine);
    place.reopen().await;
    assert!(is_open(&*place.engine()));
}

pub(crate) async fn a_sale_that_its_time_has_closed_is_closed_for_good(place: impl Harness) {
    let engine = place.engine();
    let later = now_ms() + 3_600_000;
    open(&*engine, sale(10)).await;
    closes_soon(&*engine).await;
    for wrong in [
        Change::AddStock { units: 5 },
        Change::Schedule { opens_at: None, closes_at: Some(later) },
        Change::Schedule { opens_at: None, closes_at: None },
        Change::Open,
        Change::Pause { reason: "a look".into() },
        Change::Resume,
    ] {
        let refused = engine.change(&phone(), wrong.clone(), "test").await;
        assert!(matches!(refused, Err(AdminError::Refused(_))), "{wrong:?}: {refused:?}");
    }
    assert_eq!(engine.known(&phone()).unwrap().sale.total, 10);
    until("it is stored", async || {
        (engine.known(&phone()).unwrap().state == SaleState::Closed).then_some(())
    })
    .await;
    assert_eq!(engine.reserve(ask(&*engine, "ann", 1)).await, Err(Refusal::Closed));
}

pub(crate) async fn what_does_not_fit_is_refused_and_changes_nothing(place: impl Harness) {
    let engine = place.engine();
    let nothing = engine.change(&phone(), Change::Open, "test").await;
    assert!(matches!(nothing, Err(AdminError::Unknown)), "{nothing:?}");
    assert!(engine.known(&phone()).is_none() && engine.books(&phone()).await.unwrap().is_none());
    let bad = engine.create(sale(0), "test").await;
    assert!(matches!(&bad, Err(AdminError::Refused(why)) if why.contains("total")), "{bad:?}");
    open(&*engine, sale(10)).await;
    let twice = engine.create(sale(20), "test").await;
    assert!(matches!(twice, Err(AdminError::Refused(_))), "{twice:?}");
    for wrong in [Change::Warm, Change::Resume, Change::AddStock { units: 0 }] {
        let refused = engine.change(&phone(), wrong.clone(), "test").await;
        assert!(matches!(refused, Err(AdminError::Refused(_))), "{wrong:?}: {refused:?}");
    }
    let known = engine.known(&phone()).unwrap();
    assert_eq!((known.sale.total, &known.state, known.left), (10, &SaleState::Open, Some(10)));
    assert_eq!(engine.all().len(), 1);
}

pub(crate) async fn every_change_is_in_the_audit(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, sale(10)).await;
    engine.change(&phone(), Change::AddStock { units: 5 }, "ann").await.unwrap();
    let rate = Change::Rate { limit: "5/s".parse().unwrap() };
    let known = engine.change(&phone(), rate, "bob").await.unwrap();
    assert_eq!(
        (known.sale.rate.to_string(), known.sale.total),
        ("5/s".parse::<tidegate::Limit>().unwrap().to_string(), 15)
    );
    engine.change(&phone(), Change::Warm, "eve").await.unwrap_err();
    let audit = engine.audit(&phone(), 100).await.unwrap();
    let by: Vec<&str> = audit.iter().map(|line| line.by.as_str()).collect();
    assert_eq!(by, ["bob", "ann", "test", "test", "test"], "the newest first, refused ones not: {audit:?}");
    assert!(audit[1].what.contains("add_stock") && audit[1].what.contains('5'), "{audit:?}");
    assert_eq!(engine.audit(&phone(), 2).await.unwrap(), audit[..2]);
}
