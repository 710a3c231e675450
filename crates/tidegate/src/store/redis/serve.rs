//! Looks after one server: connects, serves, gives up, tries again.

use super::connection::Connection;
use super::core::Core;
use super::flight::Flights;
use super::role;
use super::sentinel::{News, Sentinels};
use super::shard::Shard;
use super::stats::count;
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

/// Looks after a server for as long as it is needed.
pub(crate) async fn run(core: Arc<Core>, shard: Arc<Shard>) {
    // Whatever ends this, nobody must be left waiting in the lanes.
    struct End(Arc<Core>, Arc<Shard>);
    impl Drop for End {
        fn drop(&mut self) {
            self.1.is_up.store(false, Ordering::Relaxed);
            self.1.fail_all(&self.0);
        }
    }
    let end = End(core.clone(), shard.clone());
    let serving = std::pin::pin!(serve(core, shard));
    let sweeping = std::pin::pin!(sweep(&end.0, &end.1));
    futures_util::future::select(serving, sweeping).await;
}

/// Answers those whose deadline passes while nobody flies.
async fn sweep(core: &Core, shard: &Shard) {
    let often = (core.config.deadline / 4).max(Duration::from_millis(1));
    loop {
        if shard.is_served.load(Ordering::Relaxed) {
            shard.unserved.notified().await;
        } else {
            tokio::time::sleep(often).await;
            shard.fail_late(core);
        }
    }
}

/// Tries to reach the server, serves it, and starts anew.
async fn serve(core: Arc<Core>, shard: Arc<Shard>) {
    let mut pauses = Pauses::default();
    let mut is_first = true;
    let mut news = core.sentinels.as_ref().map(Sentinels::news);
    loop {
        if shard.is_retired.load(Ordering::Relaxed) || core.is_closed() {
            return;
        }
        match connect(&core, &shard, is_first).await {
            Ok((connection, address)) => {
                shard.is_at(address);
                count(&core.counters.connects, 1);
                shard.comes_up();
                shard.is_served.store(true, Ordering::Relaxed);
                let since = core.now();
                // This server may not know what another one, or this one before, gave out.
                core.ask_for_holders();
                let watching = role::watch(&core, &shard, connection.beside());
                let flights = Flights::new(&core, &shard, connection);
                let mut lost = match select(pin!(flights.serve()), pin!(watching)).await {
                    Either::Left((lost, _)) => lost,
                    Either::Right((why, serving)) => {
                        flights.give_up(why, false);
                        serving.await
                    }
                };
                // One that connects and does not answer is no better than one that does not.
                if lost.has_answered {
                    pauses = Pauses::default();
                }
                // A server that closes every connection is as good as silent.
                lost.is_silent |= core.now().since(since) < FIRST_PAUSE;
                tracing::debug!(server = shard.address(), why = lost.why, "connection to Redis lost");
                core.look_around();
                // A connection that was closed is made anew at once; a server that was
                // silent is left alone for a while.
                is_first = !lost.is_silent;
                if lost.is_silent {
                    let pause = pauses.next(&core);
                    shard.goes_down(&core, pause, lost.why);
                    rest(&mut news, pause).await;
                }
            }
            Err(error) => {
                is_first = false;
                let pause = pauses.next(&core);
                shard.goes_down(&core, pause, &error);
                core.look_around();
                rest(&mut news, pause).await;
            }
        }
    }
}

/// Waits for the next try, or until a sentinel says something new.
async fn rest(news: &mut Option<News>, pause: Duration) {
    match news {
        Some(news) => {
            let _ = timeout(pause, news.changed()).await;
        }
        None => tokio::time::sleep(pause).await,
    }
}

/// The first try holds callers back, for one deadline; later ones nobody waits for.
async fn connect(core: &Core, shard: &Shard, is_first: bool) -> Result<(Connection, String), String> {
    let address = shard.address();
    let mut connecting = std::pin::pin!(timeout(CONNECT_TIMEOUT, Connection::open(core, &address)));
    let mut result = None;
    if is_first {
        match timeout(core.config.deadline, connecting.as_mut()).await {
            Ok(done) => result = Some(done),
            Err(_) => shard.goes_down(core, FIRST_PAUSE, "it does not answer in time"),
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
    fn next(&mut self, core: &Core) -> Duration {
        let pause = (FIRST_PAUSE * 2u32.pow(self.tries.min(4))).min(LONGEST_PAUSE);
        self.tries += 1;
        pause.mul_f64(0.5 + core.random())
    }
}
