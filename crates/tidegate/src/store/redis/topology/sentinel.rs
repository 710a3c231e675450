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

use crate::store::redis::config::{Deployment, moved};
use crate::store::redis::server::connection::{connect, explain, open_client};
use crate::store::redis::server::role::{Role, role};
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

/// What each sentinel says.
pub(crate) struct Sentinels {
    views: watch::Sender<Vec<SentinelView>>,
    requests: watch::Sender<()>,
    /// The epoch of the master that was accepted last.
    accepted: AtomicU64,
}

/// Changes with what any sentinel says.
pub(crate) type News = watch::Receiver<Vec<SentinelView>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SentinelView {
    Unchecked,
    Failed(String),
    Named { epoch: u64, host: String, port: u16 },
}

/// A server that at least one sentinel names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    epoch: u64,
    votes: usize,
    host: String,
    port: u16,
}

/// Why a server is not taken for the master.
enum NotMaster {
    /// It says so itself.
    Replica(String),
    /// It does not say.
    Unreachable(String),
}

impl Sentinels {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            views: watch::Sender::new(vec![SentinelView::Unchecked; count]),
            requests: watch::Sender::new(()),
            accepted: AtomicU64::new(0),
        }
    }

    /// Has every sentinel asked at once.
    pub(crate) fn ask(&self) {
        self.requests.send_replace(());
    }

    /// Changes when a sentinel says something new.
    pub(crate) fn news(&self) -> News {
        self.views.subscribe()
    }

    fn learn(&self, nth: usize, view: SentinelView) {
        self.views.send_if_modified(|views| {
            let is_new = views[nth] != view;
            views[nth] = view;
            is_new
        });
    }

    /// Connects to the master that is named and says so itself.
    pub(crate) async fn connect(
        &self,
        client: &RedisClient,
        login: &ConnectionInfo,
    ) -> Result<(MultiplexedConnection, String), String> {
        let (candidates, majority) = self.named().await?;
        let mut why = String::new();
        let mut floor = self.accepted.load(Ordering::Relaxed);
        let is_choice = candidates.len() > 1;
        for candidate in candidates {
            if candidate.epoch < floor && candidate.votes < majority {
                why =
                    format!("{}:{} is named by stale sentinels only; {why}", candidate.host, candidate.port);
                continue;
            }
            let info = moved(login, &candidate.host, candidate.port);
            let address = info.addr().to_string();
            match master_at(client, info, if is_choice { ROLE } else { Duration::MAX }).await {
                Ok(connection) => {
                    self.accepted.store(candidate.epoch, Ordering::Relaxed);
                    return Ok((connection, address));
                }
                Err(NotMaster::Replica(refused)) => why = refused,
                Err(NotMaster::Unreachable(refused)) => {
                    floor = floor.max(candidate.epoch);
                    why = refused;
                }
            }
        }
        Err(why)
    }

    /// Who is named, and how many sentinels are a majority. Waits for the first who knows,
    /// and a little for the others.
    async fn named(&self) -> Result<(Vec<Candidate>, usize), String> {
        let mut views = self.views.subscribe();
        let is_known = |views: &Vec<SentinelView>| views.iter().all(|view| *view != SentinelView::Unchecked);
        let _ = timeout(GRACE, views.wait_for(is_known)).await;
        let has_name = |views: &Vec<SentinelView>| !candidates(views).is_empty() || is_known(views);
        let Ok(views) = views.wait_for(has_name).await else { return Err("it is no longer needed".into()) };
        let failed =
            |view: &SentinelView| if let SentinelView::Failed(why) = view { Some(why.clone()) } else { None };
        match candidates(&views) {
            none if none.is_empty() => {
                Err(views.iter().rev().find_map(failed).unwrap_or_else(|| "no sentinel answers".into()))
            }
            named => Ok((named, views.len() / 2 + 1)),
        }
    }

    /// Waits until another server than `current` is the master, as it says itself.
    pub(crate) async fn replaced(&self, client: &RedisClient, login: &ConnectionInfo, current: &str) {
        let mut views = self.views.subscribe();
        let mut pause = FIRST_LOOK;
        loop {
            let (named, majority) = {
                let views = views.borrow_and_update();
                (candidates(&views), views.len() / 2 + 1)
            };
            let floor = self.accepted.load(Ordering::Relaxed);
            let mut is_other_named = false;
            for candidate in named {
                let info = moved(login, &candidate.host, candidate.port);
                if info.addr().to_string() == current {
                    break;
                }
                if candidate.epoch > floor || candidate.votes >= majority {
                    is_other_named = true;
                    if master_at(client, info, ROLE).await.is_ok() {
                        return;
                    }
                }
            }
            // One that is named and not a master yet is looked at again without news.
            if is_other_named {
                let _ = timeout(pause, views.changed()).await;
                pause = (pause * 2).min(LONGEST_LOOK);
            } else {
                pause = FIRST_LOOK;
                if views.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        }
    }
}

