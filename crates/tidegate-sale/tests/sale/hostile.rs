//! Whatever a stranger sends, the answer has the same shape, and nothing is sold by it.

use crate::place::{Place, phones};
use axum::body::Body;
use axum::http::Request;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tidegate_sale::{Http, SignedTokens};
use tower_service::Service as _;

/// Queries that are nearly right, and such that are not.
fn query() -> impl Strategy<Value = String> {
    let name = prop_oneof![Just("goodsId".to_owned()), Just("decrStock".to_owned()), "[a-zA-Z%0-9]{0,8}"];
    let value = prop_oneof![
        Just("phone".to_owned()),
        Just("1".to_owned()),
        "-?[0-9]{0,30}",
        "(%[0-9a-fA-F]{2}){0,8}",
        "[!-~&&[^#\"<>`{}|\\\\^]]{0,40}",
    ];
    prop::collection::vec((name, value), 0..5).prop_map(|pairs| {
        pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
    })
}

#[test]
fn any_query_and_any_path_get_an_answer_of_the_sale() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let place = runtime.block_on(Place::open(phones(10)));
    let router = Http::new(place.service.clone(), SignedTokens::new(&place.secret)).router();
    let auth = place.bearer("ann");
    let path = "[!-~&&[^#?\"<>`{}|\\\\^/]]{0,60}";
    let mut runner = TestRunner::new(Config { cases: 2_000, failure_persistence: None, ..Config::default() });
    let ran = runner.run(&(path, query()), |(path, query)| {
        for (method, address) in [
            ("POST", format!("/{path}/decrStock?{query}")),
            ("GET", format!("/randomPath?{query}")),
            ("GET", format!("/orders/{path}?{query}")),
        ] {
            let request = Request::builder().method(method).uri(&address).header("authorization", &auth);
            let Ok(request) = request.body(Body::empty()) else { continue };
            let (status, body) = runtime.block_on(async {
                let answer = router.clone().call(request).await.unwrap();
                (answer.status().as_u16(), axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap())
            });
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let code = body["code"].as_u64().unwrap();
            prop_assert!(body.as_object().unwrap().len() == 3 && body["message"].is_string());
            prop_assert!([200, 400, 401, 404, 405].contains(&status), "{address}: {body}");
            prop_assert!(code == u64::from(status) || code / 100 == u64::from(status));
            prop_assert!(method == "GET" || code != 200, "{address} sold something");
        }
        Ok(())
    });
    ran.unwrap();
    runtime.block_on(async {
        assert_eq!(place.books().await["left"], 10);
        place.end().await;
    });
}
