//! One server: who waits for it, what is on the way to it, and whether it answers.
//!
//! While a flight of calls is on its way, questions gather; those about the same keys
//! become one group, and the next flight carries them all. Two lanes of flights overlap,
//! each about other subjects. So the busier it is, the
//! fewer calls a question costs, and nobody waits for company.

use super::connection::Connection;
use super::core::Core;
use super::job::{self, Change, Fault, Group, How, Job, Key, LANES, Request, What};
use super::stats::count;
use crate::clock::Timestamp;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Groups that share a call: some hundred microseconds of the server's time.
const GROUPS_IN_CALL: usize = 64;
/// Requests that share a group.
const REQUESTS_IN_GROUP: usize = 1024;
/// Answers that may be missed in a row before the server counts as away.
const MISSES: u32 = 3;
/// The first and the longest pause between two tries to reach a server.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A slot that is being moved is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_millis(2);

pub(crate) struct Shard {
    /// Where it is, as far as it is known.
    address: Mutex<String>,
    lanes: [Lane; LANES],
    /// False while it does not answer: then nobody is made to wait for it.
    is_up: AtomicBool,
    /// When it is tried again, on the real clock.
    retry_at_us: AtomicU64,
    is_retired: AtomicBool,
    /// True while its lanes are flown. Otherwise nobody looks at who waits in them but
    /// the one who answers those whose deadline passes.
    is_served: AtomicBool,
    unserved: Notify,
    /// Which one it is, and since when it is known, on the local clock.
    pub(crate) number: usize,
    pub(crate) since: Timestamp,
    lead: Mutex<Lead>,
}

/// How far the server's clock is ahead of ours, at most: the least that any answer has
/// shown, lately. An answer's time lies after the moment of asking by what the way took,
/// so the quickest way shows it best.
#[derive(Clone, Copy)]
struct Lead {
    least_us: i64,
    /// The same, of the span before.
    before_us: i64,
    since: Timestamp,
}

/// Clocks drift apart: what was shown longer ago than one or two of these is forgotten.
const LATELY: Duration = Duration::from_secs(1);

/// Where questions gather for the next flight.
#[derive(Default)]
struct Lane {
    gathered: Mutex<Gathered>,
    wake: Notify,
}

#[derive(Default)]
struct Gathered {
    jobs: Vec<Waiting>,
    /// The groups that others can still join.
    open: HashMap<u64, usize>,
}

struct Waiting {
    job: Job,
    /// Sent in a call of its own.
    is_alone: bool,
    /// The slot is being moved, and this server is where it goes to.
    is_asking: bool,
    not_before: Timestamp,
}

impl Shard {
    pub(crate) fn new(address: String, number: usize, since: Timestamp) -> Self {
        Self {
            is_served: AtomicBool::new(false),
            unserved: Notify::new(),
            number,
            since,
            lead: Mutex::new(Lead { least_us: i64::MAX, before_us: i64::MAX, since }),
            address: Mutex::new(address),
            lanes: Default::default(),
            is_up: AtomicBool::new(true),
            retry_at_us: AtomicU64::new(0),
            is_retired: AtomicBool::new(false),
        }
    }

