//! Encryption on the way to the server, as `sslmode` says it: by rustls, with ring.
//!
//! As libpq does: `prefer` and `require` encrypt, and believe whoever answers; `verify-ca` asks
//! for a certificate that a known authority signed, and `verify-full` for one with the host's
//! name in it. Deliberately absent: certificates of clients, and channel binding.

use super::address::Trust;
use crate::JournalError;
use futures_util::future::BoxFuture;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// Makes encrypted connections.
#[derive(Clone)]
pub(super) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Believes whom `trust` says.
    pub(super) fn new(trust: &Trust) -> Result<Self, JournalError> {
        let provider = Arc::new(ring::default_provider());
        let failed = |error: Error| JournalError::Open(format!("TLS cannot be set up: {error}"));
        let verifier: Arc<dyn ServerCertVerifier> = match trust {
            Trust::Anyone => Arc::new(AnyName { authorities: None, provider: provider.clone() }),
            Trust::Signed { root, is_named } => {
                let roots = Arc::new(roots(root.as_deref())?);
                let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
                let verifier =
                    verifier.map_err(|error| JournalError::Open(format!("TLS cannot be set up: {error}")))?;
                if *is_named {
                    verifier
                } else {
                    Arc::new(AnyName { authorities: Some(verifier), provider: provider.clone() })
                }
            }
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?;
        let mut config = config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

/// The authorities in a file, or else those of the system.
fn roots(file: Option<&Path>) -> Result<RootCertStore, JournalError> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let text = "this system knows no authorities for TLS: name yours by sslrootcert=FILE";
            return Err(JournalError::Open(text.to_owned()));
        }
        return Ok(roots);
    };
    let wrong = |what: String| JournalError::Open(format!("sslrootcert={}: {what}", file.display()));
    for cert in CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))? {
        let cert = cert.map_err(|error| wrong(error.to_string()))?;
        roots.add(cert).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() { Err(wrong("no certificate in it".to_owned())) } else { Ok(roots) }
}

/// Does not ask for the name of the host: believes whom one of the authorities signed, or, without
/// any, whoever has the key of the certificate that it shows.
#[derive(Debug)]
struct AnyName {
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        cert: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        match authorities.verify_server_cert(cert, others, name, ocsp, now) {
            // The name is looked at last, after the signature and the dates.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Encrypted<S>;
    type TlsConnect = Handshake;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, InvalidDnsNameError> {
        // A socket in a folder has no host. A server does not offer TLS there.
        let host = if host.is_empty() { "localhost" } else { host };
        Ok(Handshake { config: self.0.clone(), host: ServerName::try_from(host)?.to_owned() })
    }
}

pub(super) struct Handshake {
    config: Arc<ClientConfig>,
    host: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Encrypted<S>>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let stream = TlsConnector::from(self.config).connect(self.host, stream).await?;
            Ok(Encrypted(Box::new(stream)))
        })
    }
}

pub(super) struct Encrypted<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
