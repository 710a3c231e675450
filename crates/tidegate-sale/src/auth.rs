//! Who a buyer is, and who an operator: never by an open parameter.

use crate::goods::UserId;
use crate::refusal::Refusal;
use crate::secret::{Secret, SignedTokens};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName};
use futures_util::future::{BoxFuture, FutureExt as _, ready};
use std::fmt;
use std::net::IpAddr;
use tidegate::http::{ClientIp, ClientIpError};

/// Says who a buyer is.
///
/// ```
/// use axum::http::HeaderMap;
/// use std::net::IpAddr;
/// use tidegate_sale::{Authenticator, Refusal, UserId};
///
/// /// Asks the shop's own session service.
/// struct Sessions;
///
/// impl Authenticator for Sessions {
///     fn user<'a>(
///         &'a self,
///         _peer: Option<IpAddr>,
///         headers: &'a HeaderMap,
///     ) -> futures_util::future::BoxFuture<'a, Result<UserId, Refusal>> {
///         Box::pin(async move {
///             let _cookie = headers.get("cookie").ok_or(Refusal::NotSignedIn)?;
///             // … a look-up that is awaited; `Refusal::Busy` if it does not answer.
///             "user-42".parse().map_err(|_| Refusal::NotSignedIn)
///         })
///     }
/// }
/// ```
pub trait Authenticator: Send + Sync + 'static {
    /// Who sends these headers from the other end of the connection.
    ///
    /// The error is what the buyer is told: [`Refusal::NotSignedIn`], or
    /// [`Refusal::Busy`] if whom this asks does not answer.
    fn user<'a>(
        &'a self,
        peer: Option<IpAddr>,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<UserId, Refusal>>;
}

/// `Authorization: Bearer TOKEN`, checked without asking anybody.
impl Authenticator for SignedTokens {
    fn user<'a>(
        &'a self,
        _peer: Option<IpAddr>,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<UserId, Refusal>> {
        let user = bearer(headers).and_then(|token| self.verify(token));
        ready(user.ok_or(Refusal::NotSignedIn)).boxed()
    }
}

/// The token of `Authorization: Bearer TOKEN`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = only(headers, &AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// A field that stands once, as text: of two, nobody knows which one somebody else has read.
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => line.to_str().ok(),
        _ => None,
    }
}

/// A header that a trusted proxy sets to the user's id, once it has signed them in.
///
/// Whoever else sends it is not signed in. The proxy must overwrite what its clients send.
#[derive(Clone, Debug)]
pub struct ProxyHeader {
    name: HeaderName,
    trusted: ClientIp,
}

/// Why a header cannot say who a user is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyHeaderError {
    /// The name is not one.
    #[error("`{0}` is not the name of a header: write for example `x-user`")]
    Name(String),
    /// The proxies cannot be read, or there are none.
    #[error(transparent)]
    Proxies(#[from] ClientIpError),
}

impl ProxyHeader {
    /// This header, believed from these networks only (written as for
    /// [`ClientIp::behind`]).
    ///
    /// # Errors
    /// If the name is not a header's, a text is not a network, or nobody is trusted.
    pub fn new<N: AsRef<str>>(
        name: &str,
        proxies: impl IntoIterator<Item = N>,
    ) -> Result<Self, ProxyHeaderError> {
        let shown = || ProxyHeaderError::Name(tidegate::Key::new(name).to_string());
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| shown())?;
        Ok(Self { name, trusted: ClientIp::behind(proxies)? })
    }
}

impl Authenticator for ProxyHeader {
    fn user<'a>(
        &'a self,
        peer: Option<IpAddr>,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<UserId, Refusal>> {
        let is_trusted = peer.is_some_and(|peer| self.trusted.is_trusted(peer));
        let user = only(headers, &self.name).filter(|_| is_trusted).and_then(|user| user.parse().ok());
        ready(user.ok_or(Refusal::NotSignedIn)).boxed()
    }
}

const ADMIN: &[u8] = b"tidegate admin v1\0";

/// The operators' token. What is kept of it is a signature, so that it is compared in a time
/// that tells nothing, and can be logged by nobody.
#[derive(Clone)]
pub struct AdminToken {
    key: Secret,
    mac: [u8; 32],
}