    pub(crate) fn address(&self) -> String {
        self.address.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The latest moment on our clock at which the server's can have shown `now_us`, in
    /// answer to what was asked at `sent`. Not before that.
    fn reckon(&self, sent: Timestamp, now_us: u64) -> Timestamp {
        let signed = |us: u64| i64::try_from(us).unwrap_or(i64::MAX);
        let (now_us, sent_us) = (signed(now_us), signed(sent.as_micros()));
        let mut lead = self.lead.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.since(lead.since) >= LATELY || sent < lead.since {
            *lead = Lead { least_us: i64::MAX, before_us: lead.least_us, since: sent };
        }
        lead.least_us = lead.least_us.min(now_us.saturating_sub(sent_us));
        let least_us = lead.least_us.min(lead.before_us);
        Timestamp::from_micros(u64::try_from(now_us.saturating_sub(least_us)).unwrap_or(0)).max(sent)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    /// What to tell those whom it does not answer.
    pub(crate) fn fault(&self, core: &Core) -> Fault {
        let now_us = core.now().as_micros();
        Fault { retry_us: self.retry_at_us.load(Ordering::Relaxed).saturating_sub(now_us).max(1_000) }
    }

    /// No longer part of the Cluster.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    /// One request about one key; `key` is only called if nobody asks about it yet.
    pub(crate) fn ask_one(
        &self,
        bytes: &[u8],
        hash: u64,
        joins: bool,
        is_same: impl Fn(&Key) -> bool,
        key: impl FnOnce() -> Key,
        request: Request,
    ) {
        let lane = &self.lanes[job::lane(bytes)];
        let mut gathered = lane.lock();
        // Looked at under the lock: whoever takes the server down answers all in the lane.
        if !self.is_up() {
            drop(gathered);
            request.promise.keep(Err(Fault::default()));
            return;
        }
        if joins
            && let Some(group) = gathered.joinable(hash)
            && group.keys.len() == 1
            && is_same(&group.keys[0])
        {
            count(&group.keys[0].meter.core().counters.coalesced, 1);
            group.requests.push(request);
            // Whoever opened the group has woken the lane.
            return;
        }
        let mut keys = SmallVec::new();
        keys.push(key());
        gathered.open(hash, keys, request, joins);
        drop(gathered);
        lane.wake.notify_one();
    }

    /// One request about several keys.
    pub(crate) fn ask(&self, keys: SmallVec<[Key; 1]>, joins: bool, request: Request) {
        let hash = keys.iter().fold(0u64, |all, key| all.rotate_left(7) ^ key.hash ^ u64::from(key.meter.id));
        let lane = &self.lanes[job::lane(&keys[0].bytes)];
        let mut gathered = lane.lock();
        if !self.is_up() {
            drop(gathered);
            request.promise.keep(Err(Fault::default()));
            return;
        }
        if joins
            && let Some(group) = gathered.joinable(hash)
            && is_same(&group.keys, &keys)
        {
            count(&keys[0].meter.core().counters.coalesced, 1);
            group.requests.push(request);
            return;
        }
        gathered.open(hash, keys, request, joins);
        drop(gathered);
        lane.wake.notify_one();
    }

    pub(crate) fn change(&self, change: Change) {
        self.put(Waiting::new(Job::Change(change), false));
    }

    /// Something that another server did not do.
    fn redirect(&self, job: Job, is_asking: bool, not_before: Timestamp) {
        // In its own company: with others, of which only some have moved, it would be sent
        // back again.
        self.put(Waiting { job, is_alone: true, is_asking, not_before });
    }

    /// Puts something behind what has gathered. What is asked from now on comes after it.
    fn put(&self, waiting: Waiting) {
        let lane = &self.lanes[waiting.job.lane()];
        let mut gathered = lane.lock();
        if !self.is_up() {
            drop(gathered);
            return waiting.job.fail(Fault::default());
        }
        gathered.open.clear();
        gathered.jobs.push(waiting);
        drop(gathered);
        lane.wake.notify_one();
    }

    fn wake_all(&self) {
        self.lanes.iter().for_each(|lane| lane.wake.notify_one());
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.lanes.iter().all(|lane| lane.lock().jobs.is_empty())
    }

    fn fail_all(&self, core: &Core) {
        let fault = self.fault(core);
        for waiting in self.lanes.iter().flat_map(Lane::take) {
            waiting.job.fail(fault);
        }
    }

    /// Answers those in the lanes whose deadline has passed.
    fn fail_late(&self, core: &Core) {
        let (until, fault) = (core.now().before(core.config.deadline), self.fault(core));
        for lane in &self.lanes {
            let mut late = Vec::new();
            let mut gathered = lane.lock();
            for waiting in &mut gathered.jobs {
                if let Job::Decide(group) = &mut waiting.job {
                    late.extend(group.requests.extract_if(.., |request| request.since <= until));
                } else {
                    waiting.job.fail_until(until, fault);
                }
            }
            drop(gathered);
            count(&core.counters.timeouts, late.len() as u64);
            for request in late {
                request.promise.keep(Err(fault));
            }
        }
    }

    fn goes_down(&self, core: &Core, pause: Duration, why: &str) {
        let retry_at = core.now() + pause;
        self.retry_at_us.store(retry_at.as_micros(), Ordering::Relaxed);
        if self.is_up.swap(false, Ordering::Relaxed) {
            tracing::warn!(server = self.address(), why, "Redis does not answer: gates fall back");
        }
        self.fail_all(core);
    }

    fn comes_up(&self) {
        if !self.is_up.swap(true, Ordering::Relaxed) {
            tracing::info!(server = self.address(), "Redis answers again");
        }
    }
}

fn is_same(one: &[Key], other: &[Key]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(a, b)| {
            Arc::ptr_eq(&a.version, &b.version) && Arc::ptr_eq(&a.meter, &b.meter) && a.bytes == b.bytes
        })
}

impl Lane {
    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Vec<Waiting> {
        let mut gathered = self.lock();
        gathered.open.clear();
        std::mem::take(&mut gathered.jobs)
    }
}

impl Waiting {
    fn new(job: Job, is_alone: bool) -> Self {
        Self { job, is_alone, is_asking: false, not_before: Timestamp::default() }
    }
}

impl Gathered {
    fn joinable(&mut self, hash: u64) -> Option<&mut Group> {
        let at = *self.open.get(&hash)?;
        match &mut self.jobs[at].job {
            Job::Decide(group) if group.requests.len() < REQUESTS_IN_GROUP => Some(group),
            _ => None,
        }
    }

