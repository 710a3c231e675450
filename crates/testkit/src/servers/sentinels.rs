//! A master, its replicas, and three sentinels that replace the one by another.

use super::redis::{PATIENCE, Recipe};
use super::{RedisServer, Reply, wait_until};

const NAME: &str = "mymaster";
const COUNT: usize = 3;

/// How long a server has to be silent to count as dead, by each sentinel. If all noticed at
/// once, each would vote for itself, and they would try again only seconds later.
const SILENCE_MS: [&str; COUNT] = ["500", "700", "1000"];

/// Two sentinels have to agree, which takes them less than a second; then the replica takes
/// the master's place.
#[derive(Debug)]
pub struct Sentinels {
    /// The servers; the first begins as master, the others as its replicas.
    pub servers: Vec<RedisServer>,
    /// Those who watch them.
    pub sentinels: Vec<RedisServer>,
}

impl Sentinels {
    /// All five, once the sentinels know each other and the replica.
    ///
    /// # Panics
    /// Where they do not get ready.
    pub fn start() -> Self {
        Self::with_replicas(1)
    }

    /// The same with several replicas.
    ///
    /// # Panics
    /// Where they do not get ready.
    pub fn with_replicas(replicas: usize) -> Self {
        let master = RedisServer::start();
        let replicas: Vec<RedisServer> = (0..replicas).map(|_| RedisServer::replica_of(&master)).collect();
        let sentinels = SILENCE_MS.iter().map(|silence_ms| watching(&master, silence_ms)).collect();
        let all = Self { servers: std::iter::once(master).chain(replicas).collect(), sentinels };
        all.wait_ready();
        all
    }

    /// A further sentinel that names this server as the master, and never hears better: the
    /// server keeps it from the channel on which sentinels talk.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn stale_sentinel(server: &RedisServer) -> RedisServer {
        server.cmd(&["ACL", "SETUSER", "default", "resetchannels"]).accepted();
        watching(server, "60000")
    }

    /// Replaces the master, as an operator would before maintenance. The old one goes on as a
    /// master until the sentinels demote it, after four times the period in which they talk
    /// to each other: eight seconds and more, unless they were hurried.
    ///
    /// # Panics
    /// Where they refuse, or take too long.
    pub fn fail_over(&self) {
        let before = self.master().addr();
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_up()) {
            for (period, ms) in CALM {
                sentinel.cmd(&["SENTINEL", "DEBUG", period, ms]).accepted();
            }
        }
        let sentinel = self.sentinels.iter().find(|sentinel| sentinel.is_up()).expect("no sentinel is up");
        sentinel.cmd(&["SENTINEL", "FAILOVER", NAME]).accepted();
        wait_until("another is named", PATIENCE, || self.master().addr() != before);
    }

    /// Where a client asks for the master.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// What the sentinels call the master.
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// The master, by what a sentinel that is up says.
    ///
    /// # Panics
    /// Where no sentinel is up.
    pub fn master(&self) -> &RedisServer {
        let sentinel = self.sentinels.iter().find(|sentinel| sentinel.is_up()).expect("no sentinel is up");
        let answer = sentinel.cmd(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).accepted();
        let port = answer.items()[1].int();
        let master = self.servers.iter().find(|server| i64::from(server.port()) == port);
        master.expect("the sentinels name one of the servers")
    }

    /// Kills a sentinel, if it is up, and starts it again. It remembers whom it watched, but
    /// has to be hurried anew, which a mere `restart` of the server would not do.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn restart_sentinel(&self, nth: usize) {
        self.sentinels[nth].restart();
        hurry(&self.sentinels[nth]);
    }

    /// Waits until every sentinel that is up knows a healthy master, a replica that could
    /// take its place, and the others of these sentinels.
    ///
    /// # Panics
    /// Where that does not come.
    pub fn wait_ready(&self) {
        wait_until("the sentinels are ready", PATIENCE, || {
            let up: Vec<_> = self.sentinels.iter().filter(|sentinel| sentinel.is_up()).collect();
            up.iter().all(|sentinel| knows(sentinel, up.len() - 1))
        });
    }
}

/// A sentinel that has been told of the master. It finds the others by itself.
fn watching(master: &RedisServer, silence_ms: &str) -> RedisServer {
    let sentinel = RedisServer::make(&Recipe::sentinel());
    let port = master.port().to_string();
    sentinel.cmd(&["SENTINEL", "MONITOR", NAME, "127.0.0.1", &port, "2"]).accepted();
    for (option, ms) in [("down-after-milliseconds", silence_ms), ("failover-timeout", "2000")] {
        sentinel.cmd(&["SENTINEL", "SET", NAME, option, ms]).accepted();
    }
    hurry(&sentinel);
    sentinel
}

/// Makes it look, ask and tell more often than every second or two. Pings are the delicate
/// part. Sent as rarely as the shortest silence, which is what Redis does by itself, a master
/// that was just appointed counts as dead before its first answer, and is replaced again.
/// Sent more often than every 200 ms, no replica qualifies: what is known of it may be five
/// pings old at most, and is asked for only every second once the master is down.
fn hurry(sentinel: &RedisServer) {
    let periods =
        [("ping-period", "250"), ("ask-period", "100"), ("publish-period", "200"), ("info-period", "200")];
    for (period, ms) in periods {
        sentinel.cmd(&["SENTINEL", "DEBUG", period, ms]).accepted();
    }
}

/// The periods of a sentinel that nobody hurried.
const CALM: [(&str, &str); 2] = [("publish-period", "2000"), ("info-period", "10000")];

fn knows(sentinel: &RedisServer, others: usize) -> bool {
    let healthy = |what: &str| {
        let answer = sentinel.cmd(&["SENTINEL", what, NAME]).accepted();
        answer.items().iter().filter(|one| is_healthy(one)).count()
    };
    let master = sentinel.cmd(&["SENTINEL", "MASTER", NAME]).accepted();
    is_healthy(&master) && healthy("REPLICAS") > 0 && healthy("SENTINELS") == others
}

/// Names and values take turns.
fn is_healthy(fields: &Reply) -> bool {
    let value = |name: &str| {
        let mut pairs = fields.items().chunks_exact(2);
        pairs.find(|pair| pair[0].text() == name).map(|pair| pair[1].text())
    };
    let flags = value("flags").unwrap_or_default();
    let is_linked = value("master-link-status").is_none_or(|status| status == "ok");
    is_linked && !flags.split(',').any(|flag| matches!(flag, "s_down" | "o_down" | "disconnected"))
}
