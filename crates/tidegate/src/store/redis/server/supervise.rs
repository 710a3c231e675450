//! Looks after one server for as long as it is needed: connects, serves, and tries again when the
//! connection is gone.

use super::RedisServer;
use super::batch::{Disconnect, Pipeline};
use super::connection::ServerConnection;
use super::role;
use crate::store::redis::lock;
use crate::store::redis::stats::count;
use crate::store::redis::store::RedisClient;
use futures_util::future::{Either, select};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout;

/// The first and the longest pause between two tries to reach a server.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) async fn run(client: Arc<RedisClient>, server: Arc<RedisServer>) {
    // Whatever ends this, nobody must be left waiting in the queues.
    struct End(Arc<RedisServer>);
    impl Drop for End {
        fn drop(&mut self) {
            self.0.breaker_is_open.store(true, Ordering::Relaxed);
            self.0.fail_all();
        }
    }
    let end = End(server);
    select(pin!(serve(&client, &end.0)), pin!(answer_late(&client, &end.0))).await;
}

/// Answers those whose deadline passes while no batch takes them along.
async fn answer_late(client: &RedisClient, server: &RedisServer) {
    let often = (client.config.deadline / 4).max(Duration::from_millis(1));
    loop {
        if server.is_served.load(Ordering::Relaxed) {
            server.unserved.notified().await;
        } else {
            tokio::time::sleep(often).await;
            let until = client.now().before(client.config.deadline);
            let late = server.queues.iter().map(|queue| queue.fail_late(until));
            count(&client.counters.timeouts, late.sum());
        }
    }
}

/// Tries to reach the server, uses it, and starts anew.
async fn serve(client: &Arc<RedisClient>, server: &RedisServer) {
    let mut tries = 0;
    let mut is_first = true;
    let mut news = client.sentinels.views.subscribe();
    while !server.is_retired.load(Ordering::Relaxed) && !client.is_closed() {
        let (why, is_silent) = match connect(client, server, is_first).await {
            Ok(connection) => {
                let (Disconnect { why, is_silent }, has_answered) =
                    use_connection(client, server, connection).await;
                tracing::debug!(server = server.address(), why, "lost the connection to Redis");
                // One that connects and does not answer is no better than one that does not.
                if has_answered {
                    tries = 0;
                }
                (why.to_string(), is_silent)
            }
            Err(error) => (error, true),
        };
        client.map.refresh.notify_one();
        // A connection that was closed is made anew at once; a server that was silent is left
        // alone for a while, or until a sentinel says something new.
        is_first = !is_silent;
        if is_silent {
            // Pauses grow and differ by node, so that nodes do not come back all at once.
            let pause = (FIRST_PAUSE * 2u32.pow(tries)).min(LONGEST_PAUSE).mul_f64(0.5 + client.random());
            tries = (tries + 1).min(4);
            server.open_breaker(client, pause, &why);
            let _ = timeout(pause, news.changed()).await;
        }
    }
}

/// Serves the queues over a connection. Returns why that has ended, and whether the server answered.
async fn use_connection(
    client: &Arc<RedisClient>,
    server: &RedisServer,
    connection: ServerConnection,
) -> (Disconnect, bool) {
    count(&client.counters.connects, 1);
    server.close_breaker();
    server.is_served.store(true, Ordering::Relaxed);
    let since = client.now();
    // This server may not know the slots that another one, or this one before, gave out.
    client.held_slots.renew_all();
    let watching = role::watch(client, server, connection.connection.clone());
    let pipeline = Pipeline::new(client, server, connection);
    let mut disconnect = match select(pin!(pipeline.run()), pin!(watching)).await {
        Either::Left((disconnect, _)) => disconnect,
        Either::Right((why, serving)) => {
            pipeline.give_up(Disconnect::closed(why));
            serving.await
        }
    };
    // A server that closes every connection is as good as silent.
    disconnect.is_silent |= client.now().since(since) < FIRST_PAUSE;
    (disconnect, pipeline.has_answered.load(Ordering::Relaxed))
}

/// The first try holds callers back, for one deadline; later ones nobody waits for.
async fn connect(
    client: &RedisClient,
    server: &RedisServer,
    is_first: bool,
) -> Result<ServerConnection, String> {
    let address = server.address();
    let mut connecting = pin!(async {
        let opened = timeout(CONNECT_TIMEOUT, ServerConnection::open(client, &address)).await;
        let (connection, address) = opened.unwrap_or_else(|_| Err("it does not answer".into()))?;
        *lock(&server.address) = address;
        Ok(connection)
    });
    if is_first {
        if let Ok(connected) = timeout(client.config.deadline, connecting.as_mut()).await {
            return connected;
        }
        server.open_breaker(client, FIRST_PAUSE, "it does not answer in time");
    }
    connecting.await
}
