//! What buyers ask: a path, an order, and how the sale stands.

use super::App;
use super::answer;
use super::ask::Ask;
use crate::auth::only;
use crate::books::Books;
use crate::refusal::Refusal;
use axum::http::{HeaderName, Method};
use axum::response::Response;
use serde::Serialize;
use std::sync::Arc;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// `GET|POST /randomPath?goodsId=`. Not `HEAD`: it would spend a place in the crowd for an answer
/// that says nothing.
pub(super) async fn random_path(app: Arc<App>, ask: Ask) -> Result<Response, Refusal> {
    if !matches!(ask.parts.method, Method::GET | Method::POST) {
        return Ok(answer::only_for("GET,POST", ask.lang));
    }
    let user = ask.user(&app).await?;
    let goods = ask.goods()?;
    let path = app.service.random_path(&user, ask.client(&app), &goods).await?;
    Ok(ask.ok(path))
}

/// `POST /{path}/decrStock?goodsId=&decrStock=`
pub(super) async fn decr_stock(app: Arc<App>, ask: Ask) -> Result<Response, Refusal> {
    let user = ask.user(&app).await?;
    let (goods, quantity) = (ask.goods()?, ask.quantity()?);
    let headers = &ask.parts.headers;
    // A key that cannot be read must not pass for none: the order might be made twice.
    let key =
        headers.contains_key(IDEMPOTENCY_KEY).then(|| only(headers, &IDEMPOTENCY_KEY).unwrap_or_default());
    let sn = app.service.decr_stock(&user, &goods, ask.segment(0), quantity, key).await?;
    Ok(ask.ok(sn))
}

/// `GET /sale/{goods}`
pub(super) async fn sale(app: Arc<App>, ask: Ask) -> Result<Response, Refusal> {
    let shown = app.service.shown(&ask.goods_at(1)?).ok_or(Refusal::UnknownGoods)?;
    Ok(ask.ok(shown))
}

/// `GET /sale/{goods}/books`: exact stock, which is the operators'.
pub(super) async fn books(app: Arc<App>, ask: Ask) -> Result<Response, Refusal> {
    ask.operator(&app)?;
    #[derive(Serialize)]
    struct Shown<'a> {
        goods: &'a str,
        total: u64,
        placed: u64,
        in_flight: u64,
        left: u64,
        orders: u64,
        returned: u64,
        dead: u64,
        balanced: bool,
        state: &'a str,
        reason: Option<&'a str>,
        epoch: u32,
        at: u64,
    }
    let books: Books = app.service.books(&ask.goods_at(1)?).await?;
    let (state, reason) = match books.state.split_once(": ") {
        Some((state, reason)) => (state, Some(reason)),
        None => (books.state.as_str(), None),
    };
    Ok(ask.ok(Shown {
        goods: books.goods.as_str(),
        total: books.total,
        placed: books.placed,
        in_flight: books.in_flight,
        left: books.left,
        orders: books.orders,
        returned: books.returned,
        dead: books.dead,
        balanced: books.is_balanced(),
        state,
        reason,
        epoch: books.epoch,
        at: books.at,
    }))
}

/// `GET /livez`: the process answers.
pub(super) async fn livez(_: Arc<App>, ask: Ask) -> Result<Response, Refusal> {
    Ok(ask.ok(()))
}

/// `GET /readyz`: it should get new buyers.
pub(super) async fn readyz(app: Arc<App>, ask: Ask) -> Result<Response, Refusal> {
    app.service.ready().map(|()| ask.ok(()))
}
