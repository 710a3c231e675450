//! The connection to Redis. A new one learns which run of which server answers, and every
//! script names the run that it means: a server that was restarted, or took over, may have
//! forgotten, and sells nothing before it is loaded again.

use super::db::fault;
use crate::engine::Fault;
use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, FromRedisValue, IntoConnectionInfo, RedisResult, ScriptInvocation,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// What a server that is well never needs, `appendfsync always` included.
const REDIS_MAX: Duration = Duration::from_secs(2);

/// Every so often it is asked again who it is: roles and settings change while a connection
/// lives.
const AGAIN: Duration = Duration::from_secs(2);

/// The scripts, constant.
pub(super) struct Scripts {
    pub(super) reserve: redis::Script,
    pub(super) look: redis::Script,
    pub(super) give: redis::Script,
    pub(super) tell: redis::Script,
    pub(super) load: redis::Script,
    pub(super) sweep: redis::Script,
    pub(super) forget: redis::Script,
}

impl Scripts {
    fn new() -> Self {
        Self {
            reserve: redis::Script::new(include_str!("lua/reserve.lua")),
            look: redis::Script::new(include_str!("lua/look.lua")),
            give: redis::Script::new(include_str!("lua/give.lua")),
            tell: redis::Script::new(include_str!("lua/tell.lua")),
            load: redis::Script::new(include_str!("lua/load.lua")),
            sweep: redis::Script::new(include_str!("lua/sweep.lua")),
            forget: redis::Script::new(include_str!("lua/forget.lua")),
        }
    }
}

/// A connection that has answered.
pub(super) struct Live {
    connection: MultiplexedConnection,
    /// Which run of which server it is.
    pub(super) run: String,
}

pub(super) struct Link {
    client: Client,
    live: ArcSwapOption<Live>,
    broken: Notify,
    /// A new connection is there: what it holds has to be looked at.
    pub(super) connected: Notify,
    /// It is there or gone, or another run answers.
    pub(super) changed: Notify,
    pub(super) scripts: Scripts,
}

impl Link {
    pub(super) fn new(url: &str) -> Result<Self, Fault> {
        // Its own error may show the password.
        let wrong = || fault("`redis` is no address: write redis://user:password@host:6379");
        let info = url.into_connection_info().map_err(|_| wrong())?;
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        Ok(Self {
            client: Client::open(info).map_err(|_| wrong())?,
            live: ArcSwapOption::empty(),
            broken: Notify::new(),
            connected: Notify::new(),
            changed: Notify::new(),
            scripts: Scripts::new(),
        })
    }

    /// Where it is: `host:port`, without user and password.
    pub(super) fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    pub(super) fn live(&self) -> Result<Arc<Live>, Fault> {
        self.live.load_full().ok_or_else(|| fault("Redis is not there"))
    }

