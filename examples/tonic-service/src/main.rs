//! A gRPC service behind a guard, and a client that comes back when it is told to.
//!
//! `cargo run -p tonic-service` serves on a free port of 127.0.0.1 with tonic's own server;
//! `cargo run -p tonic-service -- --listener` with connections limited, too;
//! `cargo run -p tonic-service -- --demo` tries both with a client and ends.

mod client;
mod shop;

use client::Client;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use tidegate::Limiter;
use tidegate::http::{Guard, Peer};
use tidegate::listener::Listener;
use tidegate::rules::Rule;
use tokio::net::TcpSocket;
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ran = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => by_tonic(None).await,
        ["--listener"] => by_listener(None).await,
        ["--demo"] => demonstrate().await,
        _ => {
            eprintln!("usage: tonic-service              serves with tonic's own server");
            eprintln!("       tonic-service --listener   serves with limited connections");
            eprintln!("       tonic-service --demo       tries both with a client and ends");
            return ExitCode::from(2);
        }
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tonic-service: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A gRPC method is a POST to `/package.Service/Method`.
fn buy() -> Rule {
    Rule::new("buy", "2/s burst 2").on("POST /shop.Shop/Buy").by("ip")
}

/// With tonic's own server. It puts a [`TcpConnectInfo`] into the extensions, and the guard
/// is told to look there for the peer.
async fn by_tonic(demo: Option<&str>) -> Result<(), Box<dyn Error>> {
    let guard = Guard::new(&Limiter::new())
        .rule(buy())
        .grpc()
        .peer(|extensions| Some(extensions.get::<TcpConnectInfo>()?.remote_addr?.ip()))
        .build()?;
    // As long a queue as `Listener::bind` asks for. `TcpListener::bind` has 128: beyond that,
    // clients try again after a second.
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let listener = socket.listen(4_096)?;
    let address = listener.local_addr()?;
    let server = Server::builder()
        .layer(guard.layer())
        .add_routes(shop::routes())
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::select! {
        served = server => Ok(served?),
        shown = story(address, demo) => shown,
    }
}

/// With connections limited by a [`Listener`]. tonic's `serve_with_incoming` takes
/// connections of types that implement its own trait `Connected` only, so the routes go
/// into `axum::serve`, which speaks HTTP/2 with axum's feature `http2`. The guard finds
/// the peer by itself there.
async fn by_listener(demo: Option<&str>) -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new();
    let guard = Guard::new(&limiter).rule(buy()).grpc().build()?;
    let listener = Listener::bind("127.0.0.1:0")
        .await?
        .connections(limiter.gate("connections", "1000 concurrent")?)?
        .connections_by_client(limiter.gate("connections.client", "20 concurrent")?)?;
    let address = listener.local_addr()?;
    let routes = shop::routes().into_axum_router().layer(guard.layer());
    tokio::select! {
        served = axum::serve(listener, routes.into_make_service_with_connect_info::<Peer>()) => Ok(served?),
        shown = story(address, demo) => shown,
    }
}

async fn demonstrate() -> Result<(), Box<dyn Error>> {
    by_tonic(Some("Behind tonic's own server, 2 saved up and 2 a second for each client:")).await?;
    by_listener(Some("\nThe same behind a listener that limits connections:")).await
}

/// In a demonstration a client that tries it, else only where it is.
async fn story(address: SocketAddr, demo: Option<&str>) -> Result<(), Box<dyn Error>> {
    let Some(title) = demo else {
        println!(
            "Serving shop.Shop/Buy on {address}, plaintext. Try it with any gRPC client:\n  \
             grpcurl -plaintext -import-path examples/tonic-service -proto shop.proto -d '{{\"goods_id\": 7}}' \
             {address} shop.Shop/Buy"
        );
        return std::future::pending().await;
    };
    println!("{title}");
    let mut client = Client::connect(address).await?;
    let mut orders = 0;
    let refused = loop {
        match client.buy(7).await {
            Ok(number) => {
                println!("  OK: order {number}");
                orders = number;
            }
            Err(status) => break status,
        }
    };
    println!("  {:?}: {}", refused.code(), refused.message());
    let told = client::told(&refused)?;
    println!("  RetryInfo says {} ms; the client comes back then:", told.as_millis());
    tokio::time::sleep(told).await;
    let number = client.buy(7).await?;
    println!("  OK: order {number}");
    if number == orders + 1 { Ok(()) } else { Err("a refused order must not have a number".into()) }
}
