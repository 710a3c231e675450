//! One connection to one server, made ready: logged in, to a master, with the script loaded.

use crate::store::redis::config::{Deployment, moved};
use crate::store::redis::script::encode::EncodedCall;
use crate::store::redis::script::numbers::SCRIPT;
use crate::store::redis::server::role::{Role, role};
use crate::store::redis::stats::count;
use crate::store::redis::store::RedisClient;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, RedisError, RedisResult, ServerErrorKind,
    Value,
};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

pub(crate) struct ServerConnection {
    connection: MultiplexedConnection,
    digest: Mutex<String>,
}

impl ServerConnection {
    /// Connects to the server at `address`, or wherever the sentinels say that it is.
    pub(crate) async fn open(client: &RedisClient, address: &str) -> Result<(Self, String), String> {
        let info = match &client.config.deployment {
            Deployment::Single(info) => info.clone(),
            Deployment::Cluster(seeds) => at(&seeds[0], address)?,
            Deployment::Sentinel { login, .. } => {
                let Some(sentinels) = &client.sentinels else { return Err("there are no sentinels".into()) };
                let (connection, address) = sentinels.connect(client, login).await?;
                return Ok((Self::ready(connection).await?, address));
            }
        };
        let address = info.addr().to_string();
        let mut connection = connect(client, info).await.map_err(|error| explain(&error))?;
        // Not every proxy knows the command; a replica is found out by its refusals, then.
        if let Ok(Role::Replica) = role(&mut connection).await {
            return Err("it is a replica, and takes no writes".into());
        }
        Ok((Self::ready(connection).await?, address))
    }

    /// Has the script loaded.
    async fn ready(mut connection: MultiplexedConnection) -> Result<Self, String> {
        let digest = load(&mut connection).await.map_err(|error| explain(&error))?;
        Ok(Self { connection, digest: Mutex::new(digest) })
    }

    /// For commands beside the script's calls.
    pub(crate) fn share(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    /// Runs the script. A server that has forgotten it loads it again: then nothing was done, and
    /// a second call is safe.
    pub(crate) async fn call(
        &self,
        client: &RedisClient,
        call: &EncodedCall,
        is_ask_redirect: bool,
    ) -> RedisResult<Value> {
        let mut connection = self.connection.clone();
        if is_ask_redirect {
            // Whatever comes next is let through, so it must be the call itself.
            let mut both = redis::pipe();
            both.add_command(redis::cmd("ASKING")).ignore();
            both.add_command(self.command("EVAL", &SCRIPT, call));
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
                count(&client.counters.script_reloads, 1);
                let digest = load(&mut connection).await?;
                let again = connection.send_packed_command(&self.command("EVALSHA", &digest, call)).await;
                *self.digest.lock().unwrap_or_else(PoisonError::into_inner) = digest;
                again.and_then(Value::extract_error)
            }
            result => result,
        }
    }

    fn command(&self, name: &str, script: &str, call: &EncodedCall) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(call.keys.len());
        for key in &call.keys {
            command.arg(key.as_slice());
        }
        command.arg(call.packed.as_slice());
        command
    }
}

/// A connection that nothing was done with yet.
pub(crate) async fn connect(
    client: &RedisClient,
    info: ConnectionInfo,
) -> RedisResult<MultiplexedConnection> {
    // Requests are gathered here already: nothing is won by waiting for more.
    let client = open_client(client, info)?;
    // Our own deadlines count, by call.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(1)))
        .set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await
}

pub(crate) fn open_client(client: &RedisClient, info: ConnectionInfo) -> RedisResult<Client> {
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    match &client.config.tls {
        Some(tls) => Client::build_with_tls(info, tls.clone()),
        None => Client::open(info),
    }
}

/// The login of `seed` at an address like `host:port`.
pub(crate) fn at(seed: &ConnectionInfo, address: &str) -> Result<ConnectionInfo, String> {
    let (host, port) = address.rsplit_once(':').ok_or_else(|| format!("`{address}` is not an address"))?;
    let port = port.parse().map_err(|_| format!("`{address}` is not an address"))?;
    Ok(moved(seed, host, port))
}

async fn load(connection: &mut MultiplexedConnection) -> RedisResult<String> {
    redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT.as_str()).query_async(connection).await
}

/// An error with what to do about it, where that is known.
pub(crate) fn explain(error: &RedisError) -> String {
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
