//! Asking again is safe.

use super::{Harness, ask, at_rest, buy, change, open, phone, sale, settled};
use crate::engine::{Engine, Reserve, Turn};
use crate::order::{OrderSn, OrderState};
use crate::refusal::Refusal;
use crate::sale::{Change, Sale};
use std::collections::HashSet;
use std::sync::Arc;

/// All the numbers that these were told, asked at once.
pub(crate) async fn numbers(engine: &Arc<dyn Engine>, asks: Vec<Reserve>) -> HashSet<OrderSn> {
    let asked: Vec<_> = asks
        .into_iter()
        .map(|ask| {
            let engine = engine.clone();
            tokio::spawn(async move { engine.reserve(ask).await.unwrap() })
        })
        .collect();
    let mut numbers = HashSet::new();
    for asked in asked {
        numbers.insert(asked.await.unwrap());
    }
    numbers
}

pub(crate) async fn one_path_is_one_order_however_often_and_at_once(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, sale(1000)).await;
    for user in ["ann", "bob", "cid"] {
        let same = ask(&*engine, user, 2);
        let told = numbers(&engine, vec![same.clone(); 40]).await;
        assert_eq!(told.len(), 1, "{told:?}");
        let more = Reserve { quantity: 3, ..same };
        assert_eq!(engine.reserve(more).await, Ok(told.into_iter().next().unwrap()), "and the first counts");
    }
    let books = at_rest(&*engine, 0).await;
    assert_eq!((books.orders, books.placed), (3, 6));
}

pub(crate) async fn one_key_is_one_order_whatever_the_path(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, sale(1000)).await;
    let keyed = |user: &str, key: &str| Reserve { key: Some(key.into()), ..ask(&*engine, user, 1) };
    let ann = numbers(&engine, (0..40).map(|_| keyed("ann", "my order")).collect()).await;
    assert_eq!(ann.len(), 1, "{ann:?}");
    let bob = numbers(&engine, vec![keyed("bob", "my order"), keyed("ann", "another")]).await;
    assert_eq!(bob.union(&ann).count(), 3, "a key is its user's, and another one another order");
    assert_eq!(at_rest(&*engine, 0).await.orders, 3);
}

pub(crate) async fn a_used_path_is_its_users_alone(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, sale(10)).await;
    let ann = ask(&*engine, "ann", 1);
    engine.reserve(ann.clone()).await.unwrap();
    let bob = Reserve { user: "bob".parse().unwrap(), ..ann };
    assert_eq!(engine.reserve(bob).await, Err(Refusal::WrongPath));
    assert_eq!(at_rest(&*engine, 0).await.orders, 1);
}

pub(crate) async fn a_used_path_tells_its_order_whatever_the_sale_does(place: impl Harness) {
    let mut place = place;
    let engine = place.engine();
    open(&*engine, Sale { per_user: 1, ..sale(1) }).await;
    let mut used = Reserve { key: Some("mine".into()), ..ask(&*engine, "ann", 1) };
    let sn = engine.reserve(used.clone()).await.unwrap();
    let told = async |engine: &dyn Engine, used: &Reserve, when: &str| {
        assert_eq!(engine.reserve(used.clone()).await, Ok(sn.clone()), "{when}");
    };
    told(&*engine, &used, "sold out").await;
    used.is_expired = true;
    told(&*engine, &used, "expired").await;
    change(&*engine, &phone(), Change::Pause { reason: "a look".into() }).await;
    told(&*engine, &used, "paused").await;
    change(&*engine, &phone(), Change::Resume).await;
    settled(&*engine, &sn).await;
    drop(engine);
    place.reopen().await;
    let engine = place.engine();
    told(&*engine, &used, "of an older epoch").await;
    let by_key = Reserve { key: used.key.clone(), ..ask(&*engine, "ann", 1) };
    assert_eq!(engine.reserve(by_key).await, Ok(sn.clone()), "its key is kept, too");
    engine.turn(&sn, Turn::Cancel).await.unwrap();
    told(&*engine, &used, "given up").await;
    assert_eq!(engine.order(&sn).await.unwrap().unwrap().state, OrderState::Cancelled);
    change(&*engine, &phone(), Change::Close).await;
    told(&*engine, &used, "closed").await;
    drop(engine);
    place.reopen().await;
    let engine = place.engine();
    told(&*engine, &used, "closed, and started again").await;
    let by_key = Reserve { key: used.key.clone(), ..ask(&*engine, "ann", 1) };
    assert_eq!(engine.reserve(by_key).await, Ok(sn.clone()), "by its key");
    let of_bob = Reserve { user: "bob".parse().unwrap(), ..used.clone() };
    assert_eq!(engine.reserve(of_bob).await, Err(Refusal::WrongPath));
    assert_eq!(engine.reserve(ask(&*engine, "cid", 1)).await, Err(Refusal::Closed));
    assert_eq!(at_rest(&*engine, 0).await.orders, 0);
}

pub(crate) async fn a_refused_path_can_be_used_later(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, sale(1)).await;
    let order = buy(&*engine, "ann", 1).await;
    let late = Reserve { key: Some("late".into()), ..ask(&*engine, "bob", 1) };
    assert_eq!(engine.reserve(late.clone()).await, Err(Refusal::SoldOut));
    engine.turn(&order.order_sn, Turn::Cancel).await.unwrap();
    let sn = engine.reserve(late).await.unwrap();
    assert_eq!(settled(&*engine, &sn).await.state, OrderState::Placed);
}
