//! TLS on the listener's own connections: the guard finds the peer.

use crate::balancers::{assert_each_has_its_own, shop};
use crate::support::Server;
use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use testkit::servers::{Front, Haproxy, TlsFiles};
use tidegate::http::ClientIp;
use tidegate::listener::{Connection, Listener};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

fn acceptor() -> TlsAcceptor {
    let files = TlsFiles::make();
    let certificate = CertificateDer::from_pem_slice(files.server_cert.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(files.server_key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Each handshake in a task of its own: a slow one holds up nobody.
async fn serve(mut listener: Listener, acceptor: TlsAcceptor, app: Router) {
    loop {
        let connection = listener.accept().await;
        tokio::spawn(converse(connection, acceptor.clone(), app.clone()));
    }
}

async fn converse(connection: Connection, acceptor: TlsAcceptor, app: Router) {
    let peer = connection.peer();
    let Ok(stream) = acceptor.accept(connection).await else { return };
    // Both where the guard looks for it, and where the handler does.
    let app = app.layer(Extension(axum::extract::ConnectInfo(peer)));
    let server = auto::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app)).await;
}

#[test]
fn clients_over_tls_are_counted_by_their_addresses() {
    let server =
        Server::serving("127.0.0.1:0", |listener| serve(listener, acceptor(), shop(ClientIp::peer())));
    assert_each_has_its_own(&format!("https://{}/", server.address), &["--insecure", "--http1.1"]);
}

#[test]
fn the_proxy_header_comes_before_tls() {
    let server = Server::serving("127.0.0.1:0", |listener| {
        serve(listener.proxy_protocol(["loopback"]).unwrap(), acceptor(), shop(ClientIp::peer()))
    });
    // It passes the bytes of TLS on as they are.
    let haproxy = Haproxy::start(Front::Ipv4, server.address, "send-proxy-v2");
    assert_each_has_its_own(&format!("https://{}/", haproxy.addr()), &["--insecure", "--http1.1"]);
    assert_eq!(server.stats.bad_headers(), 0);
}
