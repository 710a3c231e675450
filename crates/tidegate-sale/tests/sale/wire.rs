//! Requests as they should not be on the wire, at every address: with bytes behind them, in
//! pieces, several at once, cut off, malformed. Each whole one is answered, each malformed one
//! is refused by a status, and none does what it did not say.

use crate::place::{ADMIN, FAST, Place, phones};

/// A request that can be made again and is then answered alike.
struct Request {
    what: String,
    auth: String,
    body: String,
    code: u64,
}

impl Request {
    /// As it goes over the wire, with more lines in its head.
    fn text(&self, lines: &str) -> String {
        let Self { what, auth, body, .. } = self;
        let length = body.len();
        format!(
            "{what} HTTP/1.1\r\nhost: x\r\nauthorization: {auth}\r\ncontent-length: {length}\r\n{lines}\r\n{body}"
        )
    }
}

/// One request for every address, and the path of an order that is not made yet.
async fn requests(place: &Place) -> (Vec<Request>, String) {
    let (ann, bob) = (place.buy("ann").await, place.buy("bob").await);
    for (name, sn) in [("ann", &ann), ("bob", &bob)] {
        place.until_order(name, sn, "placed").await;
    }
    let path = place.path("cid").await.expect(200).text().to_owned();
    let unused = place.path("dan").await.expect(200).text().to_owned();
    let (operator, buyer) = (format!("Bearer {ADMIN}"), |name: &str| place.bearer(name));
    let rate = format!(r#"{{"limit": "{FAST}"}}"#);
    let sale = r#"{"goods": "phone", "total": 5}"#;
    let all = [
        ("GET /randomPath?goodsId=phone".to_owned(), buyer("cid"), "", 200),
        ("POST /randomPath?goodsId=phone".into(), buyer("cid"), "", 200),
        (format!("POST /{path}/decrStock?goodsId=phone&decrStock=1"), buyer("cid"), "", 200),
        (format!("GET /orders/{ann}"), buyer("ann"), "", 200),
        (format!("POST /orders/{ann}/cancel"), buyer("ann"), "", 200),
        (format!("POST /orders/{bob}/pay"), operator.clone(), "", 200),
        ("GET /sale/phone".into(), String::new(), "", 200),
        ("GET /sale/phone/books".into(), operator.clone(), "", 200),
        ("GET /admin/sales".into(), operator.clone(), "", 200),
        ("POST /admin/sales".into(), operator.clone(), sale, 40_902),
        ("GET /admin/sales/phone/audit".into(), operator.clone(), "", 200),
        ("GET /admin/sales/phone/dead".into(), operator.clone(), "", 200),
        ("POST /admin/sales/phone/rate".into(), operator.clone(), &rate, 200),
        ("POST /admin/dead/phone-9-9/drop".into(), operator.clone(), "", 40_403),
        ("GET /livez".into(), String::new(), "", 200),
        ("GET /readyz".into(), String::new(), "", 200),
        ("GET /nowhere".into(), String::new(), "", 40_400),
        ("DELETE /livez".into(), String::new(), "", 40_500),
    ]
    .map(|(what, auth, body, code)| Request { what, auth, body: body.to_owned(), code });
    for request in &all {
        let plain = place.client().await.raw(&request.text("")).await.answer().await;
        assert_eq!(plain.code, request.code, "{}: {plain:?}", request.what);
    }
    (all.into(), unused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_behind_a_whole_request_do_not_hold_its_answer_back() {
    let place = Place::open(phones(10)).await;
    for request in requests(&place).await.0 {
        for more in ["\r\n", "x", "\0", "GET /li", "\r\n\r\nGET /livez HTTP/1.1\r\nho"] {
            let mut client = place.client().await;
            let told = client.raw(&(request.text("") + more)).await.answer().await;
            assert_eq!(told.code, request.code, "{} and {more:?}: {told:?}", request.what);
        }
    }
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_byte_behind_the_request_holds_no_event_back() {
    let place = Place::open(phones(10)).await;
    let sn = place.buy("ann").await;
    let request = Request {
        what: format!("GET /orders/{sn}"),
        auth: place.bearer("ann"),
        body: String::new(),
        code: 200,
    };
    let mut client = place.client().await;
    client.raw(&(request.text("accept: text/event-stream\r\n") + "x")).await;
    assert!(client.until(b"event: order").await.is_some());
    drop(client);
    place.end().await;
}

/// Only operators' requests with a body wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_never_comes_holds_no_answer_back() {
    let place = Place::open(phones(10)).await;
    for request in requests(&place).await.0.iter().filter(|request| request.body.is_empty()) {
        let text = request.text("").replace("content-length: 0", "content-length: 100");
        let told = place.client().await.raw(&text).await.answer().await;
        assert_eq!(told.code, request.code, "{}: {told:?}", request.what);
    }
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_in_pieces_and_several_at_once_are_answered_each() {
    let place = Place::open(phones(10)).await;
    for request in requests(&place).await.0 {
        let text = request.text("");
        let mut client = place.client().await;
        client.raw(&text.repeat(3)).await;
        for nth in 0..3 {
            assert_eq!(client.answer().await.code, request.code, "{}, {nth}", request.what);
        }
        for nth in 0..text.len() {
            client.raw(&text[nth..=nth]).await;
        }
        assert_eq!(client.answer().await.code, request.code, "{} byte by byte", request.what);
    }
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_malformed_gets_a_status_and_does_nothing() {
    let place = Place::open(phones(10)).await;
    let (mut all, unused) = requests(&place).await;
    all.push(Request {
        what: format!("POST /{unused}/decrStock?goodsId=phone&decrStock=1"),
        auth: place.bearer("dan"),
        body: String::new(),
        code: 200,
    });
    let before = place.books().await;
    let (long, many) = (format!("x: {}\r\n", "y".repeat(200_000)), "x: y\r\n".repeat(10_000));
    let flood = "z".repeat(200_000);
    for request in &all {
        let text = request.text("");
        for (what, bytes, status) in [
            ("a line without a colon", request.text("x\r\n"), 400),
            ("a blank before the colon", request.text("x : y\r\n"), 400),
            ("a nul", request.text("x: \0\r\n"), 400),
            ("a length that is none", request.text("content-length: -1\r\n"), 400),
            ("another length", request.text("content-length: 999\r\n"), 400),
            ("an encoding that is not chunked", request.text("transfer-encoding: gzip\r\n"), 400),
            ("a version that is none", text.replacen("HTTP/1.1", "HTTP/9.9", 1), 400),
            ("a method that is none", format!("({text}"), 400),
            ("no HTTP at all", "\u{1}\u{2}\r\n\r\n".to_owned(), 400),
            ("a long line", request.text(&long), 431),
            ("a long address", text.replacen(" HTTP", &format!("?{flood} HTTP"), 1), 431),
            ("many lines", request.text(&many), 431),
            ("a flood behind it", request.text("x\r\n") + &flood, 400),
        ] {
            let told = place.client().await.raw(&bytes).await.rest().await;
            let told = told.unwrap_or_else(|error| panic!("{} with {what}: {error}", request.what));
            let first = told.lines().next().unwrap_or("nothing");
            assert!(
                first.starts_with(&format!("HTTP/1.1 {status}")),
                "{} with {what}: {first}",
                request.what
            );
            assert_eq!(told.matches("HTTP/1.1").count(), 1, "{} with {what}: {told}", request.what);
        }
        // A byte is missing, and none will come.
        let half = &text[..text.len() - 1];
        let told = place.client().await.raw(half).await.close().await.rest().await.unwrap();
        assert!(!told.contains("200 OK"), "{} but for a byte: {told}", request.what);
    }
    let after = place.books().await;
    for field in ["total", "left", "orders", "returned"] {
        assert_eq!(before[field], after[field], "{field}");
    }
    place.end().await;
}