    /// Runs a script on this very connection.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        live: &Arc<Live>,
        call: &ScriptInvocation<'_>,
    ) -> Result<T, Fault> {
        let mut connection = live.connection.clone();
        self.bounded(live, call.invoke_async(&mut connection)).await
    }

    pub(super) async fn ask<T: FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, Fault> {
        let live = self.live()?;
        let mut connection = live.connection.clone();
        self.bounded(&live, command.query_async(&mut connection)).await
    }

    async fn bounded<T>(
        &self,
        live: &Arc<Live>,
        asked: impl Future<Output = RedisResult<T>>,
    ) -> Result<T, Fault> {
        let error = match tokio::time::timeout(REDIS_MAX, asked).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => format!("Redis: {error}"),
            Err(_) => format!("Redis: no answer within {REDIS_MAX:?}"),
        };
        self.lose(live);
        Err(fault(error))
    }

    /// Whatever went wrong: the next connection finds out who answers there now.
    fn lose(&self, live: &Arc<Live>) {
        let is_this = self.live.load().as_ref().is_some_and(|now| Arc::ptr_eq(now, live));
        if is_this {
            self.live.store(None);
            self.broken.notify_one();
            self.changed.notify_one();
        }
    }

    /// Keeps one connection up. Ends with its task.
    pub(super) async fn maintain(&self) {
        let mut wait = Duration::from_millis(20);
        loop {
            match tokio::time::timeout(REDIS_MAX, self.open()).await {
                Ok(Ok(live)) => {
                    tracing::info!(run = live.run, "Redis answers");
                    let live = Arc::new(live);
                    self.live.store(Some(Arc::clone(&live)));
                    self.connected.notify_one();
                    self.changed.notify_one();
                    wait = Duration::from_millis(20);
                    self.watch(&live).await;
                }
                Ok(Err(error)) => tracing::warn!(error = error.what, "Redis cannot be reached"),
                Err(_) => tracing::warn!("Redis does not answer"),
            }
            tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64())).await;
            wait = (wait * 2).min(Duration::from_secs(1));
        }
    }

    /// Until it is lost.
    async fn watch(&self, live: &Arc<Live>) {
        while tokio::time::timeout(AGAIN, self.broken.notified()).await.is_err() {
            let mut connection = live.connection.clone();
            let why = match tokio::time::timeout(REDIS_MAX, inspect(&mut connection)).await {
                Ok(Ok(run)) if run == live.run => continue,
                Ok(Ok(_)) => "it is another run now".to_owned(),
                Ok(Err(error)) => error.what,
                Err(_) => "it does not answer".to_owned(),
            };
            tracing::warn!(why, "Redis is connected to anew");
            self.lose(live);
        }
    }

    /// Whether whoever connects now meets the same run. A connection may outlive that: its
    /// server got another replication id, or its name leads elsewhere by now. Two processes
    /// that mean different runs would load each other's stock away, again and again.
    pub(super) async fn confirm(&self, live: &Arc<Live>) -> Result<(), Fault> {
        let now = tokio::time::timeout(REDIS_MAX, self.open()).await;
        let now = now.unwrap_or_else(|_| Err(fault("Redis does not answer")))?;
        if now.run == live.run {
            return Ok(());
        }
        self.lose(live);
        Err(fault("another run of Redis answers by now"))
    }

    async fn open(&self) -> Result<Live, Fault> {
        let told = |error: redis::RedisError| fault(error.to_string());
        // Our own deadlines count, by call.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(REDIS_MAX)).set_response_timeout(None);
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(told)?;
        let run = inspect(&mut connection).await?;
        Ok(Live { connection, run })
    }

    /// Goods that have changed, as other processes say. None once the connection is gone.
    pub(super) async fn news(&self, channel: &str) -> Result<redis::aio::PubSubStream, Fault> {
        let subscribe = async {
            let mut pubsub = self.client.get_async_pubsub().await?;
            pubsub.subscribe(channel).await?;
            Ok(pubsub.into_on_message())
        };
        match tokio::time::timeout(REDIS_MAX, subscribe).await {
            Ok(stream) => stream.map_err(|error: redis::RedisError| fault(error.to_string())),
            Err(_) => Err(fault("no answer")),
        }
    }
}

/// Which run of which server answers, if it can be sold from.
async fn inspect(connection: &mut MultiplexedConnection) -> Result<String, Fault> {
    let info: RedisResult<String> = redis::cmd("INFO").query_async(connection).await;
    let info = info.map_err(|error| fault(error.to_string()))?;
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    if field("role") != Some("master") {
        return Err(fault("it is a replica, and takes no writes"));
    }
    if field("loading") != Some("0") {
        return Err(fault("it is still loading"));
    }
    // A server that was a replica meanwhile has the same run and another replication id.
    let (Some(run), Some(replid)) = (field("run_id"), field("master_replid")) else {
        return Err(fault("it does not tell which run it is"));
    };
    let run = format!("{run}:{replid}");
    let policy = field("maxmemory_policy").unwrap_or_default();
    // What has no expiry is what is sold: used paths, stock, orders.
    if field("maxmemory") != Some("0") && policy.starts_with("allkeys") {
        return Err(fault(format!(
            "it would evict used paths and stock (`maxmemory-policy {policy}`); set `noeviction`"
        )));
    }
    Ok(run)
}
