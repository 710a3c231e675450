//! Who gets which unit.

use super::{
    Harness, ask, at_rest, books, buy, buy_all, change, open, phone, sale, settled, until, violations,
};
use crate::engine::{Engine, Turn, Turned};
use crate::order::OrderState;
use crate::refusal::Refusal;
use crate::sale::{Change, Sale};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) async fn a_crowd_buys_all_there_is_and_not_one_more(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, sale(50)).await;
    let bought = buy_all(&engine, &[1; 400]).await;
    assert_eq!(violations(&*engine, 50, &bought).await, Vec::<String>::new());
    assert_eq!(bought.iter().filter(|bought| bought.answer.is_ok()).count(), 50);
    assert_eq!(bought.iter().filter(|bought| bought.answer == Err(Refusal::SoldOut)).count(), 350);
}

pub(crate) async fn a_crowd_that_asks_for_several_leaves_less_than_one_asks_for(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, sale(100)).await;
    let bought = buy_all(&engine, &[7; 100]).await;
    assert_eq!(violations(&*engine, 100, &bought).await, Vec::<String>::new());
    assert_eq!(bought.iter().filter(|bought| bought.answer.is_ok()).count(), 14);
    assert_eq!(books(&*engine).await.left, 2);
}

pub(crate) async fn a_user_gets_no_more_than_one_may(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, Sale { per_user: 5, ..sale(1000) }).await;
    let asked: Vec<_> = (0..60)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move { engine.reserve(ask(&*engine, "ann", 2)).await })
        })
        .collect();
    let mut orders = Vec::new();
    for asked in asked {
        match asked.await.unwrap() {
            Ok(sn) => orders.push(sn),
            Err(refusal) => assert_eq!(refusal, Refusal::UserQuota),
        }
    }
    assert_eq!(orders.len(), 2, "two and two are four of five");
    assert_eq!(engine.reserve(ask(&*engine, "ann", 2)).await, Err(Refusal::UserQuota));
    buy(&*engine, "ann", 1).await;
    assert_eq!(engine.reserve(ask(&*engine, "ann", 1)).await, Err(Refusal::UserQuota));
    buy(&*engine, "bob", 5).await;
    settled(&*engine, &orders[0]).await;
    assert!(matches!(engine.turn(&orders[0], Turn::Cancel).await.unwrap(), Turned::Done(_)));
    buy(&*engine, "ann", 2).await;
    assert_eq!(at_rest(&*engine, 0).await.placed, 10);
}

pub(crate) async fn one_each_is_one_live_order(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, Sale { one_each: true, ..sale(100) }).await;
    let order = buy(&*engine, "ann", 1).await;
    assert_eq!(engine.reserve(ask(&*engine, "ann", 1)).await, Err(Refusal::UserQuota));
    assert!(matches!(engine.turn(&order.order_sn, Turn::Cancel).await.unwrap(), Turned::Done(_)));
    let order = buy(&*engine, "ann", 3).await;
    assert_eq!(order.state, OrderState::Placed);
    assert!(matches!(engine.turn(&order.order_sn, Turn::Pay).await.unwrap(), Turned::Done(_)));
    assert_eq!(engine.reserve(ask(&*engine, "ann", 1)).await, Err(Refusal::UserQuota), "paid is live");
}

pub(crate) async fn quantities_that_cannot_be_take_nothing(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, Sale { per_user: 3, ..sale(10) }).await;
    for quantity in [0, 4, 11, i32::MAX.unsigned_abs(), u32::MAX] {
        let refused = engine.reserve(ask(&*engine, "ann", quantity)).await;
        assert!(matches!(refused, Err(Refusal::BadRequest(_))), "{quantity}: {refused:?}");
    }
    let books = at_rest(&*engine, 0).await;
    assert_eq!((books.left, books.orders), (10, 0));
    buy(&*engine, "ann", 3).await;
}

pub(crate) async fn all_or_nothing(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, sale(3)).await;
    assert_eq!(engine.reserve(ask(&*engine, "ann", 4)).await, Err(Refusal::SoldOut));
    assert_eq!(books(&*engine).await.left, 3);
    buy(&*engine, "ann", 3).await;
}

