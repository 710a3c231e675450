//! A stop and a start: nothing is lost, and nothing given twice.

use super::{Harness, ask, at_rest, buy, buy_all, change, open, phone, sale};
use crate::engine::Turn;
use crate::order::OrderState;
use crate::refusal::Refusal;
use crate::sale::{Change, Sale, SaleState};
use std::collections::HashSet;

pub(crate) async fn everything_is_kept_under_a_new_epoch(place: impl Harness) {
    let mut place = place;
    let engine = place.engine();
    let known = open(&*engine, Sale { per_user: 3, ..sale(20) }).await;
    let ann = buy(&*engine, "ann", 2).await;
    let bob = buy(&*engine, "bob", 3).await;
    let cid = buy(&*engine, "cid", 1).await;
    engine.turn(&bob.order_sn, Turn::Cancel).await.unwrap();
    engine.turn(&cid.order_sn, Turn::Pay).await.unwrap();
    let unused = ask(&*engine, "dan", 1);
    let before = at_rest(&*engine, 0).await;
    drop(engine);
    place.reopen().await;
    let engine = place.engine();
    let now = engine.known(&phone()).unwrap();
    assert!(now.epoch > known.epoch, "{} after {}", now.epoch, known.epoch);
    assert_eq!(now.left, Some(17));
    let mut after = at_rest(&*engine, 0).await;
    (after.at, after.epoch) = (before.at, before.epoch);
    assert_eq!(after, before);
    assert_eq!(engine.order(&ann.order_sn).await.unwrap(), Some(ann));
    assert_eq!(engine.order(&bob.order_sn).await.unwrap().unwrap().state, OrderState::Cancelled);
    assert_eq!(engine.order(&cid.order_sn).await.unwrap().unwrap().state, OrderState::Paid);
    assert_eq!(engine.reserve(unused).await, Err(Refusal::WrongPath), "paths of the old epoch are over");
    assert_eq!(engine.reserve(ask(&*engine, "ann", 2)).await, Err(Refusal::UserQuota), "quotas are not");
    buy(&*engine, "bob", 3).await;
    change(&*engine, &phone(), Change::Close).await;
    drop(engine);
    place.reopen().await;
    let engine = place.engine();
    assert_eq!(engine.known(&phone()).unwrap().state, SaleState::Closed);
    assert_eq!(engine.audit(&phone(), 100).await.unwrap().len(), 4);
}

pub(crate) async fn no_number_is_given_twice(place: impl Harness) {
    let mut place = place;
    open(&*place.engine(), sale(1000)).await;
    let mut numbers = HashSet::new();
    for _ in 0..4 {
        for bought in buy_all(&place.engine(), &[1; 20]).await {
            let sn = bought.answer.unwrap();
            assert!(numbers.insert(sn.clone()), "{sn} was given before");
        }
        place.reopen().await;
    }
    let books = at_rest(&*place.engine(), 0).await;
    assert_eq!((books.orders, books.left), (80, 920));
}
