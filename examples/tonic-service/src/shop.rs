//! The service: one method, written by hand, so that nothing has to be generated.
//!
//! With generated code it is `Routes::new(ShopServer::new(shop))`; to the guard that is the
//! same, because it sees requests only.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::IntoResponse;
use axum::routing::post;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::http::GrpcStatus;
use tidegate::{Refusal, limited};
use tonic::server::Grpc;
use tonic::service::Routes;
use tonic::{Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

pub(crate) const BUY: &str = "/shop.Shop/Buy";

/// What is bought.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Order {
    #[prost(uint64, tag = "1")]
    pub(crate) goods_id: u64,
}

/// The number of the order.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Receipt {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
}

/// Orders so far.
type Orders = Arc<AtomicU64>;

pub(crate) fn routes() -> Routes {
    Routes::from(Router::new().route(BUY, post(method)).with_state(Orders::default()))
}

/// Between bytes and messages: what would be generated.
async fn method(State(orders): State<Orders>, request: Request) -> impl IntoResponse {
    let buy = service_fn(move |order: tonic::Request<Order>| buy(orders.clone(), order.into_inner()));
    Grpc::new(ProstCodec::default()).unary(buy, request).await
}

/// Goods that everybody wants have a limit of their own, beside what the guard allows a client.
#[limited("100/s", key = order.goods_id, otherwise = |refusal| Err(refused(&refusal)))]
async fn buy(orders: Orders, order: Order) -> Result<Response<Receipt>, Status> {
    match order.goods_id {
        0 => Err(Status::not_found("there are no goods 0")),
        _ => Ok(Response::new(Receipt { number: orders.fetch_add(1, Ordering::Relaxed) + 1 })),
    }
}

/// As the guard says it: a code, a sentence, and when to come back.
fn refused(refusal: &Refusal) -> Status {
    let status = GrpcStatus::new(refusal);
    Status::with_details(status.code().into(), status.message(), status.details())
}
