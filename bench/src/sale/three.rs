//! The seeds' way of taking stock: three commands, each of them a trip of its own. A crash between
//! them loses what was taken; that is not measured here.

use crate::Fallible;
use ::redis::aio::MultiplexedConnection;
use ::redis::{Client, RedisResult, cmd, pipe};

/// The path's lifetime in seconds: longer than a run.
const PATH_TTL: u32 = 3600;
/// Keys that are set in one trip.
const TOGETHER: usize = 1000;

/// One goods in Redis.
#[derive(Clone)]
pub struct Three {
    goods: String,
    stock: String,
    number: String,
}

impl Three {
    pub fn new(goods: String) -> Self {
        Self { stock: format!("stock:{goods}"), number: format!("number:{goods}"), goods }
    }

    pub fn goods(&self) -> &str {
        &self.goods
    }

    /// Loads the stock and a path for each buyer, before the clock starts.
    pub async fn load(&self, connection: &mut MultiplexedConnection, units: usize) -> Fallible<Vec<String>> {
        cmd("SET").arg(&self.stock).arg(units).exec_async(connection).await?;
        let paths: Vec<String> = (0..units).map(|_| format!("{:032x}", rand::random::<u128>())).collect();
        for some in paths.chunks(TOGETHER) {
            let mut all = pipe();
            for path in some {
                all.cmd("SET").arg(self.path(path)).arg(1).arg("EX").arg(PATH_TTL).ignore();
            }
            all.exec_async(connection).await?;
        }
        Ok(paths)
    }

    /// The order's number; none if the path is wrong or nothing is left.
    pub async fn take(
        &self,
        connection: &mut MultiplexedConnection,
        path: &str,
    ) -> RedisResult<Option<String>> {
        let known: Option<String> = cmd("GET").arg(self.path(path)).query_async(connection).await?;
        if known.is_none() {
            return Ok(None);
        }
        let left: i64 = cmd("DECRBY").arg(&self.stock).arg(1).query_async(connection).await?;
        if left < 0 {
            cmd("INCRBY").arg(&self.stock).arg(1).exec_async(connection).await?;
            return Ok(None);
        }
        let nth: u64 = cmd("INCR").arg(&self.number).query_async(connection).await?;
        Ok(Some(format!("{}-{nth}", self.goods)))
    }

    pub async fn left(&self, connection: &mut MultiplexedConnection) -> Fallible<i64> {
        Ok(cmd("GET").arg(&self.stock).query_async(connection).await?)
    }

    fn path(&self, path: &str) -> String {
        format!("path:{}:{path}", self.goods)
    }
}

/// As the engine connects: without Nagle's delay.
pub async fn connect(url: &str) -> Fallible<MultiplexedConnection> {
    use ::redis::IntoConnectionInfo as _;
    let tcp = ::redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let info = url.into_connection_info()?.set_tcp_settings(tcp);
    let config = ::redis::AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?)
}
