//! The whole way of a buyer, and of those who try another one.

use crate::place::{Place, phones};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_buyer_gets_a_path_an_order_and_can_give_it_back() {
    let mut sale = phones(10);
    sale.per_user = 2;
    sale.pay_within = Some(3600);
    let place = Place::open(sale).await;

    let path = place.path("ann").await.expect(200);
    assert_eq!((path.text().len(), path.message.as_str()), (55, "ok"));
    let posted = place.ask("ann", "POST /randomPath?goodsId=phone").await.expect(200);
    assert_ne!(path.text(), posted.text(), "each is another one");

    let sn = place.take("ann", path.text(), "2").await.expect(200).text().to_owned();
    assert!(sn.starts_with("phone-"), "{sn}");
    // Valid from the moment it exists.
    let order = place.ask("ann", &format!("GET /orders/{sn}")).await.expect(200).data;
    assert_eq!((&order["order_sn"], &order["goods_id"]), (&sn.as_str().into(), &"phone".into()));
    assert_eq!(order["quantity"], 2);
    assert!(["processing", "placed"].contains(&order["state"].as_str().unwrap()), "{order}");
    assert!(order.get("user").is_none(), "{order}");
    place.until_order("ann", &sn, "placed").await;
    let order = place.ask("ann", &format!("GET /orders/{sn}")).await.expect(200).data;
    assert!(order["pay_by"].as_u64().unwrap() > order["created_at"].as_u64().unwrap(), "{order}");

    place.take("ann", posted.text(), "1").await.expect(40_901);
    let books = place.books().await;
    assert_eq!((&books["placed"], &books["left"], &books["orders"]), (&2.into(), &8.into(), &1.into()));

    let cancel = format!("POST /orders/{sn}/cancel");
    assert_eq!(place.ask("ann", &cancel).await.expect(200).data["state"], "cancelled");
    assert_eq!(place.ask("ann", &cancel).await.expect(200).data["state"], "cancelled", "once, however often");
    let books = place.books().await;
    assert_eq!((&books["placed"], &books["left"], &books["returned"]), (&0.into(), &10.into(), &2.into()));
    place.admin(&format!("POST /orders/{sn}/pay"), "").await.expect(40_902);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_again_is_the_same_order() {
    let mut sale = phones(10);
    sale.per_user = 5;
    let place = Place::open(sale).await;
    let auth = place.bearer("ann");
    let path = place.path("ann").await.expect(200).text().to_owned();
    let sn = place.take("ann", &path, "1").await.expect(200).text().to_owned();
    for units in ["1", "3"] {
        assert_eq!(place.take("ann", &path, units).await.expect(200).text(), sn, "the same path");
    }
    let mut with_key = Vec::new();
    for _ in 0..3 {
        let path = place.path("ann").await.expect(200).text().to_owned();
        let what = format!("POST /{path}/decrStock?goodsId=phone&decrStock=1");
        let fields = [("authorization", auth.as_str()), ("idempotency-key", "cart-7")];
        with_key.push(place.client().await.ask(&what, &fields, "").await.expect(200).text().to_owned());
    }
    assert!(with_key.iter().all(|own| *own == with_key[0] && *own != sn), "the same key: {with_key:?}");
    assert_eq!(place.books().await["left"], 8);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_with_one_path_get_one_order() {
    let place = Place::open(phones(10)).await;
    let path = place.path("ann").await.expect(200).text().to_owned();
    let all = (0..20).map(|_| place.take("ann", &path, "1"));
    let numbers: std::collections::HashSet<String> = futures_util::future::join_all(all)
        .await
        .into_iter()
        .map(|told| told.expect(200).text().to_owned())
        .collect();
    assert_eq!(numbers.len(), 1);
    assert_eq!(place.books().await["left"], 9);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_anothers_is_not_there() {
    let place = Place::open(phones(10)).await;
    let mut other = phones(10);
    other.goods = "watch".parse().unwrap();
    place.begin(other).await;
    let path = place.path("ann").await.expect(200).text().to_owned();
    let wrong = place.take("bob", &path, "1").await.expect(40_402);
    let made_up = place.take("bob", &"A".repeat(55), "1").await.expect(40_402);
    assert_eq!((wrong.message, wrong.data), (made_up.message, made_up.data), "no hint");
    place.ask("ann", &format!("POST /{path}/decrStock?goodsId=watch&decrStock=1")).await.expect(40_402);

    let sn = place.take("ann", &path, "1").await.expect(200).text().to_owned();
    place.take("bob", &path, "1").await.expect(40_402);
    for what in [format!("GET /orders/{sn}"), format!("POST /orders/{sn}/cancel")] {
        place.ask("bob", &what).await.expect(40_403);
    }
    place.until_order("ann", &sn, "placed").await;
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_path_is_wrong_unless_it_was_used() {
    let mut sale = phones(10);
    sale.path_ttl = 3;
    let place = Place::open(sale).await;
    let (used, unused) = (
        place.path("ann").await.expect(200).text().to_owned(),
        place.path("bob").await.expect(200).text().to_owned(),
    );
    let sn = place.take("ann", &used, "1").await.expect(200).text().to_owned();
    // Expiry is told in whole seconds of wall time, rounded up.
    tokio::time::sleep(std::time::Duration::from_millis(4_100)).await;
    place.take("bob", &unused, "1").await.expect(40_402);
    assert_eq!(place.take("ann", &used, "1").await.expect(200).text(), sn);
    place.end().await;
}
