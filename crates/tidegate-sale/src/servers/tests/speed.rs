//! How many orders a second go all the way. Printed, not judged: see the benches.

use super::rig::{at_rest, buy, engine, on_sale, shared};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes the machine; run it alone, optimised"]
async fn orders_a_second() {
    const BUYERS: u32 = 256;
    const EACH: u32 = 80;
    let mut config = shared().config();
    config.refresh = std::time::Duration::from_millis(500);
    config.reconcile = std::time::Duration::from_secs(1);
    let engine = engine(&config).await;
    on_sale(&engine, u64::from(BUYERS * EACH), EACH).await;
    let begun = tokio::time::Instant::now();
    let buyers = (0..BUYERS).map(|nth| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            for _ in 0..EACH {
                buy(&engine, &format!("user-{nth}")).await.unwrap();
            }
        })
    });
    for buyer in buyers.collect::<Vec<_>>() {
        buyer.await.unwrap();
    }
    let answered = begun.elapsed();
    let books = at_rest(&engine).await;
    let written = begun.elapsed();
    assert_eq!(books.orders, u64::from(BUYERS * EACH), "{books:?}");
    let rate = |time: std::time::Duration| f64::from(BUYERS * EACH) / time.as_secs_f64();
    println!("{:.0} answered and {:.0} written a second", rate(answered), rate(written));
}
