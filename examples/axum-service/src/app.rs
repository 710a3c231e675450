//! The service: its rules, its routes, its handlers.

use crate::sign_in::sign_in;
use axum::Router;
use axum::extract::{Path, State};
use axum::middleware::from_fn;
use axum::routing::{get, post};
use std::error::Error;
use std::time::Duration;
use tidegate::Limiter;
use tidegate::http::{ClientIp, Decided, Guard};
use tidegate::rules::{Missing, Rule};

/// What the handlers share.
#[derive(Clone)]
struct App {
    guard: Guard,
}

pub(crate) fn router(limiter: &Limiter) -> Result<Router, Box<dyn Error>> {
    let guard = guard(limiter)?;
    Ok(Router::new()
        .route("/goods/{id}", get(goods))
        .route("/goods/{id}/order", post(order))
        .route("/guard", get(state_of_guard))
        .layer(guard.layer())
        // In axum the layer that is added last comes first: the guard knows who signed in.
        .layer(from_fn(sign_in))
        .with_state(App { guard }))
}

fn guard(limiter: &Limiter) -> Result<Guard, Box<dyn Error>> {
    // Pages are for everybody, by the client's address.
    let look = Rule::new("look", "1/s burst 3").on("GET /goods/{id}").by("ip");
    // Orders are by user: a start each half second, for which a request may wait a second,
    // and two at a time, for which nobody waits.
    let order = Rule::new("order", "2/s burst 1 wait 1s")
        .limit("2 concurrent")
        .on("POST /goods/{id}/order")
        .by("user")
        .missing(Missing::Refuse);
    let guard = Guard::new(limiter)
        .rule(look)
        .rule(order)
        // A proxy on this machine may say who its client is; nobody else is believed.
        .client_ip(ClientIp::behind(["loopback"])?)
        .decided_extension();
    Ok(guard.build()?)
}

async fn goods(Path(id): Path<u64>, decided: Decided) -> String {
    format!("goods {id}; you may look {} more times now", decided.remaining().unwrap_or(0))
}

async fn order(Path(id): Path<u64>, decided: Decided) -> String {
    // What an order takes. Its place is held until the answer is sent.
    tokio::time::sleep(Duration::from_millis(300)).await;
    match decided.wait().as_millis() {
        0 => format!("ordered {id} at once"),
        wait => format!("ordered {id} after {wait} ms"),
    }
}

/// Under no rule: what an operator looks at.
async fn state_of_guard(State(App { guard }): State<App>) -> String {
    let is = if guard.rules().is_on() { "on" } else { "off" };
    format!(
        "rules {}; {is}; {} requests wait",
        guard.rules().names().join(", "),
        guard.rules().stats().waiting
    )
}
