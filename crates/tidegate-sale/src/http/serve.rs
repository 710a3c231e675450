//! Serving: connections of our listener, each with a bound on how long a head may take.
//!
//! `axum::serve` has no such bound, so that whoever sends a byte now and then would keep a
//! connection for ever.

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::future::Future;
use std::time::Duration;
use tidegate::listener::{Connection, Listener};
use tower_service::Service as _;

/// How long the head of a request may take, and a connection may be kept without one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// What is read ahead of a connection. A head is a few hundred bytes.
const BUFFER_MAX: usize = 16 * 1024;
/// How long requests that have begun may take once it is to end.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves until `shutdown` is there, then accepts nothing more, and ends when every request
/// that has begun is answered, or after 10 s.
pub async fn serve(mut listener: Listener, router: Router, shutdown: impl Future<Output = ()>) {
    let graceful = GracefulShutdown::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let connection = tokio::select! {
            connection = listener.accept() => connection,
            () = &mut shutdown => break,
        };
        tokio::spawn(converse(connection, router.clone(), &graceful));
    }
    drop(listener);
    let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
}

/// One connection, to its end.
fn converse(
    connection: Connection,
    router: Router,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + use<> {
    let peer = connection.peer();
    let answer = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().call(request.map(Body::new))
    });
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER_MAX)
        // Head and body go out in one write. `pipeline_flush` does that as well, but holds
        // every answer back while a byte of the client's is unread.
        .writev(false)
        .serve_connection(TokioIo::new(connection), answer);
    let watched = graceful.watch(http);
    async move {
        if let Err(error) = watched.await {
            // A stranger's connection: told to whoever looks for it, not to everyone.
            tracing::debug!(target: "tidegate::sale", %peer, %error, "a connection ended");
        }
    }
}