pub(crate) async fn sold_out_is_known_at_once_and_so_is_its_end(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, sale(2)).await;
    let left = || engine.known(&phone()).unwrap().left;
    assert_eq!(left(), Some(2));
    buy(&*engine, "ann", 1).await;
    let order = buy(&*engine, "bob", 1).await;
    assert_eq!(left(), Some(0));
    assert_eq!(engine.reserve(ask(&*engine, "cid", 1)).await, Err(Refusal::SoldOut));
    change(&*engine, &phone(), Change::AddStock { units: 1 }).await;
    until("the new unit is known", async || (left() == Some(1)).then_some(())).await;
    buy(&*engine, "cid", 1).await;
    assert_eq!(left(), Some(0));
    engine.turn(&order.order_sn, Turn::Cancel).await.unwrap();
    until("the returned unit is known", async || (left() == Some(1)).then_some(())).await;
    buy(&*engine, "dan", 1).await;
    let books = at_rest(&*engine, 0).await;
    assert_eq!((books.total, books.placed, books.left, books.returned), (3, 3, 0, 1));
}

pub(crate) async fn a_path_of_another_epoch_or_too_old_is_refused(place: impl Harness) {
    let engine = place.engine();
    let known = open(&*engine, sale(10)).await;
    for epoch in [0, known.epoch.wrapping_sub(1), known.epoch + 1, u32::MAX] {
        let mut old = ask(&*engine, "ann", 1);
        old.epoch = epoch;
        assert_eq!(engine.reserve(old).await, Err(Refusal::WrongPath), "epoch {epoch}");
    }
    let mut expired = ask(&*engine, "ann", 1);
    expired.is_expired = true;
    assert_eq!(engine.reserve(expired).await, Err(Refusal::WrongPath));
    let mut elsewhere = ask(&*engine, "ann", 1);
    elsewhere.goods = "nothing".parse().unwrap();
    assert_eq!(engine.reserve(elsewhere).await, Err(Refusal::UnknownGoods));
    assert_eq!(at_rest(&*engine, 0).await.left, 10);
}

pub(crate) async fn the_books_balance_at_every_moment(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, sale(300)).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let samples = tokio::spawn(sample(engine.clone(), is_over.clone()));
    let buyers: Vec<_> = (0..8).map(|nth| tokio::spawn(buy_and_give_up(engine.clone(), nth))).collect();
    for units in 1..=5 {
        change(&*engine, &phone(), Change::AddStock { units }).await;
    }
    for buyer in buyers {
        buyer.await.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    let (samples, unbalanced) = samples.await.unwrap();
    assert!(unbalanced.is_empty(), "{} of {samples}: {:?}", unbalanced.len(), unbalanced[0]);
    assert!(samples > 20, "{samples} samples are too few to mean anything");
    let books = at_rest(&*engine, 0).await;
    assert!(books.is_balanced() && books.total == 315 && books.returned == 8 * 26, "{books:?}");
}

/// How often the books were read, and those that did not balance.
pub(crate) async fn sample(engine: Arc<dyn Engine>, is_over: Arc<AtomicBool>) -> (u32, Vec<String>) {
    let (mut samples, mut unbalanced) = (0, Vec::new());
    loop {
        // The last one is taken after the end.
        let is_last = is_over.load(Ordering::Relaxed);
        let books = books(&*engine).await;
        samples += 1;
        if !books.is_balanced() {
            unbalanced.push(format!("{books:?}"));
        }
        if is_last {
            return (samples, unbalanced);
        }
        tokio::task::yield_now().await;
    }
}

async fn buy_and_give_up(engine: Arc<dyn Engine>, nth: u32) {
    for turn in 0..40 {
        let order = buy(&*engine, &format!("user-{nth}"), 1 + turn % 2).await;
        if turn % 4 < 2 {
            let give_up = [Turn::Cancel, Turn::Pay][usize::from(turn % 20 > 16)];
            engine.turn(&order.order_sn, give_up).await.unwrap();
        }
    }
}
