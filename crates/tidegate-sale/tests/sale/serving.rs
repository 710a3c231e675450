//! How it ends: what has begun is answered, and nothing new begins.

use crate::place::{Place, phones};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_when_it_ends_is_still_answered() {
    let mut sale = phones(10);
    sale.rate = "2/s burst 1 wait 5s".parse().unwrap();
    let place = Place::open(sale).await;
    place.path("ann").await.expect(200);
    let mut waits = place.client().await;
    waits.send("GET /randomPath?goodsId=phone", &[("authorization", &place.bearer("bob"))], "").await;
    place.until("bob waits", async || place.service.waiting() == 1).await;
    let mut idle = place.client().await;
    idle.ask("GET /readyz", &[], "").await.expect(200);
    let at = place.at;
    place.end().await;
    waits.answer().await.expect(200);
    assert_eq!(idle.until(b"\n").await, None, "an idle connection is closed");
    assert!(tokio::net::TcpStream::connect(at).await.is_err(), "nobody listens any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_says_that_it_leaves() {
    let place = Place::open(phones(10)).await;
    place.service.leave();
    place.ask("ann", "GET /readyz").await.expect(50_302);
    place.ask("ann", "GET /livez").await.expect(200);
    place.end().await;
}
