//! A Redis cluster: three masters with a replica each.
//!
//! Made node by node instead of by `redis-cli --cluster create`, which takes three times
//! as long. What remains are the two seconds for which Redis lets no new master write.

use super::redis::{PATIENCE, Recipe, find};
use super::{RedisServer, Reply, wait_until};
use std::thread;

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// Six servers; the first three begin as masters, the fourth as the first's replica, and
/// so on. A master that is gone for a second is replaced by its replica.
#[derive(Debug)]
pub struct Cluster {
    /// The nodes, which can be killed, frozen and started again.
    pub servers: Vec<RedisServer>,
}

impl Cluster {
    /// A cluster that is ready, replicas and all.
    ///
    /// # Panics
    /// Where it does not get ready.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With further arguments for every node.
    ///
    /// # Panics
    /// Where it does not get ready.
    pub fn with(args: &[&str]) -> Self {
        let mut all = vec!["--cluster-node-timeout", "1000"];
        all.extend(args);
        let recipe = Recipe::node(&all);
        let servers = thread::scope(|scope| {
            let each: Vec<_> = (0..2 * MASTERS).map(|_| scope.spawn(|| RedisServer::make(&recipe))).collect();
            each.into_iter().map(|one| one.join().expect("every node starts")).collect()
        });
        let cluster = Self { servers };
        cluster.form();
        cluster.wait_ready();
        cluster
    }

