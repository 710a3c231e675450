//! One connection to one server, made ready: logged in, to a master, with the script loaded.

use crate::store::redis::config::Deployment;
use crate::store::redis::script::encode::EncodedCall;
use crate::store::redis::script::numbers::SCRIPT;
use crate::store::redis::server::role::replicas;
use crate::store::redis::stats::count;
use crate::store::redis::store::RedisClient;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult,
    ServerErrorKind, Value,
};
use std::time::Duration;

pub(crate) struct ServerConnection {
    pub(super) connection: MultiplexedConnection,
    /// The script's.
    digest: String,
}

impl ServerConnection {
    /// Connects to the server at `address`, or wherever the sentinels say that it is.
    pub(crate) async fn open(client: &RedisClient, address: &str) -> Result<(Self, String), String> {
        let (mut connection, address) = match &client.config.deployment {
            Deployment::Single(info) => open_at(client, info.clone()).await?,
            Deployment::Cluster(seeds) => open_at(client, at(&seeds[0], address)?).await?,
            Deployment::Sentinel { login, .. } => client.sentinels.connect(client, login).await?,
        };
        let digest = load(&mut connection).await.map_err(|error| explain(&error))?;
        Ok((Self { connection, digest }, address))
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
            both.add_command(command("EVAL", &SCRIPT, call));
            let (answer,): (Value,) = both.query_async(&mut connection).await?;
            return Ok(answer);
        }
        let call = command("EVALSHA", &self.digest, call);
        let result = connection.send_packed_command(&call).await.and_then(Value::extract_error);
        match result {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                count(&client.counters.script_reloads, 1);
                load(&mut connection).await?;
                connection.send_packed_command(&call).await.and_then(Value::extract_error)
            }
            result => result,
        }
    }
}

async fn open_at(
    client: &RedisClient,
    info: ConnectionInfo,
) -> Result<(MultiplexedConnection, String), String> {
    let address = info.addr().to_string();
    let mut connection = connect(client, info).await.map_err(|error| explain(&error))?;
    // Not every proxy knows the command; a replica is found out by its refusals, then.
    if let Ok(None) = replicas(&mut connection).await {
        return Err("it is a replica, and takes no writes".into());
    }
    Ok((connection, address))
}

fn command(name: &str, script: &str, call: &EncodedCall) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(call.keys.len()).arg(&call.keys).arg(&call.packed);
    command
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

/// A login at another address, like `host:port`.
pub(crate) fn at(login: &ConnectionInfo, address: &str) -> Result<ConnectionInfo, String> {
    let parsed =
        address.rsplit_once(':').and_then(|(host, port)| Some((host.to_string(), port.parse().ok()?)));
    let (host, port) = parsed.ok_or_else(|| format!("`{address}` is not an address"))?;
    let mut addr = login.addr().clone();
    if let ConnectionAddr::TcpTls { host: its_host, port: its_port, .. } = &mut addr {
        (*its_host, *its_port) = (host, port);
    } else {
        addr = ConnectionAddr::Tcp(host, port);
    }
    Ok(login.clone().set_addr(addr))
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
