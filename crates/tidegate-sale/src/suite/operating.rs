//! What operators do.

use super::{Harness, ask, buy, change, open, phone, sale};
use crate::engine::AdminError;
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
    change(&*engine, &phone(), Change::Schedule { opens_at: Some(1), closes_at: Some(2) }).await;
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
