//! What becomes of a placed order, each once.

use super::{Harness, ask, at_rest, buy, open, sale, settled, until};
use crate::engine::{Engine, Turn, Turned};
use crate::order::{OrderSn, OrderState};
use crate::sale::Sale;
use std::sync::Arc;
use std::time::Duration;

async fn turn(engine: Arc<dyn Engine>, sn: OrderSn, turn: Turn) -> Turned {
    engine.turn(&sn, turn).await.unwrap()
}

pub(crate) async fn pay_and_cancel_race_and_one_of_them_wins(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, sale(100)).await;
    let (mut paid, mut cancelled) = (0, 0);
    for nth in 0..30 {
        let sn = buy(&*engine, &format!("user-{nth}"), 2).await.order_sn;
        let mut turns = [Turn::Pay, Turn::Cancel];
        turns.rotate_left(nth % 2);
        let both = turns.map(|which| tokio::spawn(turn(engine.clone(), sn.clone(), which)));
        let mut done = Vec::new();
        for (which, turned) in turns.into_iter().zip(both) {
            match turned.await.unwrap() {
                Turned::Done(order) => done.push((which, order.state)),
                Turned::Refused(order) => assert!(order.state.is_final(), "{order:?}"),
                Turned::Unknown => panic!("{sn} is unknown"),
            }
        }
        let state = engine.order(&sn).await.unwrap().unwrap().state;
        match done[..] {
            [(Turn::Pay, OrderState::Paid)] if state == OrderState::Paid => paid += 1,
            [(Turn::Cancel, OrderState::Cancelled)] if state == OrderState::Cancelled => cancelled += 1,
            _ => panic!("{done:?}, and it is {state:?}"),
        }
        let won = if state == OrderState::Paid { Turn::Pay } else { Turn::Cancel };
        let again = engine.turn(&sn, won).await.unwrap();
        assert!(matches!(again, Turned::Done(_)), "the same again is no other: {again:?}");
    }
    let books = at_rest(&*engine, 0).await;
    assert_eq!((books.placed, books.returned, books.left), (2 * paid, 2 * cancelled, 100 - 2 * paid));
    assert!(books.is_balanced(), "{books:?}");
}

pub(crate) async fn an_order_can_be_paid_as_soon_as_its_number_is_told(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, sale(100)).await;
    for (nth, which) in [Turn::Pay, Turn::Cancel].into_iter().cycle().take(20).enumerate() {
        let sn = engine.reserve(ask(&*engine, &format!("user-{nth}"), 1)).await.unwrap();
        let turned = engine.turn(&sn, which).await.unwrap();
        assert!(matches!(turned, Turned::Done(_)), "{which:?}: {turned:?}");
    }
    assert_eq!(at_rest(&*engine, 0).await.placed, 10);
}

pub(crate) async fn many_cancels_give_back_once(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, sale(10)).await;
    let sn = buy(&*engine, "ann", 4).await.order_sn;
    let turns: Vec<_> =
        (0..30).map(|_| tokio::spawn(turn(engine.clone(), sn.clone(), Turn::Cancel))).collect();
    for turned in turns {
        assert!(matches!(turned.await.unwrap(), Turned::Done(_)));
    }
    let books = at_rest(&*engine, 0).await;
    assert_eq!((books.left, books.returned, books.orders), (10, 4, 0));
    assert!(books.is_balanced(), "{books:?}");
    assert!(matches!(engine.turn(&sn, Turn::Pay).await.unwrap(), Turned::Refused(_)));
}

