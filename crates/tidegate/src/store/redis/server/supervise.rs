//! Looks after one server for as long as it is needed: connects, serves, and tries again when the
//! connection is gone.

use super::RedisServer;
use super::batch::Pipeline;
use super::connection::ServerConnection;
use super::role;
use crate::clock::Timestamp;
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
    struct End(Arc<RedisClient>, Arc<RedisServer>);
    impl Drop for End {
        fn drop(&mut self) {
            self.1.breaker.open(Timestamp::default());
            self.1.fail_all(self.1.unanswered(&self.0));
        }
    }
    let end = End(client.clone(), server.clone());
    select(pin!(serve(client, server)), pin!(answer_late(&end.0, &end.1))).await;
}

/// Answers those whose deadline passes while no batch takes them along.
async fn answer_late(client: &RedisClient, server: &RedisServer) {
    let often = (client.config.deadline / 4).max(Duration::from_millis(1));
    loop {
        if server.is_served.load(Ordering::Relaxed) {
            server.unserved.notified().await;
        } else {
            tokio::time::sleep(often).await;
            server.fail_late(client);
        }
    }
}

/// Tries to reach the server, serves it, and starts anew.
async fn serve(client: Arc<RedisClient>, server: Arc<RedisServer>) {
    let mut pauses = Pauses::default();
    let mut is_first = true;
    let mut news = client.sentinels.news();
    loop {
        if server.is_retired.load(Ordering::Relaxed) || client.is_closed() {
            return;
        }
        match connect(&client, &server, is_first).await {
            Ok((connection, address)) => {
                server.set_address(address);
                count(&client.counters.connects, 1);
                server.close_breaker();
                server.is_served.store(true, Ordering::Relaxed);
                let since = client.now();
                // This server may not know the slots that another one, or this one before, gave out.
                client.held_slots.renew_all();
                let watching = role::watch(&client, &server, connection.connection.clone());
                let pipeline = Pipeline::new(&client, &server, connection);
                let mut disconnect = match select(pin!(pipeline.run()), pin!(watching)).await {
                    Either::Left((disconnect, _)) => disconnect,
                    Either::Right((why, serving)) => {
                        pipeline.give_up(why, false);
                        serving.await
                    }
                };
                // One that connects and does not answer is no better than one that does not.
                if disconnect.has_answered {
                    pauses = Pauses::default();
                }
                // A server that closes every connection is as good as silent.
                disconnect.is_silent |= client.now().since(since) < FIRST_PAUSE;
                tracing::debug!(
                    server = server.address(),
                    why = disconnect.why,
                    "lost the connection to Redis"
                );
                client.refresh_cluster();
                // A connection that was closed is made anew at once; a server that was
                // silent is left alone for a while.
                is_first = !disconnect.is_silent;
                if disconnect.is_silent {
                    let pause = pauses.next(&client);
                    server.open_breaker(&client, pause, disconnect.why);
                    // Or until a sentinel says something new.
                    let _ = timeout(pause, news.changed()).await;
                }
            }
            Err(error) => {
                is_first = false;
                let pause = pauses.next(&client);
                server.open_breaker(&client, pause, &error);
                client.refresh_cluster();
                // Or until a sentinel says something new.
                let _ = timeout(pause, news.changed()).await;
            }
        }
    }
}

/// The first try holds callers back, for one deadline; later ones nobody waits for.
async fn connect(
    client: &RedisClient,
    server: &RedisServer,
    is_first: bool,
) -> Result<(ServerConnection, String), String> {
    let address = server.address();
    let mut connecting = std::pin::pin!(timeout(CONNECT_TIMEOUT, ServerConnection::open(client, &address)));
    let mut result = None;
    if is_first {
        match timeout(client.config.deadline, connecting.as_mut()).await {
            Ok(done) => result = Some(done),
            Err(_) => server.open_breaker(client, FIRST_PAUSE, "it does not answer in time"),
        }
    }
    let result = match result {
        Some(result) => result,
        None => connecting.await,
    };
    match result {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(error),
        Err(_) => Err("it does not answer".into()),
    }
}

/// Pauses that grow and differ by node, so that nodes do not come back all at once.
#[derive(Default)]
struct Pauses {
    tries: u32,
}

impl Pauses {
    fn next(&mut self, client: &RedisClient) -> Duration {
        let pause = (FIRST_PAUSE * 2u32.pow(self.tries.min(4))).min(LONGEST_PAUSE);
        self.tries += 1;
        pause.mul_f64(0.5 + client.random())
    }
}
