//! What operators do, and that it is written down.

use crate::place::{ADMIN, Place};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_makes_a_sale_and_moves_it_along() {
    let place = Place::with(|builder| builder, |http| http).await;
    let sale = r#"{"goods": "phone", "total": 5, "rate": "100/s", "per_user": 2}"#;
    let made = place.admin("POST /admin/sales", sale).await.expect(200).data;
    assert_eq!(
        (&made["title"], &made["state"], &made["path_ttl"]),
        (&"phone".into(), &"draft".into(), &60.into())
    );
    place.admin("POST /admin/sales", sale).await.expect(40_902);

    let to =
        async |what: &str, body: &str| place.admin(&format!("POST /admin/sales/phone/{what}"), body).await;
    let told = to("open", "").await.expect(40_902);
    assert!(told.message.contains("`warm`"), "says what to do: {told:?}");
    for (what, state) in [("warm", "warm"), ("open", "open")] {
        assert_eq!(to(what, "").await.expect(200).data["state"], state);
    }
    let paused = to("pause", r#"{"reason": "counting"}"#).await.expect(200).data;
    assert_eq!((&paused["state"], &paused["reason"]), (&"paused".into(), &"counting".into()));
    to("resume", "{}").await.expect(200);
    to("stock", r#"{"add": 7}"#).await.expect(200);
    to("rate", r#"{"limit": "7/s"}"#).await.expect(200);
    to("schedule", r#"{"closes_at": 4102444800000}"#).await.expect(200);
    let listed = place.admin("GET /admin/sales", "").await.expect(200).data;
    let listed = &listed.as_array().unwrap()[0];
    assert_eq!(
        (&listed["total"], &listed["state"], &listed["closes_at"]),
        (&12.into(), &"open".into(), &4_102_444_800_000u64.into())
    );
    assert!(listed["rate"].as_str().unwrap().starts_with("7/s"), "{listed}");
    assert_eq!(place.books().await["total"], 12);
    to("close", "").await.expect(200);
    to("resume", "").await.expect(40_902);

    let audit = place.admin("GET /admin/sales/phone/audit", "").await.expect(200).data;
    let lines: Vec<&str> = audit
        .as_array()
        .unwrap()
        .iter()
        .map(|line| {
            assert_eq!(line["by"], "admin@127.0.0.1");
            assert!(line["at"].is_u64());
            line["what"].as_str().unwrap()
        })
        .collect();
    for (line, word) in
        lines.iter().zip(["close", "schedule", "rate", "add_stock", "resume", "counting", "open", "warm"])
    {
        assert!(line.contains(word), "{word} in {line}; all: {lines:?}");
    }
    assert!(!audit.to_string().contains(ADMIN));
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_looks_at_what_a_repair_would_change_before_it_is_done() {
    let place = Place::with(|builder| builder, |http| http).await;
    place.admin("POST /admin/sales", r#"{"goods": "phone", "total": 5}"#).await.expect(200);
    let to = async |what: &str| place.admin(&format!("POST /admin/sales/phone/{what}"), "").await;
    to("warm").await.expect(200);
    to("open").await.expect(200);
    let shown = place.admin("GET /admin/sales/phone/repair", "").await.expect(200).data;
    let sums = serde_json::json!({ "defined": 5, "total": 5, "placed": 0, "orders": 0 });
    assert_eq!((&shown["differs"], &shown["repaired"]), (&false.into(), &false.into()), "{shown}");
    assert_eq!((&shown["stored"], &shown["counted"]), (&sums, &sums));
    let told = to("repair").await.expect(40_902);
    assert!(told.message.contains("`pause`"), "says what to do: {told:?}");
    to("pause").await.expect(200);
    assert_eq!(to("repair").await.expect(200).data["repaired"], false, "there is nothing to repair");
    place.ask("ann", "GET /admin/sales/phone/repair").await.expect(40_301);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_operator_writes_wrong_is_named() {
    let place = Place::with(|builder| builder, |http| http).await;
    for (body, named) in [
        ("", "goods"),
        ("{", "EOF"),
        ("[]", "struct Sale"),
        (r#"{"goods": "a b", "total": 5}"#, "an id is"),
        (r#"{"goods": "phone"}"#, "total"),
        (r#"{"goods": "phone", "total": 0}"#, "`total`"),
        (r#"{"goods": "phone", "total": -1}"#, "-1"),
        (r#"{"goods": "phone", "total": 5, "rate": "fast"}"#, "fast"),
        (r#"{"goods": "phone", "total": 5, "rate": "10 concurrent"}"#, "`rate`"),
        (r#"{"goods": "phone", "total": 5, "stock": 5}"#, "stock"),
        (r#"{"goods": "phone", "total": 5, "per_user": 0}"#, "`per_user`"),
    ] {
        let told = place.admin("POST /admin/sales", body).await.expect(40_001);
        assert!(told.message.contains(named), "{body}: {told:?}");
    }
    let long = format!(r#"{{"goods": "phone", "total": 5, "title": "{}"}}"#, "x".repeat(70_000));
    let told = place.admin("POST /admin/sales", &long).await.expect(40_001);
    assert!(told.message.contains("64 KiB"), "{told:?}");

    place.admin("POST /admin/sales", r#"{"goods": "phone", "total": 5}"#).await.expect(200);
    for (what, body, code) in [
        ("stock", "{}", 40_001),
        ("stock", r#"{"add": 0}"#, 40_001),
        ("stock", r#"{"add": 18446744073709551615}"#, 40_902),
        ("rate", r#"{"limit": "10 concurrent"}"#, 40_001),
        ("rate", r#"{"limit": "0/s"}"#, 40_001),
        ("schedule", r#"{"opens_at": 5, "closes_at": 4}"#, 40_902),
        ("pause", r#"{"why": "x"}"#, 40_001),
        ("warm", r#"{"x": 1}"#, 40_001),
        ("explode", "", 40_400),
    ] {
        place.admin(&format!("POST /admin/sales/phone/{what}"), body).await.expect(code);
    }
    place.admin("POST /admin/sales/watch/warm", "").await.expect(40_401);
    place.admin("GET /admin/sales/watch/audit", "").await.expect(40_401);
    place.admin("GET /admin/sales/phone/else", "").await.expect(40_400);
    place.admin("POST /admin/dead/phone-9-9/drop", "").await.expect(40_403);
    place.admin("POST /admin/dead/phone-9-9/keep", "").await.expect(40_400);
    assert_eq!(place.admin("GET /admin/sales/phone/dead", "").await.expect(200).data, serde_json::json!([]));
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_is_entered_once_and_a_paid_order_stays() {
    let place = Place::open(crate::place::phones(5)).await;
    let sn = place.buy("ann").await;
    place.until_order("ann", &sn, "placed").await;
    let pay = format!("POST /orders/{sn}/pay");
    place.ask("ann", &pay).await.expect(40_301);
    for _ in 0..2 {
        assert_eq!(place.admin(&pay, "").await.expect(200).data["state"], "paid");
    }
    let told = place.ask("ann", &format!("POST /orders/{sn}/cancel")).await.expect(40_902);
    assert!(told.message.contains("paid"), "{told:?}");
    place.admin("POST /orders/phone-9-9/pay", "").await.expect(40_403);
    assert_eq!(place.books().await["left"], 4);
    place.end().await;
}
