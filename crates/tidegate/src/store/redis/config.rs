//! How Redis is reached, and what happens when it is not.

use crate::{Limit, LimitError};
use redis::{ClientTlsConfig, ConnectionInfo, IntoConnectionInfo, TlsCertificates};
use std::fmt;
use std::time::Duration;

/// How Redis is reached: alone, by Sentinel, or as a Cluster.
///
/// URLs are `redis://[user[:password]@]host[:port][/db]`, or `rediss://` for TLS.
/// Nothing is connected until the limiter is built, and a limiter can be built while
/// Redis is away.
///
/// ```no_run
/// use tidegate::{Limiter, Redis};
///
/// let limiter = Limiter::builder().redis(Redis::at("redis://127.0.0.1:6379")?).build();
/// let gate = limiter.gate("checkout", "1000/s")?;
/// # async fn serve(gate: tidegate::Gate) {
/// let decision = gate.check_async("goods:7").await;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Redis {
    pub(crate) deployment: Deployment,
    pub(crate) prefix: String,
    pub(crate) deadline: Duration,
    pub(crate) nodes: Option<u32>,
    pub(crate) tls: Option<TlsCertificates>,
}

#[derive(Clone)]
pub(crate) enum Deployment {
    Single(ConnectionInfo),
    Sentinel { sentinels: Vec<ConnectionInfo>, master: String, login: Box<ConnectionInfo> },
    Cluster(Vec<ConnectionInfo>),
}

impl Deployment {
    /// Those that are asked first.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let infos = match self {
            Self::Single(info) => std::slice::from_ref(info),
            Self::Sentinel { sentinels: infos, .. } | Self::Cluster(infos) => infos,
        };
        infos.iter().map(|info| info.addr().to_string()).collect()
    }
}

/// What a gate has only in Redis.
#[derive(Clone, Debug)]
pub(crate) struct RedisGateOptions {
    pub(crate) fallback: Fallback,
    /// What Redis has denied is denied here, until it could be otherwise.
    pub(crate) caches_denials: bool,
    /// Something may be refunded, on some node.
    pub(crate) has_refunds: bool,
    pub(crate) coalesces: bool,
    pub(crate) lease: Option<Duration>,
    pub(crate) slot_lease: Duration,
}

impl Default for RedisGateOptions {
    fn default() -> Self {
        Self {
            fallback: Fallback::Local,
            caches_denials: true,
            has_refunds: true,
            coalesces: true,
            lease: None,
            slot_lease: Duration::from_secs(10),
        }
    }
}

/// What a gate does while the store does not answer.
///
/// ```
/// use tidegate::{Fallback, GateOptions};
///
/// // at most 100 a second on each node, for all keys together
/// let search = GateOptions::new().fallback(Fallback::allow("100/s")?);
/// // nobody: better closed than over the limit
/// let payments = GateOptions::new().fallback(Fallback::Deny);
/// # let _ = (search, payments);
/// # Ok::<(), tidegate::LimitError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fallback {
    /// Each node goes on with its share of the limit, in memory: the limit divided by
    /// the number of nodes last known to be alive, but at least one unit at a time. Each
    /// key starts with one request, not with a burst; the rest flows in at the share's rate.
    /// So above what Redis let start and what flows in, at most one request a key starts on
    /// each node. It denies, as [`Denial::Unavailable`](crate::Denial::Unavailable), where
    /// there are fewer slots (`3 concurrent`) than nodes, where a request costs more than
    /// its share holds, and where the number of nodes is not known: see [`Redis::nodes`].
    #[default]
    Local,
    /// Everything is denied, as [`Denial::Unavailable`](crate::Denial::Unavailable).
    Deny,
    /// Everything is let through up to `cap` on each node, for all keys together; what
    /// is above is denied as [`Denial::Unavailable`](crate::Denial::Unavailable).
    Allow {
        /// What one node lets through at most.
        cap: Limit,
    },
}

impl Fallback {
    /// [`Fallback::Allow`] with the cap as text.
    ///
    /// # Errors
    /// If the text is not a limit.
    pub fn allow<L: TryInto<Limit, Error: Into<LimitError>>>(cap: L) -> Result<Self, LimitError> {
        Ok(Self::Allow { cap: cap.try_into().map_err(Into::into)? })
    }
}

/// Why an address or a prefix of Redis cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RedisError(String);