pub(crate) async fn what_is_not_paid_in_time_comes_back_once(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, Sale { pay_within: Some(1), ..sale(40) }).await;
    let mut orders = Vec::new();
    for nth in 0..20 {
        let order = buy(&*engine, &format!("user-{nth}"), 2).await;
        // From when it was placed, or taken: that may have been a moment before.
        let within = order.created_at + 1000..=order.created_at.max(order.updated_at) + 1000;
        assert!(order.pay_by.is_some_and(|pay_by| within.contains(&pay_by)), "{order:?}");
        orders.push(order);
    }
    // Some give up just when their time is up.
    let racing: Vec<_> = orders[..10]
        .iter()
        .map(|order| {
            let (engine, order) = (engine.clone(), order.clone());
            tokio::spawn(async move {
                let now = crate::time::now_ms();
                let due = Duration::from_millis(order.pay_by.unwrap().saturating_sub(now));
                tokio::time::sleep(due).await;
                engine.turn(&order.order_sn, Turn::Cancel).await.unwrap()
            })
        })
        .collect();
    for turned in racing {
        assert!(!matches!(turned.await.unwrap(), Turned::Unknown));
    }
    for order in &orders {
        let ended = until("it has ended", async || {
            let order = engine.order(&order.order_sn).await.unwrap().unwrap();
            order.state.is_final().then_some(order)
        });
        let ended = ended.await;
        assert!(matches!(ended.state, OrderState::Expired | OrderState::Cancelled), "{ended:?}");
        assert!(ended.reason.is_some(), "it says why: {ended:?}");
    }
    assert_eq!(settled(&*engine, &orders[19].order_sn).await.state, OrderState::Expired);
    let books =
        until("all is back", async || Some(at_rest(&*engine, 0).await).filter(|books| books.orders == 0));
    let books = books.await;
    assert_eq!((books.left, books.returned), (40, 40), "{books:?}");
    let late = engine.turn(&orders[19].order_sn, Turn::Pay).await.unwrap();
    assert!(matches!(late, Turned::Refused(_)), "{late:?}");
}

pub(crate) async fn what_is_paid_does_not_expire(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, Sale { pay_within: Some(3), ..sale(2) }).await;
    let paid = buy(&*engine, "ann", 1).await.order_sn;
    assert!(matches!(engine.turn(&paid, Turn::Pay).await.unwrap(), Turned::Done(_)));
    let unpaid = buy(&*engine, "bob", 1).await.order_sn;
    until("the other has expired", async || {
        (engine.order(&unpaid).await.unwrap().unwrap().state == OrderState::Expired).then_some(())
    })
    .await;
    assert_eq!(engine.order(&paid).await.unwrap().unwrap().state, OrderState::Paid);
    assert_eq!(at_rest(&*engine, 0).await.placed, 1);
}

pub(crate) async fn a_waiting_buyer_hears_of_a_change(place: impl Harness) {
    let engine = place.engine();
    open(&*engine, sale(10)).await;
    let sn = buy(&*engine, "ann", 1).await.order_sn;
    let unchanged = engine.changed(&sn, OrderState::Placed, Duration::from_millis(50)).await.unwrap();
    assert_eq!(unchanged.unwrap().state, OrderState::Placed, "after its time it tells what there is");
    let waiting = tokio::spawn({
        let (engine, sn) = (engine.clone(), sn.clone());
        async move { engine.changed(&sn, OrderState::Placed, super::PATIENCE).await.unwrap().unwrap() }
    });
    tokio::task::yield_now().await;
    engine.turn(&sn, Turn::Pay).await.unwrap();
    let heard = tokio::time::timeout(super::PATIENCE / 2, waiting).await.expect("it is woken").unwrap();
    assert_eq!(heard.state, OrderState::Paid);
}

pub(crate) async fn an_unknown_order_is_unknown(place: impl Harness) {
    let engine = place.engine();
    let known = open(&*engine, sale(10)).await;
    for sn in [OrderSn::new(super::phone(), known.epoch, 99), OrderSn::new("x".parse().unwrap(), 1, 1)] {
        assert_eq!(engine.order(&sn).await.unwrap(), None);
        assert_eq!(engine.turn(&sn, Turn::Cancel).await.unwrap(), Turned::Unknown);
        let short = Duration::from_millis(10);
        assert_eq!(engine.changed(&sn, OrderState::Processing, short).await.unwrap(), None);
        assert_eq!(engine.bury(&sn, true, "test").await.unwrap(), Turned::Unknown);
    }
    assert!(engine.reserve(ask(&*engine, "ann", 1)).await.is_ok());
}
