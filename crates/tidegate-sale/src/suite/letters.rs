//! Orders that the database will not have.

use super::{Harness, ask, at_rest, books, buy, open, phone, sale, settled};
use crate::engine::{AdminError, Engine, Turn, Turned};
use crate::order::{OrderSn, OrderState};
use crate::refusal::Refusal;
use crate::sale::Sale;
use std::sync::Arc;

/// One poison order among good ones, all at once.
async fn poisoned(place: &impl Harness) -> (Arc<dyn Engine>, OrderSn) {
    let engine = place.engine();
    open(&*engine, Sale { per_user: 3, ..sale(100) }).await;
    place.poison().await;
    let crowd: Vec<_> = (0..20)
        .map(|nth| {
            let engine = engine.clone();
            let user = if nth == 11 { "poison".to_owned() } else { format!("user-{nth}") };
            tokio::spawn(async move { engine.reserve(ask(&*engine, &user, 3)).await })
        })
        .collect();
    let mut numbers = Vec::new();
    for asked in crowd {
        numbers.push(asked.await.unwrap().unwrap());
    }
    for (nth, sn) in numbers.iter().enumerate() {
        let state = settled(&*engine, sn).await.state;
        assert_eq!(state, if nth == 11 { OrderState::Failed } else { OrderState::Placed }, "{sn}");
    }
    (engine, numbers.swap_remove(11))
}

pub(crate) async fn a_poison_order_fails_alone_and_is_seen(place: impl Harness) {
    let mut place = place;
    let (engine, sn) = poisoned(&place).await;
    let order = engine.order(&sn).await.unwrap().unwrap();
    assert!(order.reason.is_some_and(|reason| !reason.is_empty()));
    let letters = engine.dead(&phone()).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!((&letters[0].order_sn, letters[0].user.as_str(), letters[0].quantity), (&sn, "poison", 3));
    let books = at_rest(&*engine, 3).await;
    assert_eq!((books.placed, books.in_flight, books.left, books.dead), (57, 3, 40, 1));
    assert!(books.is_balanced(), "{books:?}");
    assert_eq!(engine.reserve(ask(&*engine, "poison", 1)).await, Err(Refusal::UserQuota), "it is held");
    let turned = engine.turn(&sn, Turn::Cancel).await.unwrap();
    assert!(matches!(turned, Turned::Refused(_)), "operators decide on it: {turned:?}");
    drop(engine);
    place.reopen().await;
    let engine = place.engine();
    let books = at_rest(&*engine, 3).await;
    assert_eq!((books.placed, books.in_flight, books.left, books.dead), (57, 3, 40, 1), "it is kept");
    assert_eq!(engine.dead(&phone()).await.unwrap(), letters);
    assert_eq!(engine.reserve(ask(&*engine, "poison", 1)).await, Err(Refusal::UserQuota), "and still held");
}

pub(crate) async fn a_dropped_letter_gives_back_once(place: impl Harness) {
    let mut place = place;
    let (engine, sn) = poisoned(&place).await;
    for _ in 0..3 {
        let dropped = engine.bury(&sn, false, "ann").await.unwrap();
        assert!(matches!(dropped, Turned::Done(_)), "{dropped:?}");
    }
    let check = async |engine: &dyn Engine| {
        let books = at_rest(engine, 0).await;
        assert_eq!((books.placed, books.left, books.returned, books.dead), (57, 43, 3, 0));
        assert_eq!(engine.dead(&phone()).await.unwrap(), []);
        assert_eq!(engine.order(&sn).await.unwrap().unwrap().state, OrderState::Failed, "it stays visible");
    };
    check(&*engine).await;
    let again = engine.bury(&sn, true, "ann").await.unwrap();
    assert!(matches!(again, Turned::Refused(_)), "what is dropped is over: {again:?}");
    assert_eq!(engine.audit(&phone(), 1).await.unwrap()[0].by, "ann");
    drop(engine);
    place.reopen().await;
    let engine = place.engine();
    check(&*engine).await;
    place.cure().await;
    buy(&*engine, "poison", 3).await;
}

pub(crate) async fn a_replayed_letter_becomes_an_order_once(place: impl Harness) {
    let (engine, sn) = poisoned(&place).await;
    let refused = engine.bury(&sn, true, "ann").await;
    assert!(
        matches!(&refused, Err(AdminError::Refused(why)) if why.contains("this user is poison")),
        "it still cannot be, and says why: {refused:?}"
    );
    let held = books(&*engine).await;
    assert_eq!((held.in_flight, held.dead), (3, 1));
    place.cure().await;
    for _ in 0..3 {
        let done = engine.bury(&sn, true, "ann").await.unwrap();
        let Turned::Done(order) = done else { panic!("{done:?}") };
        assert!(matches!(order.state, OrderState::Processing | OrderState::Placed), "{order:?}");
        let books = at_rest(&*engine, 0).await;
        assert_eq!((books.placed, books.orders, books.left, books.dead), (60, 20, 40, 0));
    }
    let dropped = engine.bury(&sn, false, "ann").await.unwrap();
    assert!(matches!(dropped, Turned::Refused(_)), "it is an order now: {dropped:?}");
    assert!(matches!(engine.turn(&sn, Turn::Cancel).await.unwrap(), Turned::Done(_)));
    assert_eq!(at_rest(&*engine, 0).await.left, 43);
}
