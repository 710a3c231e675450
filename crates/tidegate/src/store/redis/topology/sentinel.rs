//! Which server the sentinels name as the master.
//!
//! Each sentinel is asked on a connection of its own, every half a second and upon each of
//! its messages about a fail-over, so that a silent one delays nobody. What each says is
//! kept; the answer with the highest configuration epoch goes first, because each fail-over
//! has an epoch of its own that a majority of the sentinels has voted for, and a sentinel
//! that was cut off is behind in it. Among equals the one that most sentinels name goes
//! first. A server counts as the master only if its own `ROLE` agrees.
//!
//! A name of a lower epoch is stale: where the server of a higher one cannot be asked, it is
//! believed only if a majority of all sentinels names it. Otherwise a client that cannot
//! reach the new master would go on with the old one beside all others.

use crate::store::redis::config::Deployment;
use crate::store::redis::server::connection::{at, connect, explain, open_client};
use crate::store::redis::server::role::replicas;
use crate::store::redis::store::RedisClient;
use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use redis::aio::{MultiplexedConnection, PubSubStream};
use redis::{ConnectionInfo, RedisResult};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How often each sentinel is asked, beside its messages.
const PERIOD: Duration = Duration::from_millis(500);
/// How long a sentinel may take to be connected, and to answer.
const CONNECT: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_millis(500);
/// Between two tries to reach a sentinel.
const PAUSE: Duration = Duration::from_millis(500);
/// How long the first answer waits for those of the other sentinels.
const GRACE: Duration = Duration::from_millis(100);
/// How long a server that was named may take to answer with its role, where there is another one.
const ROLE: Duration = Duration::from_millis(400);
/// Between two looks at a server that is named, but not a master yet.
const FIRST_LOOK: Duration = Duration::from_millis(50);
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// What a sentinel says when it names another master, or is about to.
const MESSAGES: [&str; 4] =
    ["+switch-master", "+promoted-slave", "+failover-state-reconf-slaves", "+config-update-from"];

/// What each sentinel says, where there are any.
pub(crate) struct Sentinels {
    /// Changes when a sentinel says something new.
    pub(crate) views: watch::Sender<Vec<SentinelView>>,
    requests: watch::Sender<()>,
    /// The epoch of the master that was accepted last.
    accepted: AtomicU64,
    /// So many are a majority.
    majority: usize,
}

/// Whom a sentinel names, or why nobody; none before it was asked.
pub(crate) type SentinelView = Option<Result<Candidate, String>>;

/// A server that sentinels name as the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    epoch: u64,
    /// How many name it.
    votes: usize,
    address: String,
}

impl Sentinels {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            views: watch::Sender::new(vec![None; count]),
            requests: watch::Sender::new(()),
            accepted: AtomicU64::new(0),
            majority: count / 2 + 1,
        }
    }

    /// Has every sentinel asked at once.
    pub(crate) fn ask(&self) {
        self.requests.send_replace(());
    }

    fn learn(&self, nth: usize, view: Result<Candidate, String>) {
        let view = Some(view);
        self.views.send_if_modified(|views| std::mem::replace(&mut views[nth], view.clone()) != view);
    }

    /// Connects to the master that is named and says so itself.
    pub(crate) async fn connect(
        &self,
        client: &RedisClient,
        login: &ConnectionInfo,
    ) -> Result<(MultiplexedConnection, String), String> {
        let candidates = self.named().await?;
        let mut why = String::new();
        let mut floor = self.accepted.load(Ordering::Relaxed);
        let within = if candidates.len() > 1 { ROLE } else { Duration::MAX };
        for Candidate { epoch, votes, address } in candidates {
            if epoch < floor && votes < self.majority {
                why = format!("{address} is named by stale sentinels only; {why}");
                continue;
            }
            match master_at(client, login, &address, within).await {
                Ok(Some(connection)) => {
                    self.accepted.store(epoch, Ordering::Relaxed);
                    return Ok((connection, address));
                }
                Ok(None) => why = "the sentinels name a replica, which takes no writes".into(),
                Err(refused) => {
                    floor = floor.max(epoch);
                    why = refused;
                }
            }
        }
        Err(why)
    }

    /// Who is named. Waits for the first sentinel who knows, and a little for the others.
    async fn named(&self) -> Result<Vec<Candidate>, String> {
        let mut views = self.views.subscribe();
        let is_known = |views: &Vec<SentinelView>| views.iter().all(Option::is_some);
        let _ = timeout(GRACE, views.wait_for(is_known)).await;
        let has_name = |views: &Vec<SentinelView>| !candidates(views).is_empty() || is_known(views);
        let views = views.wait_for(has_name).await.map_err(|_| "it is no longer needed")?;
        let named = candidates(&views);
        if !named.is_empty() {
            return Ok(named);
        }
        let why = views.iter().rev().flatten().find_map(|view| view.clone().err());
        Err(why.unwrap_or_else(|| "no sentinel answers".into()))
    }

    /// Waits until another server than `current` is the master, as it says itself.
    pub(crate) async fn replaced(&self, client: &RedisClient, login: &ConnectionInfo, current: &str) {
        let mut views = self.views.subscribe();
        let mut pause = FIRST_LOOK;
        loop {
            let named = candidates(&views.borrow_and_update());
            let floor = self.accepted.load(Ordering::Relaxed);
            let mut is_other_named = false;
            for Candidate { epoch, votes, address } in named {
                if address == current {
                    break;
                }
                if epoch > floor || votes >= self.majority {
                    is_other_named = true;
                    if let Ok(Some(_)) = master_at(client, login, &address, ROLE).await {
                        return;
                    }
                }
            }
            // One that is named and not a master yet is looked at again without news.
            let _ = timeout(if is_other_named { pause } else { Duration::MAX }, views.changed()).await;
            pause = if is_other_named { (pause * 2).min(LONGEST_LOOK) } else { FIRST_LOOK };
        }
    }
}

