//! Every code, as it comes over the wire.

use crate::place::{ADMIN, Place, goods, phones};
use std::time::{Duration, SystemTime};
use tidegate_sale::{Change, Secret, SignedTokens};

#[expect(clippy::disallowed_methods, reason = "openings are told by the calendar")]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parameter_that_cannot_be_is_named() {
    let place = Place::open(phones(10)).await;
    for (query, named) in [
        ("", "goodsId"),
        ("?goodsid=phone", "goodsId"),
        ("?goodsId=", "goodsId"),
        ("?goodsId=a%20b", "goodsId"),
        ("?goodsId=phone&goodsId=watch", "goodsId"),
    ] {
        let told = place.ask("ann", &format!("GET /randomPath{query}")).await.expect(40_001);
        assert!(told.message.contains(&format!("`{named}`")), "{query}: {told:?}");
    }
    let path = place.path("ann").await.expect(200).text().to_owned();
    let huge = "9".repeat(400);
    for units in [
        "",
        "0",
        "2",
        "1000000000",
        "-1",
        "+1",
        "1.5",
        "one",
        "0x1",
        "4294967296",
        &huge,
        "1&decrStock=2",
        "%31%00",
    ] {
        let told = place.take("ann", &path, units).await.expect(40_001);
        assert!(told.message.starts_with("`decrStock`: "), "{units}: {told:?}");
    }
    place.ask("ann", &format!("POST /{path}/decrStock?goodsId=phone")).await.expect(40_001);
    let auth = place.bearer("ann");
    for key in ["", "two words", &"k".repeat(201), "schlüssel"] {
        let what = format!("POST /{path}/decrStock?goodsId=phone&decrStock=1");
        let fields = [("authorization", auth.as_str()), ("idempotency-key", key)];
        let told = place.client().await.ask(&what, &fields, "").await.expect(40_001);
        assert!(told.message.contains("`Idempotency-Key`"), "{told:?}");
    }
    assert_eq!(place.books().await["left"], 10);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_somebody_without_a_good_token() {
    let place = Place::open(phones(10)).await;
    let good = place.bearer("ann");
    let other =
        SignedTokens::new(&Secret::random().unwrap()).issue(&"ann".parse().unwrap(), Duration::from_secs(60));
    let expired = SignedTokens::new(&place.secret).issue(&"ann".parse().unwrap(), Duration::ZERO);
    let (bob, mac) = ("Ym9i", good.rsplit_once('.').unwrap().1);
    let forged = format!("Bearer v1.{bob}.99999999999.{mac}");
    for token in [
        "",
        "Bearer",
        "Bearer ",
        "Basic x",
        &format!("Bearer {other}"),
        &format!("Bearer {expired}"),
        &forged,
    ] {
        for what in [
            "GET /randomPath?goodsId=phone&user=ann&userId=ann",
            "POST /x/decrStock?goodsId=phone&decrStock=1",
            "GET /orders/phone-1-1",
            "POST /orders/phone-1-1/cancel",
        ] {
            let fields = [("authorization", token), ("x-user", "ann"), ("cookie", "user=ann")];
            place.client().await.ask(what, &fields, "").await.expect(40_101);
        }
    }
    // A buyer's token is no operator's, and an operator's no buyer's.
    place.ask("ann", "GET /admin/sales").await.expect(40_301);
    place.client().await.ask("GET /admin/sales", &[], "").await.expect(40_301);
    let admin = format!("Bearer {ADMIN}");
    let fields = [("authorization", admin.as_str())];
    place.client().await.ask("GET /randomPath?goodsId=phone", &fields, "").await.expect(40_101);
    for wrong in ["Bearer 0123456789abcdeF", "Bearer 0123456789abcde", "0123456789abcdef"] {
        let fields = [("authorization", wrong)];
        for what in [
            "GET /admin/sales",
            "POST /admin/sales",
            "POST /admin/sales/phone/close",
            "POST /orders/phone-1-1/pay",
            "GET /admin/sales/phone/audit",
            "POST /admin/dead/phone-1-1/drop",
        ] {
            place.client().await.ask(what, &fields, "{}").await.expect(40_301);
        }
    }
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_says_so_in_the_same_shape() {
    let place = Place::open(phones(10)).await;
    place.ask("ann", "GET /randomPath?goodsId=watch").await.expect(40_401);
    place.ask("ann", "POST /x/decrStock?goodsId=watch&decrStock=1").await.expect(40_401);
    for what in ["GET /sale/watch", "GET /sale/%00"] {
        place.ask("ann", what).await.expect(40_401);
    }
    for what in ["GET /sale/watch/books", "GET /sale/a%2Fb/books"] {
        place.admin(what, "").await.expect(40_401);
    }
    for sn in ["phone-9-9", "phone-1-99999999999999999999", "x", "%ff", "phone-01-1"] {
        place.ask("ann", &format!("GET /orders/{sn}")).await.expect(40_403);
    }
    for what in ["GET /", "GET /nowhere", "POST /orders/phone-1-1/refund", "GET /a/b/c/d", "DELETE /%ff%fe"] {
        place.ask("ann", what).await.expect(40_400);
    }
    for (what, allow) in [
        ("GET /x/decrStock?goodsId=phone&decrStock=1", "POST"),
        ("DELETE /randomPath?goodsId=phone", "GET,POST"),
        ("GET /admin/sales/phone/pause", "POST"),
        ("GET /admin/sales/phone/stock", "POST"),
        ("GET /admin/dead/phone-1-1/drop", "POST"),
        ("POST /admin/sales/phone/audit", "GET,HEAD"),
        ("DELETE /admin/sales/phone/dead", "GET,HEAD"),
        ("POST /sale/phone", "GET,HEAD"),
    ] {
        let told = place.ask("ann", what).await.expect(40_500);
        assert_eq!(told.field("allow"), Some(allow), "{told:?}");
    }
    place.ask("ann", "GET /livez").await.expect(200);
    place.ask("ann", "GET /readyz").await.expect(200);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_that_is_not_open_says_why_and_until_when() {
    let place = Place::with(|builder| builder.user_limit(None).ip_limit(None), |http| http).await;
    let mut sale = phones(10);
    let opens = now_ms() + 3_600_000;
    sale.opens_at = Some(opens);
    place.service.create(sale, "test").await.unwrap();
    for change in [None, Some(Change::Warm)] {
        if let Some(change) = change {
            place.change(&goods(), change).await;
        }
        let early = place.path("ann").await.expect(42_501);
        assert_eq!(early.data["opens_at"], opens, "{early:?}");
        let now = early.data["now"].as_u64().unwrap();
        assert!(now.abs_diff(now_ms()) < 60_000, "by the server's clock: {early:?}");
        let seconds: u64 = early.field("retry-after").unwrap().parse().unwrap();
        assert!(seconds * 1000 >= opens - now_ms() && seconds <= 3_600, "{early:?}");
        assert_eq!(place.ask("ann", "GET /sale/phone").await.expect(200).data["state"], "not_open_yet");
    }
    place.change(&goods(), Change::Open).await;
    let path = place.path("ann").await.expect(200).text().to_owned();
    place.change(&goods(), Change::Pause { reason: "a look".into() }).await;
    for told in [place.path("ann").await, place.take("ann", &path, "1").await] {
        let told = told.expect(50_301);
        assert_eq!((told.message.as_str(), told.field("retry-after")), ("paused: a look", Some("5")));
    }
    let shown = place.ask("ann", "GET /sale/phone").await.expect(200).data;
    assert_eq!((&shown["state"], &shown["reason"]), (&"paused".into(), &"a look".into()));
    let books = place.books().await;
    assert_eq!((&books["state"], &books["reason"]), (&"paused".into(), &"a look".into()));
    place.change(&goods(), Change::Resume).await;
    let sn = place.take("ann", &path, "1").await.expect(200).text().to_owned();
    place.change(&goods(), Change::Close).await;
    place.path("bob").await.expect(41_002);
    assert_eq!(
        place.take("ann", &path, "1").await.expect(200).text(),
        sn,
        "an order that is made stays told"
    );
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_chinese_is_answered_in_it() {
    let place = Place::open(phones(1)).await;
    place.buy("ann").await;
    let auth = place.bearer("bob");
    let fields = [("authorization", auth.as_str()), ("accept-language", "zh-CN,zh;q=0.9,en;q=0.8")];
    let mut client = place.client().await;
    let told = client.ask("GET /randomPath?goodsId=phone", &fields, "").await.expect(41_001);
    assert_eq!((told.message.as_str(), told.data), ("已售罄", serde_json::Value::Null));
    let told = client.ask("GET /randomPath", &fields, "").await.expect(40_001);
    assert!(told.message.starts_with("请求参数错误：`goodsId`"), "{told:?}");
    assert_eq!(client.ask("GET /sale/phone", &fields, "").await.expect(200).message, "成功");
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_finds_all_it_shows() {
    let mut sale = phones(12_345);
    sale.title = "Phone 15 \"黑\"".into();
    let place = Place::open(sale).await;
    let shown = place.client().await.ask("GET /sale/phone", &[], "").await.expect(200).data;
    assert_eq!(shown["title"], "Phone 15 \"黑\"");
    assert_eq!(
        (&shown["state"], &shown["left"], &shown["per_user"]),
        (&"open".into(), &12_000.into(), &1.into())
    );
    assert!(shown["now"].is_u64() && shown["rate"].is_string() && shown.get("opens_at").is_some(), "{shown}");
    place.end().await;
}
