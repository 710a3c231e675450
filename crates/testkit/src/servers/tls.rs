//! Certificates for one test: an authority, the server's, and a client's.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::fs;
use std::path::{Path, PathBuf};

/// What a client needs to be let in, and its server to prove itself, as PEM texts.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The authority that signed the server's certificate.
    pub ca: String,
    /// The client's certificate, which the server demands.
    pub client_cert: String,
    /// Its key.
    pub client_key: String,
    /// The server's certificate.
    pub server_cert: String,
    /// Its key.
    pub server_key: String,
}

impl TlsFiles {
    /// Makes a new authority and what it signs. The server's certificate is good for
    /// `127.0.0.1` and `localhost`.
    ///
    /// # Panics
    /// Where no keys can be made.
    pub fn make() -> Self {
        let mut ca = params("Tidegate's tests", &[]);
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key can be made");
        let ca_pem = ca.self_signed(&key).expect("an authority can sign itself").pem();
        let issuer = Issuer::new(ca, key);
        let signed = |name: &str, hosts: &[&str], usage| {
            let mut params = params(name, hosts);
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate().expect("a key can be made");
            let cert = params.signed_by(&key, &issuer).expect("an authority can sign others");
            (cert.pem(), key.serialize_pem())
        };
        let hosts = ["127.0.0.1", "localhost"];
        let (server_cert, server_key) = signed("server", &hosts, ExtendedKeyUsagePurpose::ServerAuth);
        let (client_cert, client_key) = signed("client", &[], ExtendedKeyUsagePurpose::ClientAuth);
        Self { ca: ca_pem, client_cert, client_key, server_cert, server_key }
    }

    /// Writes the server's certificate and key into its folder, and tells where they are.
    pub(super) fn install_server(&self, folder: &Path) -> [PathBuf; 2] {
        let files = [("server.pem", &self.server_cert), ("server.key", &self.server_key)];
        files.map(|(name, text)| {
            let path = folder.join(name);
            fs::write(&path, text).expect("the server's folder can be written to");
            path
        })
    }

    /// Writes the server's files into its folder, and gives the arguments that name them.
    pub(super) fn install(&self, folder: &Path) -> Vec<String> {
        let files = [
            ("--tls-ca-cert-file", "ca.pem", &self.ca),
            ("--tls-cert-file", "server.pem", &self.server_cert),
            ("--tls-key-file", "server.key", &self.server_key),
        ];
        let mut args = vec!["--tls-auth-clients".to_owned(), "yes".to_owned()];
        for (option, name, text) in files {
            let path = folder.join(name);
            fs::write(&path, text).expect("the server's folder can be written to");
            args.extend([option.to_owned(), path.display().to_string()]);
        }
        args
    }
}

/// The names have to differ: a certificate whose issuer has its own name counts as self-signed.
fn params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(hosts).expect("the hosts are well-formed");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