/// Those who are named, the most credible first.
fn candidates(views: &[SentinelView]) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = Vec::new();
    for named in views.iter().flatten().flatten() {
        match candidates.iter_mut().find(|one| one.address == named.address) {
            Some(candidate) => {
                candidate.votes += 1;
                candidate.epoch = candidate.epoch.max(named.epoch);
            }
            None => candidates.push(named.clone()),
        }
    }
    candidates.sort_by_key(|one| std::cmp::Reverse((one.epoch, one.votes)));
    candidates
}

/// A connection to a server, if that says that it is a master.
async fn master_at(
    client: &RedisClient,
    login: &ConnectionInfo,
    address: &str,
    within: Duration,
) -> Result<Option<MultiplexedConnection>, String> {
    let info = at(login, address)?;
    let connected = async {
        let mut connection = connect(client, info).await?;
        let is_master = replicas(&mut connection).await?.is_some();
        RedisResult::Ok(is_master.then_some(connection))
    };
    match timeout(within, connected).await {
        Ok(connected) => connected.map_err(|error| explain(&error)),
        Err(_) => Err("it does not answer".into()),
    }
}

/// Asks one sentinel for as long as the store is needed.
pub(crate) async fn follow(client: Arc<RedisClient>, nth: usize) {
    let Deployment::Sentinel { sentinels: urls, master, .. } = &client.config.deployment else { return };
    while !client.is_closed() {
        let why = session(&client, &urls[nth], master, nth).await.unwrap_or_else(|error| explain(&error));
        client.sentinels.learn(nth, Err(why));
        sleep(PAUSE.mul_f64(0.5 + client.random())).await;
    }
}

/// Asks over one connection, until that is gone; returns why.
async fn session(
    client: &RedisClient,
    url: &ConnectionInfo,
    master: &str,
    nth: usize,
) -> RedisResult<String> {
    const SILENT: &str = "the sentinels do not answer";
    let mut requests = client.sentinels.requests.subscribe();
    let Ok(connected) = timeout(CONNECT, connect(client, url.clone())).await else {
        return Ok(SILENT.into());
    };
    let mut connection = connected?;
    // Before it is asked, so that nothing is missed. Not everybody may listen: then it is
    // only asked.
    let mut messages = timeout(CONNECT, listen(client, url)).await.ok().and_then(Result::ok);
    while !client.is_closed() {
        let Ok(answer) = timeout(ANSWER, ask(&mut connection, master)).await else {
            return Ok(SILENT.into());
        };
        let unknown = || format!("no sentinel that answers knows a master named `{master}`");
        client.sentinels.learn(nth, answer?.ok_or_else(unknown));
        let message = async {
            match &mut messages {
                Some(messages) => messages.next().await.is_some(),
                None => std::future::pending().await,
            }
        };
        let request = pin!(requests.changed());
        if let Ok(Either::Left((false, _))) = timeout(PERIOD, select(pin!(message), request)).await {
            return Ok("the connection to the sentinel was closed".into());
        }
    }
    Ok("it is no longer needed".into())
}

async fn listen(client: &RedisClient, url: &ConnectionInfo) -> RedisResult<PubSubStream> {
    let (mut sink, stream) = open_client(client, url.clone())?.get_async_pubsub().await?.split();
    sink.subscribe(&MESSAGES).await?;
    Ok(stream)
}

/// The epoch first: one that is older than the address makes it less credible than it is,
/// never more.
async fn ask(connection: &mut MultiplexedConnection, master: &str) -> RedisResult<Option<Candidate>> {
    let mut command = redis::cmd("SENTINEL");
    command.arg("MASTER").arg(master);
    // Unknown where the name is, or where a user may not ask for it.
    let fields: HashMap<String, String> = command.query_async(connection).await.unwrap_or_default();
    let epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let address: Option<(String, u16)> = command.query_async(connection).await?;
    Ok(address.map(|(host, port)| Candidate { epoch, votes: 1, address: format!("{host}:{port}") }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(epoch: u64, port: u16) -> SentinelView {
        Some(Ok(Candidate { epoch, votes: 1, address: port.to_string() }))
    }

    fn ports(views: &[SentinelView]) -> Vec<u16> {
        candidates(views).iter().map(|candidate| candidate.address.parse().unwrap()).collect()
    }

    #[test]
    fn the_highest_epoch_goes_first_and_among_equals_the_most_votes() {
        assert!(candidates(&[None, Some(Err("down".into()))]).is_empty());
        assert_eq!(ports(&[named(1, 1), named(1, 1), named(2, 2)]), [2, 1]);
        assert_eq!(ports(&[named(0, 1), named(0, 2), named(0, 2)]), [2, 1]);
        assert_eq!(ports(&[named(0, 1), named(0, 2)]), [1, 2]);
        assert_eq!(ports(&[named(0, 1), None, named(3, 2), named(4, 1)]), [1, 2]);
    }
}
