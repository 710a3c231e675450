//! What people do today: a script, called once a request. The scripts are those of the documents
//! that the project started from, made correct (the server's clock, unique members, a refusal
//! writes nothing, numbers as arguments) but not faster, and a bare GCRA in the manner of
//! redis-cell.

use super::{Contender, Decision, Target};
use crate::Fallible;
use ::redis::aio::MultiplexedConnection;
use ::redis::io::tcp::TcpSettings;
use ::redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Script};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub const KEY_PREFIX: &str = "limit:";

/// A script on a connection, with its numbers.
#[derive(Clone)]
pub struct Scripted(Arc<Inner>);

struct Inner {
    connection: MultiplexedConnection,
    script: Script,
    arguments: [String; 2],
    /// For those whose requests need distinct members.
    number: Option<AtomicU64>,
}

impl Scripted {
    pub async fn zset(target: &Target) -> Fallible<Self> {
        Self::log(target, include_str!("zset.lua")).await
    }

    pub async fn tokens(target: &Target) -> Fallible<Self> {
        let Target { allowance, .. } = target;
        let rate = allowance.units as f64 / allowance.period_s as f64;
        let arguments = [allowance.units.to_string(), rate.to_string()];
        Self::new(target, include_str!("tokens.lua"), arguments, None).await
    }

    pub async fn gcra(target: &Target) -> Fallible<Self> {
        let Target { allowance, .. } = target;
        let interval_us = allowance.period_us() as f64 / allowance.units as f64;
        let arguments = [interval_us.to_string(), allowance.period_us().to_string()];
        Self::new(target, include_str!("gcra.lua"), arguments, None).await
    }

    /// As the documents have it, too generous: what the exactness check has to find.
    #[cfg(test)]
    pub async fn seeds_zset(target: &Target) -> Fallible<Self> {
        Self::log(target, include_str!("seeds_zset.lua")).await
    }

    async fn log(target: &Target, text: &str) -> Fallible<Self> {
        let arguments = [target.allowance.period_us().to_string(), target.allowance.units.to_string()];
        Self::new(target, text, arguments, Some(first_number(target.node))).await
    }

    async fn new(target: &Target, text: &str, arguments: [String; 2], number: Option<u64>) -> Fallible<Self> {
        let connection = connect(target).await?;
        let number = number.map(AtomicU64::new);
        Ok(Self(Arc::new(Inner { connection, script: Script::new(text), arguments, number })))
    }
}

impl Contender for Scripted {
    async fn check(&self, key: &str) -> Decision {
        let Inner { connection, script, arguments, number } = &*self.0;
        let mut call = script.prepare_invoke();
        call.key([KEY_PREFIX, key].concat()).arg(&arguments[0]).arg(&arguments[1]);
        if let Some(number) = number {
            call.arg(number.fetch_add(1, Relaxed));
        }
        match call.invoke_async::<u8>(&mut connection.clone()).await {
            Ok(0) => Decision::Denied,
            Ok(_) => Decision::Allowed,
            Err(_) => Decision::Failed,
        }
    }
}

/// One connection for the whole process. Without `TCP_NODELAY`, which is off by default, requests
/// wait for the acknowledgement of those before them.
pub async fn connect(target: &Target) -> Fallible<MultiplexedConnection> {
    let settings = TcpSettings::default().set_nodelay(true);
    let address = target.url().as_str().into_connection_info()?.set_tcp_settings(settings);
    let client = Client::open(address)?;
    // Nothing is measured yet, so a machine that is too busy for the default may have its time.
    let patience = AsyncConnectionConfig::new().set_connection_timeout(Some(Duration::from_secs(5)));
    Ok(client.get_multiplexed_async_connection_with_config(&patience).await?)
}

/// Requests are numbered in the manner of snowflakes: 19 digits, different on every node, so that a
/// member is as long as it would be in use, and no longer (Redis keeps it as an integer).
pub fn first_number(node: u16) -> u64 {
    (1 << 62) + (u64::from(node) << 48)
}