    fn open(&mut self, hash: u64, keys: SmallVec<[Key; 1]>, request: Request, joins: bool) {
        if joins {
            self.open.insert(hash, self.jobs.len());
        }
        self.jobs.push(Waiting::new(Job::Decide(Group { keys, requests: vec![request] }), !joins));
    }
}

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
    loop {
        if shard.is_retired.load(Ordering::Relaxed) || core.is_closed() {
            return;
        }
        match connect(&core, &shard, is_first).await {
            Ok((connection, address)) => {
                *shard.address.lock().unwrap_or_else(PoisonError::into_inner) = address;
                count(&core.counters.connects, 1);
                shard.comes_up();
                shard.is_served.store(true, Ordering::Relaxed);
                let since = core.now();
                let mut lost = Flights::new(&core, &shard, connection).serve().await;
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
                    tokio::time::sleep(pause).await;
                }
            }
            Err(error) => {
                is_first = false;
                let pause = pauses.next(&core);
                shard.goes_down(&core, pause, &error);
                core.look_around();
                tokio::time::sleep(pause).await;
            }
        }
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

/// Why a connection is given up.
struct Lost {
    why: &'static str,
    is_silent: bool,
    has_answered: bool,
}

struct Flights<'a> {
    core: &'a Arc<Core>,
    shard: &'a Shard,
    connection: Connection,
    /// Flights in a row, of either lane, that were not answered.
    misses: AtomicU32,
    has_answered: AtomicBool,
    lost: Mutex<Option<Lost>>,
}

/// What became of one call.
enum Fate {
    Done,
    /// No answer in time: what was asked may have been done.
    Missed,
    /// The connection is gone, and what was asked may have been done.
    Cut,
    /// The server says that it is not the one to ask now.
    Wrong(&'static str),
}

impl<'a> Flights<'a> {
    fn new(core: &'a Arc<Core>, shard: &'a Shard, connection: Connection) -> Self {
        Self {
            core,
            shard,
            connection,
            misses: AtomicU32::new(0),
            has_answered: AtomicBool::new(false),
            lost: Mutex::default(),
        }
    }

    /// Serves all lanes until the connection is given up.
    async fn serve(&self) -> Lost {
        futures_util::future::join_all(self.shard.lanes.iter().map(|lane| self.serve_lane(lane))).await;
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut lost =
            lost.unwrap_or(Lost { why: "it is no longer needed", is_silent: false, has_answered: false });
        lost.has_answered = self.has_answered.load(Ordering::Relaxed);
        lost
    }

    fn give_up(&self, why: &'static str, is_silent: bool) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.get_or_insert(Lost { why, is_silent, has_answered: false }).is_silent |= is_silent;
        drop(lost);
        self.shard.is_served.store(false, Ordering::Relaxed);
        self.shard.unserved.notify_one();
        // The other lanes, too, once their flight is over.
        self.shard.wake_all();
    }