    /// Where a client may begin.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(RedisServer::url).collect()
    }

    /// Those that are up and own slots, by what the best-informed node says.
    pub fn masters(&self) -> Vec<usize> {
        let nodes = self.nodes().into_iter();
        let masters = nodes.filter(|node| node.is_up(self) && node.is_master && !node.slots.is_empty());
        let mut masters: Vec<usize> = masters.map(|node| node.server).collect();
        masters.sort_unstable();
        masters
    }

    /// Which server owns the key's slot. It may be down, until its replica takes over.
    ///
    /// # Panics
    /// Where nobody owns it.
    pub fn master_of(&self, key: &str) -> usize {
        self.owner(self.slot(key))
    }

    /// The key's slot.
    ///
    /// # Panics
    /// Where no node is up.
    pub fn slot(&self, key: &str) -> u16 {
        let slot = self.any().cmd(&["CLUSTER", "KEYSLOT", key]).int();
        u16::try_from(slot).expect("there are 16384 slots")
    }

    /// Which server owns a slot.
    ///
    /// # Panics
    /// Where nobody owns it.
    pub fn owner(&self, slot: u16) -> usize {
        let owner = self.nodes().into_iter().find(|node| node.owns(slot));
        owner.unwrap_or_else(|| panic!("nobody owns slot {slot}")).server
    }

    /// A replica of that master.
    ///
    /// # Panics
    /// Where it has none that is up.
    pub fn replica_of(&self, master: usize) -> usize {
        let nodes = self.nodes();
        let id = nodes.iter().find(|node| node.server == master).map(|node| node.id.clone());
        let replica = nodes.iter().find(|node| node.is_up(self) && node.master == id && id.is_some());
        replica.unwrap_or_else(|| panic!("server {master} has no replica that is up")).server
    }

    /// Moves a slot and all its keys to another master.
    ///
    /// # Panics
    /// Where one of them does not play along.
    pub fn migrate(&self, slot: u16, from: usize, to: usize) {
        self.begin_migration(slot, from, to);
        self.move_keys(slot, from, to);
        self.end_migration(slot, from, to);
    }

    /// Announces the move. From now on `from` answers `ASK` for keys of the slot that it
    /// does not have, and `TRYAGAIN` for several of which it has some.
    ///
    /// # Panics
    /// Where one of them does not play along.
    pub fn begin_migration(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        self.servers[to].cmd(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.id(from)]).accepted();
        self.servers[from].cmd(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.id(to)]).accepted();
    }

    /// Moves the slot's keys.
    ///
    /// # Panics
    /// Where one of them does not play along.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let (slot, port) = (slot.to_string(), self.servers[to].port().to_string());
        loop {
            let some = self.servers[from].cmd(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).accepted();
            if some.items().is_empty() {
                return;
            }
            let mut command: Vec<&[u8]> =
                vec![b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"", b"0", b"5000", b"KEYS"];
            command.extend(some.items().iter().map(Reply::bytes));
            self.servers[from].cmd(&command).accepted();
        }
    }

    /// Gives the slot to its new owner, and waits until every node that is up knows.
    ///
    /// # Panics
    /// Where one of them does not play along.
    pub fn end_migration(&self, slot: u16, from: usize, to: usize) {
        let (text, id) = (slot.to_string(), self.id(to));
        // The new owner first: else the slot would have none if this stopped in between.
        let others = self.masters().into_iter().filter(|&master| master != to && master != from);
        for server in [to, from].into_iter().chain(others) {
            self.servers[server].cmd(&["CLUSTER", "SETSLOT", &text, "NODE", &id]).accepted();
        }
        wait_until("every node knows the slot's new owner", PATIENCE, || {
            self.up()
                .all(|server| self.seen_by(server).iter().any(|node| node.server == to && node.owns(slot)))
        });
    }

    /// Waits until all nodes that are up tell the same story, in which every slot is owned by
    /// one of them and every replica is fed. After a kill, this waits for the replica.
    ///
    /// # Panics
    /// Where that does not come.
    pub fn wait_ready(&self) {
        wait_until("the cluster is ready", PATIENCE, || self.is_ready());
    }

    fn is_ready(&self) -> bool {
        let is_ok = |server: &RedisServer| {
            let info = server.cmd(&["CLUSTER", "INFO"]).accepted().text();
            find(&info, "cluster_state").as_deref() == Some("ok")
        };
        let told = |server: &RedisServer| {
            let mut nodes = self.seen_by(server);
            nodes.retain(|node| node.is_up(self));
            nodes.sort_unstable_by_key(|node| node.server);
            nodes
        };
        let nodes = told(self.any());
        let is_fed = |replica: &ClusterNode| {
            let Some(id) = &replica.master else { return true };
            let master = nodes.iter().find(|node| node.id == *id).map(|node| &self.servers[node.server]);
            let replica = &self.servers[replica.server];
            master.is_some_and(|master| replica.is_linked() && master.feeds(replica))
        };
        nodes.len() == self.up().count()
            && nodes.iter().map(ClusterNode::slot_count).sum::<usize>() == SLOTS
            && nodes.iter().all(|node| !node.is_failing && is_fed(node))
            && self.up().all(|server| is_ok(server) && told(server) == nodes)
    }

    /// Everybody meets everybody, which spares them the gossip; then the roles are given.
    fn form(&self) {
        for (nth, server) in self.servers.iter().enumerate() {
            // Else they would begin with the same epoch, and have to sort it out.
            server.cmd(&["CLUSTER", "SET-CONFIG-EPOCH", &(nth + 1).to_string()]).accepted();
            if nth < MASTERS {
                let (first, end) = (nth * SLOTS / MASTERS, (nth + 1) * SLOTS / MASTERS);
                let range = [first.to_string(), (end - 1).to_string()];
                server.cmd(&["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]]).accepted();
            }
            for other in &self.servers[..nth] {
                let (port, bus) = (other.port().to_string(), other.bus_port().to_string());
                server.cmd(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).accepted();
            }
        }
        wait_until("all nodes have met", PATIENCE, || {
            self.servers.iter().all(|server| self.seen_by(server).len() == self.servers.len())
        });
        for (nth, replica) in self.servers[MASTERS..].iter().enumerate() {
            replica.cmd(&["CLUSTER", "REPLICATE", &self.id(nth)]).accepted();
        }
        wait_until("everybody knows the replicas", PATIENCE, || {
            self.servers.iter().all(|server| {
                self.seen_by(server).iter().filter(|node| node.master.is_some()).count() == MASTERS
            })
        });
    }

    fn id(&self, server: usize) -> String {
        self.servers[server].cmd(&["CLUSTER", "MYID"]).accepted().text()
    }

    fn up(&self) -> impl Iterator<Item = &RedisServer> {
        self.servers.iter().filter(|server| server.is_up())
    }

    fn any(&self) -> &RedisServer {
        self.up().next().expect("no node of the cluster is up")
    }

    /// By the node with the highest epoch: a master that comes back after its replica took
    /// over believes for a moment that nothing has changed.
    fn nodes(&self) -> Vec<ClusterNode> {
        let epoch = |server: &&RedisServer| {
            let info = server.cmd(&["CLUSTER", "INFO"]).accepted().text();
            find(&info, "cluster_current_epoch").and_then(|text| text.parse::<u64>().ok())
        };
        self.seen_by(self.up().max_by_key(epoch).expect("no node of the cluster is up"))
    }

    fn seen_by(&self, server: &RedisServer) -> Vec<ClusterNode> {
        let text = server.cmd(&["CLUSTER", "NODES"]).accepted().text();
        text.lines().filter_map(|line| self.node(line)).collect()
    }

    /// A line of `CLUSTER NODES`: id, address, flags, master, three numbers, link, slots.
    /// Nodes that have not met yet, and those that were there before, are left out.
    fn node(&self, line: &str) -> Option<ClusterNode> {
        let words: Vec<&str> = line.split(' ').collect();
        let (addr, flags) = (words.get(1)?.split('@').next()?, words.get(2)?);
        let server = self.servers.iter().position(|server| server.addr() == addr)?;
        let has = |flag: &str| flags.split(',').any(|one| one == flag);
        if has("handshake") || has("noaddr") {
            return None;
        }
        let master = words.get(3).filter(|master| **master != "-").map(ToString::to_string);
        let slots = words.get(8..).unwrap_or_default().iter().filter_map(|text| range(text)).collect();
        let (is_master, is_failing) = (has("master"), has("fail") || has("fail?"));
        Some(ClusterNode { server, id: words[0].to_owned(), is_master, is_failing, master, slots })
    }
}

/// What one node says of another, or of itself.
#[derive(PartialEq)]
struct ClusterNode {
    server: usize,
    id: String,
    is_master: bool,
    is_failing: bool,
    master: Option<String>,
    slots: Vec<(u16, u16)>,
}

impl ClusterNode {
    fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|&(first, last)| (first..=last).contains(&slot))
    }

    fn slot_count(&self) -> usize {
        self.slots.iter().map(|&(first, last)| usize::from(last - first) + 1).sum()
    }

    fn is_up(&self, cluster: &Cluster) -> bool {
        cluster.servers[self.server].is_up()
    }
}

/// `7` or `0-5460`; not `[7->-id]`, a slot on its way.
fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}
