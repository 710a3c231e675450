//! A client that reads when to come back.

use crate::shop::{BUY, Order, Receipt};
use axum::http::uri::PathAndQuery;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt;

pub(crate) struct Client {
    grpc: Grpc<Channel>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
        Ok(Self { grpc: Grpc::new(channel) })
    }

    /// The number of the order.
    pub(crate) async fn buy(&mut self, goods_id: u64) -> Result<u64, Status> {
        self.grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let codec = ProstCodec::<Order, Receipt>::default();
        let request = Request::new(Order { goods_id });
        let receipt = self.grpc.unary(request, PathAndQuery::from_static(BUY), codec).await?;
        Ok(receipt.into_inner().number)
    }
}

/// When to come back, by a refusal's `RetryInfo`.
pub(crate) fn told(refused: &Status) -> Result<Duration, Box<dyn Error>> {
    if refused.code() != Code::ResourceExhausted {
        return Err(format!("expected RESOURCE_EXHAUSTED, not {refused}").into());
    }
    let info = refused.get_details_retry_info();
    Ok(info.and_then(|info| info.retry_delay).ok_or("a refusal says when to come back")?)
}
