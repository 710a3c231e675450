//! A rough figure: durable orders a second. The real one is the bench's.

use super::OnFile;
use crate::sale::Sale;
use crate::suite::{Harness as _, ask, at_rest, open, sale};

const CALLERS: u64 = 256;
const EACH: u64 = 800;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints a figure; run it alone, in release mode"]
async fn durable_orders_a_second() {
    let place = OnFile::start().await;
    let engine = place.engine();
    open(&*engine, Sale { one_each: false, ..sale(CALLERS * EACH) }).await;
    let started = tokio::time::Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for nth in 0..EACH {
                    engine.reserve(ask(&*engine, &format!("user-{caller}-{nth}"), 1)).await.unwrap();
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    let took = started.elapsed();
    let books = at_rest(&*engine, 0).await;
    assert_eq!((books.placed, books.left), (CALLERS * EACH, 0));
    println!("{} orders in {took:?}: {:.0} a second", books.orders, books.orders as f64 / took.as_secs_f64());
}