    fn is_given_up(&self) -> bool {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    async fn serve_lane(&self, lane: &Lane) {
        while !self.is_given_up() {
            let waiting = lane.take();
            if waiting.is_empty() {
                if self.shard.is_retired.load(Ordering::Relaxed) || self.core.is_closed() {
                    return self.give_up("it is no longer needed", false);
                }
                lane.wake.notified().await;
                continue;
            }
            let fates = self.fly(waiting).await;
            if fates.is_empty() {
                // Everyone was answered, or what is left has to wait for its time.
                if !lane.lock().jobs.iter().all(|waiting| waiting.not_before == Timestamp::default()) {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                continue;
            }
            if fates.iter().any(|fate| matches!(fate, Fate::Done)) {
                self.misses.store(0, Ordering::Relaxed);
                self.has_answered.store(true, Ordering::Relaxed);
            } else if self.misses.fetch_add(1, Ordering::Relaxed) + 1 >= MISSES {
                return self.give_up("it does not answer in time", true);
            }
            for fate in fates {
                match fate {
                    Fate::Done | Fate::Missed => {}
                    Fate::Cut => return self.give_up("the connection was closed", false),
                    Fate::Wrong(why) => return self.give_up(why, true),
                }
            }
        }
    }

    /// Sends everything that has gathered and waits for the answers.
    async fn fly(&self, waiting: Vec<Waiting>) -> Vec<Fate> {
        let calls = self.calls(waiting);
        let mut flying = Vec::with_capacity(calls.len());
        for (jobs, is_asking) in calls {
            flying.push(self.send(jobs, is_asking));
        }
        futures_util::future::join_all(flying).await
    }

    /// Puts jobs into calls: all together on one server, by slot in a Cluster.
    fn calls(&self, waiting: Vec<Waiting>) -> Vec<(Vec<Job>, bool)> {
        let mut calls: Vec<(Vec<Job>, bool)> = Vec::new();
        let mut by_slot: HashMap<u16, usize> = HashMap::new();
        let mut marks: HashSet<usize> = HashSet::new();
        let now = self.core.now();
        for mut one in waiting {
            if one.not_before > now {
                self.shard.put(one);
                continue;
            }
            if let Job::Decide(group) = &mut one.job {
                self.thin_out(group, now);
                if group.requests.is_empty() {
                    continue;
                }
            }
            // A charge that is given back twice: where it stands then is not known yet.
            if let Job::Change(Change { what: What::GiveBack { mark, .. }, .. }) = &one.job
                && !marks.insert(Arc::as_ptr(mark).addr())
            {
                self.shard.put(one);
                continue;
            }
            if one.is_alone {
                calls.push((vec![one.job], one.is_asking));
                continue;
            }
            let slot = if self.core.is_cluster() { one.job.slot() } else { 0 };
            match by_slot.get(&slot) {
                Some(at) if calls[*at].0.len() < GROUPS_IN_CALL => calls[*at].0.push(one.job),
                _ => {
                    by_slot.insert(slot, calls.len());
                    calls.push((vec![one.job], false));
                }
            }
        }
        calls
    }

    /// Takes out who went away, and answers those whom the server's last word answers.
    fn thin_out(&self, group: &mut Group, now: Timestamp) {
        let deadline = self.core.config.deadline;
        group.requests.retain(|request| !request.promise.is_forsaken());
        let fault = self.shard.fault(self.core);
        group.requests.retain(|request| {
            let is_late = now.since(request.since) >= deadline;
            if is_late {
                request.promise.keep(Err(fault));
            }
            !is_late
        });
        if let [key] = group.keys.as_slice() {
            group.requests.retain(|request| {
                let How::Take(mode) = request.how else { return true };
                match key.meter.remembered(key.hash, &key.version, request.costs[0], mode) {
                    Some(decision) => {
                        request.promise.keep(Ok(job::Told::denied(decision)));
                        false
                    }
                    None => true,
                }
            });
        }
    }

    async fn send(&self, jobs: Vec<Job>, is_asking: bool) -> Fate {
        let core = self.core;
        let sent = core.clock.now();
        let call = job::write(core, &jobs);
        let asked: usize =
            jobs.iter().map(|job| if let Job::Decide(group) = job { group.requests.len() } else { 0 }).sum();
        count(&core.counters.calls, 1);
        count(&core.counters.asked, asked as u64);
        match self.in_time(&jobs, self.connection.call(core, &call, is_asking)).await {
            Some(Ok(Value::Array(values))) => {
                let now_us = if let Some(Value::Int(now)) = values.first() { *now } else { 0 };
                let reckoned = self.shard.reckon(sent, u64::try_from(now_us).unwrap_or(0));
                let errors = job::read(jobs, &values, self.shard, sent, reckoned, self.shard.fault(core));
                self.look_at(&errors)
            }
            Some(Ok(_)) => {
                self.unknown(jobs);
                Fate::Wrong("it answers something else than a script's result")
            }
            Some(Err(error)) => self.refused(&error, jobs),
            None => {
                self.unknown(jobs);
                Fate::Missed
            }
        }
    }

    /// Waits for the answer as long as anyone does. Whose deadline passes is answered by
    /// then, and the call goes on for the others.
    async fn in_time<T>(&self, jobs: &[Job], call: impl Future<Output = T>) -> Option<T> {
        let (core, deadline) = (self.core, self.core.config.deadline);
        let sent = core.now();
        let mut call = std::pin::pin!(call);
        let mut answered_until = Timestamp::default();
        loop {
            // What nobody waits for is given one deadline from now.
            let next = jobs.iter().filter_map(|job| job.next_since(answered_until)).min();
            let until = next.unwrap_or(sent) + deadline;
            match timeout(until.since(core.now()), call.as_mut()).await {
                Ok(answer) => return Some(answer),
                Err(_) => {
                    answered_until = core.now().before(deadline);
                    let fault = self.shard.fault(core);
                    let late: u64 = jobs.iter().map(|job| job.fail_until(answered_until, fault)).sum();
                    count(&core.counters.timeouts, late);
                }
            }
            if jobs.iter().all(|job| job.next_since(answered_until).is_none()) {
                return None;
            }
        }
    }

    /// What was asked may have been done: it counts as spent, and is not asked again.
    fn unknown(&self, jobs: Vec<Job>) {
        let fault = self.shard.fault(self.core);
        for job in jobs {
            if let Job::Decide(group) = &job {
                group.let_go_of_places();
            }
            job.fail(fault);
        }
    }

    /// Single jobs that the server did not do.
    fn look_at(&self, errors: &[String]) -> Fate {
        let Some(error) = errors.first() else { return Fate::Done };
        if self.core.may_warn() {
            tracing::warn!(server = self.shard.address(), error, "Redis refused a decision");
        }
        if errors.iter().any(|error| error.contains("READONLY")) {
            return Fate::Wrong("it is a replica that takes no writes");
        }
        Fate::Done
    }

    /// The whole call was refused. What was not done for sure is asked elsewhere, or
    /// again.
    fn refused(&self, error: &RedisError, jobs: Vec<Job>) -> Fate {
        let now = self.core.now();
        let fail = |jobs: Vec<Job>| {
            let fault = self.shard.fault(self.core);
            jobs.into_iter().for_each(|job| job.fail(fault));
        };
        let fate = match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => {
                self.core.look_around();
                for job in jobs {
                    match error.redirect_node().and_then(|(address, slot)| self.core.moved(address, slot)) {
                        Some(shard) => shard.redirect(job, false, Timestamp::default()),
                        None => job.fail(self.shard.fault(self.core)),
                    }
                }
                return Fate::Done;
            }
            ErrorKind::Server(ServerErrorKind::Ask) => {
                for job in jobs {
                    match error.redirect_node().and_then(|(address, _)| self.core.shard_at(address)) {
                        Some(shard) => shard.redirect(job, true, Timestamp::default()),
                        None => job.fail(self.shard.fault(self.core)),
                    }
                }
                return Fate::Done;
            }
            ErrorKind::Server(ServerErrorKind::TryAgain) => {
                for job in jobs {
                    self.shard.redirect(job, false, now + TRY_AGAIN);
                }
                return Fate::Done;
            }
            ErrorKind::Server(ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown) => {
                Fate::Wrong("its cluster is down")
            }
            ErrorKind::Server(ServerErrorKind::BusyLoading) => Fate::Wrong("it is loading its data"),
            ErrorKind::Server(ServerErrorKind::ReadOnly) => {
                Fate::Wrong("it is a replica that takes no writes")
            }
            ErrorKind::Server(ServerErrorKind::NoPerm) => {
                tracing::error!(
                    server = self.shard.address(),
                    error = error.to_string(),
                    "the Redis user may not run the script: see docs/redis.md for the rights it needs"
                );
                Fate::Wrong("the user lacks rights")
            }
            ErrorKind::Server(_) | ErrorKind::Extension => {
                if self.core.may_warn() {
                    tracing::warn!(
                        server = self.shard.address(),
                        error = error.to_string(),
                        "Redis refused a call"
                    );
                }
                // A script that failed may have done a part of what it was asked.
                self.unknown(jobs);
                return Fate::Done;
            }
            _ => {
                self.unknown(jobs);
                return Fate::Cut;
            }
        };
        fail(jobs);
        fate
    }
}
