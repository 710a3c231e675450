//! What is asked for beside paths is limited as well, and exact stock is the operators'.

use crate::client::Answer;
use crate::place::{ADMIN, Place, phones};
use tidegate_sale::SaleBuilder;

/// Three requests, then none for an hour.
const THREE: &str = "3/h burst 3";

async fn place(build: impl FnOnce(SaleBuilder) -> SaleBuilder) -> Place {
    let place = Place::with(build, |http| http).await;
    place.begin(phones(10)).await;
    place
}

async fn with(place: &Place, what: &str, token: &str) -> Answer {
    place.client().await.ask(what, &[("authorization", &format!("Bearer {token}"))], "").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_looked_at_as_often_as_the_users_limit_says() {
    let place = place(|sale| sale.user_limit(Some(THREE.parse().unwrap())).ip_limit(None)).await;
    let (ann, bob) = (place.buy("ann").await, place.buy("bob").await);
    let look = format!("GET /orders/{ann}");
    for what in [&look, &format!("{look}0"), &format!("POST /orders/{ann}0/cancel")] {
        assert!([200, 40_403].contains(&place.ask("ann", what).await.code), "{what}");
    }
    for what in [&look, &format!("POST /orders/{ann}/cancel")] {
        let told = place.ask("ann", what).await.expect(42_901);
        assert!(told.field("retry-after").is_some() && told.data["ahead"].is_null(), "{told:?}");
    }
    place.ask("bob", &format!("GET /orders/{bob}")).await.expect(200);
    place.path("ann").await.expect(200);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_looked_at_as_often_as_the_addresss_limit_says() {
    let place = place(|sale| sale.user_limit(None).ip_limit(Some(THREE.parse().unwrap()))).await;
    for name in ["ann", "bob", "cid"] {
        place.ask(name, "GET /orders/phone-1-1").await.expect(40_403);
    }
    place.ask("dan", "GET /orders/phone-1-1").await.expect(42_901);
    place.path("dan").await.expect(200);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_not_guessed_for_ever() {
    for (code, what, others) in [
        (40_301, "GET /admin/sales", ["GET /sale/phone/books", "POST /orders/phone-1-1/pay"]),
        (40_101, "GET /orders/phone-1-1", ["GET /randomPath?goodsId=phone", "POST /x/decrStock"]),
    ] {
        let place = place(|sale| sale.user_limit(None).ip_limit(Some(THREE.parse().unwrap()))).await;
        for nth in 0..3 {
            let guess = format!("{nth}123456789abcdeX");
            with(&place, what, &guess).await.expect(code);
        }
        for what in others.iter().chain([&what]) {
            with(&place, what, "another").await.expect(42_901);
            with(&place, what, ADMIN).await.expect(42_901);
        }
        with(&place, "GET /sale/phone", "").await.expect(200);
        if code == 40_101 {
            place.admin("GET /admin/sales", "").await.expect(200);
        } else {
            place.path("ann").await.expect(200);
        }
        place.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_are_limited_by_address_and_payments_are_not() {
    let place = place(|sale| sale.user_limit(None).ip_limit(Some(THREE.parse().unwrap()))).await;
    for what in ["GET /admin/sales", "GET /sale/phone/books", "POST /admin/sales/phone/warm"] {
        let told = place.admin(what, "").await;
        assert!([200, 40_902].contains(&told.code), "{told:?}");
    }
    for what in ["GET /admin/sales", "GET /sale/phone/books", "POST /admin/sales/phone/pause"] {
        place.admin(what, "").await.expect(42_901);
    }
    for _ in 0..5 {
        place.admin("POST /orders/phone-1-1/pay", "").await.expect(40_403);
    }
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_test_on_this_machine_can_be_spared() {
    let place = place(|sale| sale.ip_limit(Some(THREE.parse().unwrap())).spare_loopback(true)).await;
    for _ in 0..10 {
        place.admin("GET /admin/sales", "").await.expect(200);
        with(&place, "GET /admin/sales", "another").await.expect(40_301);
    }
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exact_stock_is_the_operators() {
    let place = Place::open(phones(12_345)).await;
    let what = "GET /sale/phone/books";
    place.client().await.ask(what, &[], "").await.expect(40_301);
    place.ask("ann", what).await.expect(40_301);
    assert_eq!(place.admin(what, "").await.expect(200).data["left"], 12_345);
    let page = place.client().await.ask("GET /sale/phone", &[], "").await.expect(200);
    assert!(!page.data.to_string().contains("12345"), "{page:?}");
    place.end().await;
}
