//! Encrypted, and only for those whom its authority knows.

use super::{bulk, ok};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::net::TcpStream;
use std::sync::Arc;
use testkit::servers::{Conn, RedisServer, TlsFiles};

/// Connects as `host`, with the client's certificate or without.
fn encrypted(redis: &RedisServer, files: &TlsFiles, host: &str, with_cert: bool) -> Conn {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(files.ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots);
    let config = if with_cert {
        let cert = CertificateDer::from_pem_slice(files.client_cert.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(files.client_key.as_bytes()).unwrap();
        config.with_client_auth_cert(vec![cert], key).unwrap()
    } else {
        config.with_no_client_auth()
    };
    let host = ServerName::try_from(host.to_owned()).unwrap();
    let client = ClientConnection::new(Arc::new(config), host).unwrap();
    Conn::over(StreamOwned::new(client, TcpStream::connect(redis.addr()).unwrap()))
}

#[test]
fn a_client_with_a_certificate_is_let_in_under_both_names() {
    let redis = RedisServer::with_tls();
    assert_eq!(redis.url(), format!("rediss://{}", redis.addr()));
    redis.cmd(&["SET", "key", "value"]).accepted();
    for host in ["127.0.0.1", "localhost"] {
        assert_eq!(encrypted(&redis, redis.tls(), host, true).cmd(&["GET", "key"]), bulk("value"));
    }
    redis.restart();
    assert_eq!(encrypted(&redis, redis.tls(), "localhost", true).cmd(&["SET", "key", "value"]), ok());
}

#[test]
fn everybody_else_is_turned_away() {
    let (redis, other) = (RedisServer::with_tls(), RedisServer::with_tls());
    let refused = |mut conn: Conn| conn.try_cmd(&["PING"]).is_err();
    assert!(refused(Conn::open(&redis.addr()).unwrap()), "in the clear");
    assert!(refused(encrypted(&redis, redis.tls(), "localhost", false)), "without a certificate");
    assert!(refused(encrypted(&redis, redis.tls(), "elsewhere", true)), "under a wrong name");
    assert!(refused(encrypted(&redis, other.tls(), "localhost", true)), "by another authority");
}
