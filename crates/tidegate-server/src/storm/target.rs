//! Where the sale is, and whether a storm may go there.

use crate::exit::Usage;
use anyhow::Context as _;
use std::net::{IpAddr, SocketAddr};

/// An address as it was given, `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Host and port as they stand in the `host` field.
    pub(super) authority: String,
    host: String,
    port: u16,
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WRITE: &str = "write it as http://127.0.0.1:8080";
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(("https", _)) => return Err(format!("the storm speaks plain HTTP only; {WRITE}")),
            Some(_) => return Err(format!("this is no address of a sale; {WRITE}")),
            None => text,
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if authority.is_empty() || !authority.chars().all(is_part) {
            return Err(format!("a host and a port is all there can be; {WRITE}"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| format!("`{port}` is no port; {WRITE}"))?)
            }
            _ => (authority, 80),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(format!("the host is missing; {WRITE}"));
        }
        Ok(Self { authority: authority.to_owned(), host: host.to_owned(), port })
    }
}

impl Target {
    /// The address to connect to. A name may stand for several: none of them may be elsewhere,
    /// unless that is allowed.
    pub(super) async fn resolve(&self, may_be_remote: bool) -> anyhow::Result<SocketAddr> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let found: Vec<_> = found.with_context(|| format!("the host {}", self.host))?.collect();
        let remote = found.iter().find(|address| !is_loopback(address.ip()));
        if let Some(remote) = remote.filter(|_| !may_be_remote) {
            let ip = remote.ip();
            anyhow::bail!(Usage(format!(
                "{ip} is not this machine, and a storm takes down what is not built for it: \
                 if it is yours, add --allow-remote"
            )));
        }
        // A sale on this machine listens on 127.0.0.1 more often than on ::1.
        let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
        first.copied().with_context(|| format!("the host {} has no address", self.host))
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let parts = |text: &str| text.parse::<Target>().map(|target| (target.host, target.port));
        assert_eq!(parts("http://127.0.0.1:8080"), Ok(("127.0.0.1".to_owned(), 8080)));
        assert_eq!(parts("localhost/"), Ok(("localhost".to_owned(), 80)));
        assert_eq!(parts("http://[::1]:81"), Ok(("::1".to_owned(), 81)));
        assert_eq!(parts("http://[::1]"), Ok(("::1".to_owned(), 80)));
        for bad in [
            "",
            "http://",
            "https://a",
            "ftp://a",
            "http://a/b",
            "http://u@a",
            "a:b",
            "a:70000",
            ":80",
            "a\r\nb",
        ] {
            assert!(parts(bad).unwrap_err().contains("http://127.0.0.1:8080"), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn only_this_machine_unless_allowed() {
        for here in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "localhost:1"] {
            here.parse::<Target>().unwrap().resolve(false).await.unwrap();
        }
        for elsewhere in ["192.0.2.1:1", "0.0.0.0:1", "[::]:1", "[2001:db8::1]:1", "[::ffff:192.0.2.1]:1"] {
            let target: Target = elsewhere.parse().unwrap();
            let refused = target.resolve(false).await.unwrap_err();
            assert!(refused.is::<Usage>() && refused.to_string().contains("--allow-remote"), "{refused}");
            target.resolve(true).await.unwrap();
        }
    }
}