/// Those who are named, the most credible first.
fn candidates(views: &[SentinelView]) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = Vec::new();
    for view in views {
        let SentinelView::Named { epoch, host, port } = view else { continue };
        match candidates.iter_mut().find(|one| one.host == *host && one.port == *port) {
            Some(candidate) => {
                candidate.votes += 1;
                candidate.epoch = candidate.epoch.max(*epoch);
            }
            None => candidates.push(Candidate { epoch: *epoch, votes: 1, host: host.clone(), port: *port }),
        }
    }
    candidates.sort_by_key(|one| std::cmp::Reverse((one.epoch, one.votes)));
    candidates
}

/// A connection to a server that says that it is a master.
async fn master_at(
    client: &RedisClient,
    info: ConnectionInfo,
    within: Duration,
) -> Result<MultiplexedConnection, NotMaster> {
    let connected = async {
        let mut connection = connect(client, info).await?;
        let role = role(&mut connection).await?;
        RedisResult::Ok((connection, role))
    };
    match timeout(within, connected).await {
        Ok(Ok((connection, Role::Master { .. }))) => Ok(connection),
        Ok(Ok(_)) => Err(NotMaster::Replica("the sentinels name a replica, which takes no writes".into())),
        Ok(Err(error)) => Err(NotMaster::Unreachable(explain(&error))),
        Err(_) => Err(NotMaster::Unreachable("it does not answer".into())),
    }
}

/// Asks one sentinel for as long as the store is needed.
pub(crate) async fn follow(client: Arc<RedisClient>, nth: usize) {
    let Deployment::Sentinel { sentinels: urls, master, .. } = &client.config.deployment else { return };
    let Some(sentinels) = &client.sentinels else { return };
    while !client.is_closed() {
        let why = match session(&client, sentinels, &urls[nth], master, nth).await {
            Ok(why) => why,
            Err(error) => explain(&error),
        };
        sentinels.learn(nth, SentinelView::Failed(why));
        sleep(PAUSE.mul_f64(0.5 + client.random())).await;
    }
}

/// Asks over one connection, until that is gone; returns why.
async fn session(
    client: &RedisClient,
    sentinels: &Sentinels,
    url: &ConnectionInfo,
    master: &str,
    nth: usize,
) -> RedisResult<String> {
    const SILENT: &str = "the sentinels do not answer";
    let mut requests = sentinels.requests.subscribe();
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
        let view = answer?.unwrap_or_else(|| {
            SentinelView::Failed(format!("no sentinel that answers knows a master named `{master}`"))
        });
        sentinels.learn(nth, view);
        let message = async {
            match &mut messages {
                Some(messages) => messages.next().await.is_some(),
                None => std::future::pending().await,
            }
        };
        let request = async { requests.changed().await.is_ok() };
        let goes_on = match timeout(PERIOD, select(pin!(message), pin!(request))).await {
            Ok(Either::Left((goes_on, _)) | Either::Right((goes_on, _))) => goes_on,
            Err(_) => true,
        };
        if !goes_on {
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
async fn ask(connection: &mut MultiplexedConnection, master: &str) -> RedisResult<Option<SentinelView>> {
    let mut command = redis::cmd("SENTINEL");
    command.arg("MASTER").arg(master);
    // Unknown where the name is, or where a user may not ask for it.
    let fields: HashMap<String, String> = command.query_async(connection).await.unwrap_or_default();
    let epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let address: Option<(String, u16)> = command.query_async(connection).await?;
    Ok(address.map(|(host, port)| SentinelView::Named { epoch, host, port }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(epoch: u64, port: u16) -> SentinelView {
        SentinelView::Named { epoch, host: "h".into(), port }
    }

    fn ports(views: &[SentinelView]) -> Vec<u16> {
        candidates(views).iter().map(|candidate| candidate.port).collect()
    }

    #[test]
    fn the_highest_epoch_goes_first_and_among_equals_the_most_votes() {
        assert!(candidates(&[SentinelView::Unchecked, SentinelView::Failed("down".into())]).is_empty());
        assert_eq!(ports(&[named(1, 1), named(1, 1), named(2, 2)]), [2, 1]);
        assert_eq!(ports(&[named(0, 1), named(0, 2), named(0, 2)]), [2, 1]);
        assert_eq!(ports(&[named(0, 1), named(0, 2)]), [1, 2]);
        assert_eq!(ports(&[named(0, 1), SentinelView::Unchecked, named(3, 2), named(4, 1)]), [1, 2]);
    }
}
