//! `#[limited]` below the layer: functions that see no request know who calls.

use crate::support::Server;
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use tidegate::http::{ClientIp, Guard};
use tidegate::{Limiter, ManualClock, Refusal, limited};

/// Three calls away from anything of the web.
async fn quote(limiter: &Limiter) -> Result<u64, Refusal> {
    tokio::task::yield_now().await;
    price(limiter, 7).await
}

#[limited("1/h", name = "price", prefix = "", by = ip, key = goods_id, limiter = limiter)]
async fn price(limiter: &Limiter, goods_id: u64) -> Result<u64, Refusal> {
    Ok(goods_id * 100)
}

async fn deep(State(limiter): State<Limiter>) -> Result<String, Refusal> {
    Ok(format!("{} cents", quote(&limiter).await?))
}

/// As a handler itself, below and above what checks handlers.
#[axum::debug_handler]
#[limited("1/h", name = "above", prefix = "", by = ip, limiter = limiter)]
async fn above(State(limiter): State<Limiter>) -> Result<&'static str, Refusal> {
    Ok("seen")
}

#[limited("1/h", name = "below", prefix = "", by = ip, missing = refuse, limiter = limiter)]
#[axum::debug_handler]
async fn below(State(limiter): State<Limiter>) -> Result<&'static str, Refusal> {
    Ok("seen")
}

fn router() -> Router<Limiter> {
    Router::new().route("/deep", get(deep)).route("/above", get(above)).route("/below", get(below))
}

fn limiter() -> Limiter {
    Limiter::builder().clock(ManualClock::new()).max_keys(100).build()
}

#[test]
fn a_function_deep_inside_knows_the_client_from_the_layer() {
    let limiter = limiter();
    let proxies = ClientIp::behind(["loopback"]).unwrap();
    // Without a rule: what the layer gives is the caller.
    let guard = Guard::new(&limiter).client_ip(proxies).build().unwrap();
    let server = Server::start(router().layer(guard.layer()).with_state(limiter));
    for path in ["/deep", "/above", "/below"] {
        let ask = |client: &str| server.get_with(path, &format!("x-forwarded-for: {client}\r\n")).rest();
        assert!(ask("203.0.113.9").starts_with("HTTP/1.1 200 OK"), "{path}");
        assert!(ask("203.0.113.10").starts_with("HTTP/1.1 200 OK"), "{path}: another client");
        let refused = ask("6.6.6.6, 203.0.113.9");
        let (head, body) = refused.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{refused}");
        assert!(head.contains("content-type: application/problem+json\r\n"), "{refused}");
        assert!(head.contains("retry-after: 3600\r\n"), "{refused}");
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        let gate = if path == "/deep" { "price" } else { &path[1..] };
        assert_eq!(problem["detail"], format!("denied by `{gate}`: 1/h, 0 left, free again in 1 h"));
        assert_eq!(problem["violated-policies"], serde_json::json!([gate]));
    }
}

#[test]
fn without_a_layer_nobody_is_known() {
    let limiter = limiter();
    let server = Server::start(router().with_state(limiter));
    let refused = server.get("/below").rest();
    assert!(refused.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{refused}");
    assert!(refused.contains("the caller is not known"), "{refused}");
    // Where that is no reason to refuse, they share one allowance.
    assert!(server.get("/above").rest().starts_with("HTTP/1.1 200 OK"));
    assert!(server.get("/above").rest().starts_with("HTTP/1.1 429"));
}