/// A token that can be guessed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminTokenError {
    /// It is short, long, or cannot stand in a header.
    #[error(
        "the admin token: 16 to 256 visible ASCII characters, such as what `openssl rand -hex 16` prints"
    )]
    Text,
    /// The system has no randomness to give.
    #[error("the system has no randomness to give: {0}")]
    Random(String),
}

impl AdminToken {
    /// This token.
    ///
    /// # Errors
    /// If it has less than 16 characters, more than 256, or others than visible ASCII.
    pub fn new(token: &str) -> Result<Self, AdminTokenError> {
        if !(16..=256).contains(&token.len()) || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(AdminTokenError::Text);
        }
        let key = Secret::random().map_err(|error| AdminTokenError::Random(error.to_string()))?;
        let mac = key.mac(&[ADMIN, token.as_bytes()]);
        Ok(Self { key, mac })
    }

    /// Whether this is it.
    pub fn is(&self, token: &str) -> bool {
        self.key.has_signed(&[ADMIN, token.as_bytes()], &self.mac)
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn user(by: &dyn Authenticator, peer: &str, fields: &[(&'static str, &str)]) -> Option<String> {
        let found = by.user(peer.parse().ok(), &headers(fields)).now_or_never().unwrap();
        assert!(found.is_ok() || found == Err(Refusal::NotSignedIn));
        found.ok().map(|user| user.to_string())
    }

    #[test]
    fn a_bearer_token_stands_once_and_is_signed() {
        let tokens = SignedTokens::new(&Secret::random().unwrap());
        let token = tokens.issue(&"ann".parse().unwrap(), std::time::Duration::from_secs(60));
        let bearer = format!("Bearer {token}");
        let found = |fields: &[(&'static str, &str)]| user(&tokens, "192.0.2.1", fields);
        assert_eq!(found(&[("authorization", &bearer)]).as_deref(), Some("ann"));
        assert_eq!(found(&[("authorization", &bearer.replace("Bearer", "bEARER "))]).as_deref(), Some("ann"));
        for fields in [
            &[][..],
            &[("authorization", "Bearer")],
            &[("authorization", &token)],
            &[("authorization", &format!("Basic {token}"))],
            &[("authorization", &format!("{bearer}x"))],
            &[("authorization", &bearer), ("authorization", &bearer)],
        ] {
            assert_eq!(found(fields), None, "{fields:?}");
        }
    }

    #[test]
    fn a_proxys_word_counts_and_nobody_elses() {
        let proxy = ProxyHeader::new("x-user", ["10.0.0.0/8"]).unwrap();
        assert_eq!(user(&proxy, "10.1.2.3", &[("x-user", "ann")]).as_deref(), Some("ann"));
        assert_eq!(user(&proxy, "::ffff:10.1.2.3", &[("x-user", "ann")]).as_deref(), Some("ann"));
        assert_eq!(user(&proxy, "192.0.2.1", &[("x-user", "ann")]), None, "not the proxy");
        assert_eq!(user(&proxy, "", &[("x-user", "ann")]), None, "nobody knows who");
        assert_eq!(user(&proxy, "10.1.2.3", &[("x-user", "a b")]), None);
        assert_eq!(user(&proxy, "10.1.2.3", &[("x-user", "ann"), ("x-user", "bob")]), None);
        assert_eq!(user(&proxy, "10.1.2.3", &[]), None);
        assert!(ProxyHeader::new("x user", ["10.0.0.0/8"]).unwrap_err().to_string().contains("`x-user`"));
        assert!(ProxyHeader::new::<&str>("x-user", []).is_err());
        assert!(ProxyHeader::new("x-user", ["10.0.0.0/33"]).is_err());
    }

    #[test]
    fn an_admin_token_is_long_and_exact_and_shown_to_nobody() {
        let admin = AdminToken::new("0123456789abcdef").unwrap();
        assert!(admin.is("0123456789abcdef"));
        for wrong in ["", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef0"] {
            assert!(!admin.is(wrong), "{wrong}");
        }
        assert_eq!(format!("{admin:?}"), "AdminToken(…)");
        for bad in ["", "short", "with a blank inside", "0123456789abcde\n", &"x".repeat(257)] {
            assert_eq!(AdminToken::new(bad).unwrap_err(), AdminTokenError::Text, "{bad:?}");
        }
    }
}
