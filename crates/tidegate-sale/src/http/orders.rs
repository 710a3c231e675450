//! An order after it is made: looked at, watched, given up, paid.

use super::App;
use super::ask::Ask;
use super::stream;
use crate::goods::GoodsId;
use crate::order::{Order, OrderSn, OrderState};
use crate::refusal::Refusal;
use axum::http::header::ACCEPT;
use axum::response::Response;
use serde::Serialize;
use std::sync::Arc;

/// An order as its buyer sees it.
#[derive(Serialize)]
pub(super) struct Shown<'a> {
    order_sn: &'a OrderSn,
    goods_id: &'a GoodsId,
    quantity: u32,
    state: OrderState,
    reason: Option<&'a str>,
    created_at: u64,
    updated_at: u64,
    pay_by: Option<u64>,
}

impl<'a> From<&'a Order> for Shown<'a> {
    fn from(order: &'a Order) -> Self {
        Self {
            order_sn: &order.order_sn,
            goods_id: order.order_sn.goods(),
            quantity: order.quantity,
            state: order.state,
            reason: order.reason.as_deref(),
            created_at: order.created_at,
            updated_at: order.updated_at,
            pay_by: order.pay_by,
        }
    }
}

/// `GET /orders/{sn}`, once or as it goes on.
pub(super) async fn order(app: Arc<App>, ask: Ask) -> Result<Response, Refusal> {
    let user = ask.user(&app).await?;
    app.service.request_limits().order(&user, ask.client(&app))?;
    let sn = ask.order_at(1)?;
    let order = app.service.order(&user, &sn).await?;
    let accepts = ask.parts.headers.get_all(ACCEPT).iter();
    let is_stream = |value: &str| value.to_ascii_lowercase().contains("text/event-stream");
    if accepts.filter_map(|value| value.to_str().ok()).any(is_stream) {
        return stream::of(&app, order);
    }
    Ok(ask.ok(Shown::from(&order)))
}

/// `POST /orders/{sn}/cancel`
pub(super) async fn cancel(app: Arc<App>, ask: Ask) -> Result<Response, Refusal> {
    let user = ask.user(&app).await?;
    app.service.request_limits().order(&user, ask.client(&app))?;
    let order = app.service.cancel(&user, &ask.order_at(1)?).await?;
    Ok(ask.ok(Shown::from(&order)))
}

/// `POST /orders/{sn}/pay`: for whatever takes the money.
pub(super) async fn pay(app: Arc<App>, ask: Ask) -> Result<Response, Refusal> {
    ask.unlimited_operator(&app)?;
    let order = app.service.pay(&ask.order_at(1)?).await?;
    Ok(ask.ok(Shown::from(&order)))
}
