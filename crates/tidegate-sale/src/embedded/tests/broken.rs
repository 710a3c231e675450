//! The suite's checks see an engine that is broken.

use super::OnFile;
use crate::engine::{Engine, Turn};
use crate::suite::buying::sample;
use crate::suite::repeats::numbers;
use crate::suite::{Broken, Harness as _, Way, ask, at_rest, buy, buy_all, open, sale, violations};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

async fn broken(way: Way) -> (OnFile, Arc<dyn Engine>) {
    let place = OnFile::start().await;
    let engine = Broken::over(place.engine(), way);
    open(&*engine, sale(20)).await;
    (place, engine)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_for_units_that_are_not_there_are_seen() {
    let (_place, engine) = broken(Way::Oversells).await;
    let bought = buy_all(&engine, &[1; 30]).await;
    let wrong = violations(&*engine, 20, &bought).await;
    assert!(wrong.iter().any(|wrong| wrong.contains("30 of 20 units were sold")), "{wrong:?}");
    assert!(wrong.iter().any(|wrong| wrong.contains("there is no such order")), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_two_buyers_have_is_seen() {
    let (_place, engine) = broken(Way::RepeatsNumbers).await;
    let bought = buy_all(&engine, &[1; 5]).await;
    let wrong = violations(&*engine, 20, &bought).await;
    assert!(wrong.iter().any(|wrong| wrong.contains("given to two buyers")), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_is_taken_twice_is_seen() {
    let (_place, engine) = broken(Way::ForgetsPaths).await;
    let told = numbers(&engine, vec![ask(&*engine, "ann", 1); 5]).await;
    assert_eq!(told.len(), 5, "the suite wants one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn books_that_do_not_balance_are_seen() {
    let (_place, engine) = broken(Way::ReturnsTwice).await;
    let order = buy(&*engine, "ann", 2).await;
    assert!(at_rest(&*engine, 0).await.is_balanced(), "as long as nothing has come back");
    engine.turn(&order.order_sn, Turn::Cancel).await.unwrap();
    assert!(!at_rest(&*engine, 0).await.is_balanced());
    assert!(!violations(&*engine, 20, &[]).await.is_empty());

    let (_place, engine) = broken(Way::MiscountsPlaced).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let samples = tokio::spawn(sample(engine.clone(), is_over.clone()));
    let bought = buy_all(&engine, &[1; 20]).await;
    assert!(!violations(&*engine, 20, &bought).await.is_empty());
    is_over.store(true, Ordering::Relaxed);
    let (samples, unbalanced) = samples.await.unwrap();
    assert!(!unbalanced.is_empty(), "{samples} samples");
}
