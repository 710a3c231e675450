//! An axum service behind a guard: two routes, two rules, and limited connections.
//!
//! `cargo run -p axum-service` serves on a free port of 127.0.0.1 and says how to try it;
//! `cargo run -p axum-service -- 127.0.0.1:8080` on that address;
//! `cargo run -p axum-service -- --demo` tries it by itself and ends.

mod app;
mod demo;
mod sign_in;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use tidegate::Limiter;
use tidegate::http::Peer;
use tidegate::listener::Listener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ran = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => serve("127.0.0.1:0").await,
        ["--demo"] => demonstrate().await,
        [address] if address.parse::<SocketAddr>().is_ok() => serve(address).await,
        _ => {
            eprintln!("usage: axum-service [ADDRESS:PORT]   serves, and says how to try it");
            eprintln!("       axum-service --demo           tries it by itself and ends");
            return ExitCode::from(2);
        }
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("axum-service: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Listens with at most 1,000 connections in all, and 100 of one peer.
///
/// The peer of a connection through a proxy is the proxy, so it must be allowed as many as
/// it keeps open. A proxy that speaks the PROXY protocol names its client instead.
async fn listen(limiter: &Limiter, address: &str) -> Result<Listener, Box<dyn Error>> {
    Ok(Listener::bind(address)
        .await?
        .connections(limiter.gate("connections", "1000 concurrent")?)?
        .connections_by_client(limiter.gate("connections.client", "100 concurrent")?)?)
}

async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new();
    let listener = listen(&limiter, address).await?;
    println!("{}", how_to_try(listener.local_addr()?));
    let service = app::router(&limiter)?.into_make_service_with_connect_info::<Peer>();
    Ok(axum::serve(listener, service).await?)
}

fn how_to_try(at: SocketAddr) -> String {
    format!(
        "Serving on http://{at}. Try:\n\
         \n\
         Look at goods, 3 at once and one a second for each client:\n\
         \x20 for i in 1 2 3 4; do curl -i http://{at}/goods/7; done\n\
         As another client, told by a proxy (connections from this machine are trusted to be one):\n\
         \x20 curl -i -H 'X-Forwarded-For: 203.0.113.9' http://{at}/goods/7\n\
         Order, one each half second and two at a time for each user; orders wait for their turn:\n\
         \x20 curl -i -X POST -H 'Authorization: Bearer ann-secret' http://{at}/goods/7/order\n\
         Come back when it says so:\n\
         \x20 curl -i --retry 3 http://{at}/goods/7\n\
         What the guard does now:\n\
         \x20 curl http://{at}/guard\n"
    )
}

async fn demonstrate() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new();
    let listener = listen(&limiter, "127.0.0.1:0").await?;
    let (address, stats) = (listener.local_addr()?, listener.stats());
    let service = app::router(&limiter)?.into_make_service_with_connect_info::<Peer>();
    tokio::select! {
        served = axum::serve(listener, service) => Ok(served?),
        shown = demo::run(address, &stats) => shown,
    }
}
