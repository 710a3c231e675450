//! One connection to one server, made ready: logged in, a master, the script known.

use super::config::{Way, moved};
use super::core::Core;
use super::stats::count;
use super::write::Call;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, RedisError, RedisResult, ServerErrorKind,
    Value,
};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

/// The one script, constant.
const SCRIPT: &str = include_str!("decide.lua");

pub(crate) struct Connection {
    connection: MultiplexedConnection,
    digest: Mutex<String>,
}

impl Connection {
    /// Connects to the server at `address`, or wherever the sentinels say that it is.
    pub(crate) async fn open(core: &Core, address: &str) -> Result<(Self, String), String> {
        let info = match &core.config.way {
            Way::Alone(info) => info.clone(),
            Way::Cluster(seeds) => at(&seeds[0], address)?,
            Way::Sentinel { sentinels, master, login } => {
                let (host, port) = ask_sentinels(core, sentinels, master).await?;
                moved(login, &host, port)
            }
        };
        let address = info.addr().to_string();
        let mut connection = plain(core, info).await.map_err(|error| explain(&error))?;
        let role: RedisResult<Value> = redis::cmd("ROLE").query_async(&mut connection).await;
        if let Ok(Value::Array(role)) = &role
            && role.first().is_some_and(|role| is_text(role, "slave"))
        {
            return Err("it is a replica, and takes no writes".into());
        }
        warn_of_eviction(&mut connection, &address).await;
        let digest = load(&mut connection).await.map_err(|error| explain(&error))?;
        Ok((Self { connection, digest: Mutex::new(digest) }, address))
    }

    /// Runs the script. A server that has forgotten it is told it again: then nothing
    /// was done, and asking again is safe.
    pub(crate) async fn call(&self, core: &Core, call: &Call, is_asking: bool) -> RedisResult<Value> {
        let mut connection = self.connection.clone();
        if is_asking {
            // Whatever comes next is let through, so it must be the call itself.
            let mut both = redis::pipe();
            both.add_command(redis::cmd("ASKING")).ignore();
            both.add_command(self.command("EVAL", SCRIPT, call));
            let values: Vec<Value> = both.query_async(&mut connection).await?;
            return values
                .into_iter()
                .next()
                .ok_or_else(|| (ErrorKind::UnexpectedReturnType, "no answer").into());
        }
        let digest = self.digest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let result = connection.send_packed_command(&self.command("EVALSHA", &digest, call)).await;
        let result = result.and_then(Value::extract_error);
        match result {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                count(&core.counters.script_reloads, 1);
                let digest = load(&mut connection).await?;
                let again = connection.send_packed_command(&self.command("EVALSHA", &digest, call)).await;
                *self.digest.lock().unwrap_or_else(PoisonError::into_inner) = digest;
                again.and_then(Value::extract_error)
            }
            result => result,
        }
    }

    fn command(&self, name: &str, script: &str, call: &Call) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(call.keys.len());
        for key in &call.keys {
            command.arg(key.as_slice());
        }
        command.arg(call.packed.as_slice());
        command
    }
}

/// A connection without our own preparations.
pub(crate) async fn plain(core: &Core, info: ConnectionInfo) -> RedisResult<MultiplexedConnection> {
    // Questions are gathered here already: nothing is won by waiting for more.
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let client = match &core.config.tls {
        Some(tls) => Client::build_with_tls(info, tls.clone())?,
        None => Client::open(info)?,
    };
    // Our own deadlines count, by call.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(1)))
        .set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// The login of `seed` at an address like `host:port`.
pub(crate) fn at(seed: &ConnectionInfo, address: &str) -> Result<ConnectionInfo, String> {
    let (host, port) = address.rsplit_once(':').ok_or_else(|| format!("`{address}` is not an address"))?;
    let port = port.parse().map_err(|_| format!("`{address}` is not an address"))?;
    Ok(moved(seed, host, port))
}

async fn load(connection: &mut MultiplexedConnection) -> RedisResult<String> {
    redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query_async(connection).await
}

async fn ask_sentinels(
    core: &Core,
    sentinels: &[ConnectionInfo],
    master: &str,
) -> Result<(String, u16), String> {
    let mut why = String::new();
    for sentinel in sentinels {
        let asked = async {
            let mut connection = plain(core, sentinel.clone()).await?;
            let mut command = redis::cmd("SENTINEL");
            command.arg("get-master-addr-by-name").arg(master);
            command.query_async::<Option<(String, u16)>>(&mut connection).await
        };
        match tokio::time::timeout(Duration::from_millis(300), asked).await {
            Ok(Ok(Some(address))) => return Ok(address),
            Ok(Ok(None)) => why = format!("no sentinel knows a master named `{master}`"),
            Ok(Err(error)) => why = explain(&error),
            Err(_) => why = "the sentinels do not answer".into(),
        }
    }
    Err(why)
}

/// Keys that are thrown out before their time are limits that start anew.
async fn warn_of_eviction(connection: &mut MultiplexedConnection, address: &str) {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg("maxmemory*");
    // Not everybody may ask; then nobody is warned.
    let Ok(settings) = command.query_async::<std::collections::HashMap<String, String>>(connection).await
    else {
        return;
    };
    let is_bounded = settings.get("maxmemory").is_some_and(|bytes| bytes != "0");
    let policy = settings.get("maxmemory-policy").map_or("", String::as_str);
    if is_bounded && policy != "noeviction" {
        tracing::warn!(
            server = address,
            policy,
            "Redis may evict limits before their time, and an evicted key starts with a full burst"
        );
    }
}

fn is_text(value: &Value, text: &str) -> bool {
    match value {
        Value::BulkString(bytes) => bytes == text.as_bytes(),
        Value::SimpleString(string) => string == text,
        _ => false,
    }
}

/// An error with what to do about it, where that is known.
fn explain(error: &RedisError) -> String {
    match error.kind() {
        ErrorKind::AuthenticationFailed => {
            format!("the login was refused ({error}): check user and password in the URL")
        }
        ErrorKind::Server(ServerErrorKind::NoPerm) => {
            format!("the user lacks a right ({error}): see docs/redis.md for those it needs")
        }
        _ => error.to_string(),
    }
}