const DEADLINE: Duration = Duration::from_millis(20);
const PREFIX_MAX: usize = 32;

impl Redis {
    /// One server.
    ///
    /// # Errors
    /// If the URL is not one.
    pub fn at(url: &str) -> Result<Self, RedisError> {
        Ok(Self::new(Deployment::Single(info(url)?)))
    }

    /// A Cluster, of which these nodes are known. The others are found.
    ///
    /// # Errors
    /// If there is none, or one is not a URL.
    pub fn cluster<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self, RedisError> {
        Ok(Self::new(Deployment::Cluster(infos(urls, "Redis::cluster")?)))
    }

    /// The master that these sentinels name. `login` is a URL with the scheme, the user,
    /// the password and the database of the master; its host does not matter.
    ///
    /// All sentinels are asked, again and again, and a fail-over is followed while connected:
    /// name all of them.
    ///
    /// # Errors
    /// If there is no sentinel, or one is not a URL.
    pub fn sentinel<U: AsRef<str>>(
        sentinels: impl IntoIterator<Item = U>,
        master: &str,
        login: &str,
    ) -> Result<Self, RedisError> {
        let sentinels = infos(sentinels, "Redis::sentinel")?;
        let login = Box::new(info(login)?);
        Ok(Self::new(Deployment::Sentinel { sentinels, master: master.into(), login }))
    }

    fn new(deployment: Deployment) -> Self {
        Self { deployment, prefix: "tg".into(), deadline: DEADLINE, nodes: None, tls: None }
    }

    /// What the names of all keys start with. Default: `tg`. Limiters with different
    /// prefixes share nothing.
    ///
    /// # Errors
    /// If it is empty, longer than 32, or not made of letters, digits or any of `._-/`.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, RedisError> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        if prefix.is_empty() || prefix.len() > PREFIX_MAX || !prefix.chars().all(is_part) {
            return Err(RedisError(format!(
                "`{}` is not a prefix: write 1 to 32 letters, digits or any of `._-/`, for example `shop`",
                crate::Key::new(prefix)
            )));
        }
        self.prefix = prefix.into();
        Ok(self)
    }

    /// How long a decision waits for Redis before the gate's [`Fallback`] decides.
    /// Default: 20 ms.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline.clamp(Duration::from_millis(1), Duration::from_secs(60));
        self
    }

    /// How many nodes share the limits, for [`Fallback::Local`] before Redis was ever
    /// reached. Later it is counted by heartbeat.
    #[must_use]
    pub fn nodes(mut self, nodes: u32) -> Self {
        self.nodes = Some(nodes.max(1));
        self
    }

    /// Trusts this certificate authority (PEM) for `rediss://`, instead of the usual ones.
    #[must_use]
    pub fn tls_authority(mut self, pem: &[u8]) -> Self {
        self.certificates().root_cert = Some(pem.to_vec());
        self
    }

    /// Presents this certificate with its key (PEM) to a server that asks for one.
    #[must_use]
    pub fn tls_client(mut self, certificate: &[u8], key: &[u8]) -> Self {
        let client_tls = ClientTlsConfig { client_cert: certificate.to_vec(), client_key: key.to_vec() };
        self.certificates().client_tls = Some(client_tls);
        self
    }

    fn certificates(&mut self) -> &mut TlsCertificates {
        self.tls.get_or_insert(TlsCertificates { client_tls: None, root_cert: None })
    }
}

/// Without the passwords.
impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.deployment.addresses();
        f.debug_struct("Redis").field("at", &addresses).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

fn info(url: &str) -> Result<ConnectionInfo, RedisError> {
    url.into_connection_info().map_err(|error| {
        // The URL itself may hold a password.
        let why = error.detail().map_or_else(|| error.to_string(), ToString::to_string);
        RedisError(format!("not a Redis URL ({why}): write for example `redis://127.0.0.1:6379`"))
    })
}

fn infos<U: AsRef<str>>(
    urls: impl IntoIterator<Item = U>,
    what: &str,
) -> Result<Vec<ConnectionInfo>, RedisError> {
    let infos = urls.into_iter().map(|url| info(url.as_ref())).collect::<Result<Vec<_>, _>>()?;
    if infos.is_empty() {
        return Err(RedisError(format!(
            "{what} needs at least one URL, for example `redis://127.0.0.1:6379`"
        )));
    }
    Ok(infos)
}
