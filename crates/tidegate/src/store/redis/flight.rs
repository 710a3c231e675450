//! Flights of calls to one server, over one connection.

use super::accept::ENTRIES_MAX;
use super::connection::Connection;
use super::core::Core;
use super::job::{Change, Group, How, Job, Told, What};
use super::lane::{Lane, Waiting};
use super::read::Reply;
use super::shard::Shard;
use super::stats::count;
use super::write::write;
use crate::clock::Timestamp;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// Groups that share a call: some hundred microseconds of the server's time.
const GROUPS_IN_CALL: usize = 64;
/// Entries of windows and logs that the groups of a call may have to read together, at half a
/// microsecond each: below the deadline at its worst.
const ENTRIES_IN_CALL: u64 = 2 * ENTRIES_MAX;
/// Answers that may be missed in a row before the server counts as away.
const MISSES: u32 = 3;
/// A slot that is being moved is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_millis(2);

/// Why a connection is given up.
pub(super) struct Lost {
    pub(super) why: &'static str,
    pub(super) is_silent: bool,
    pub(super) has_answered: bool,
}

pub(super) struct Flights<'a> {
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
    pub(super) fn new(core: &'a Arc<Core>, shard: &'a Shard, connection: Connection) -> Self {
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
    pub(super) async fn serve(&self) -> Lost {
        futures_util::future::join_all(self.shard.lanes.iter().map(|lane| self.serve_lane(lane))).await;
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut lost =
            lost.unwrap_or(Lost { why: "it is no longer needed", is_silent: false, has_answered: false });
        lost.has_answered = self.has_answered.load(Ordering::Relaxed);
        lost
    }

    pub(super) fn give_up(&self, why: &'static str, is_silent: bool) {
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
        // The call that is being filled, and the entries that it may have to read.
        let mut by_slot: HashMap<u16, (usize, u64)> = HashMap::new();
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
            if let Job::Change(Change { what: What::GiveBack { given, has_own: true }, .. }) = &one.job
                && !marks.insert(Arc::as_ptr(&given[0].mark).addr())
            {
                self.shard.put(one);
                continue;
            }
            if one.is_alone {
                calls.push((vec![one.job], one.is_asking));
                continue;
            }
            let slot = if self.core.is_cluster() { one.job.slot() } else { 0 };
            let entries = one.job.entries();
            match by_slot.get_mut(&slot) {
                Some((at, sum))
                    if calls[*at].0.len() < GROUPS_IN_CALL && *sum + entries <= ENTRIES_IN_CALL =>
                {
                    *sum += entries;
                    calls[*at].0.push(one.job);
                }
                _ => {
                    by_slot.insert(slot, (calls.len(), entries));
                    calls.push((vec![one.job], false));
                }
            }
        }
        calls
    }

    /// Takes out who went away, and answers those whom the server's last word answers.
    fn thin_out(&self, group: &mut Group, now: Timestamp) {
        let until = now.before(self.core.config.deadline);
        let Group { keys, requests } = group;
        requests.retain(|request| {
            if request.promise.is_forsaken() {
                return false;
            }
            if request.since <= until {
                request.promise.keep(Err(self.shard.fault(self.core)));
                return false;
            }
            let ([key], How::Take(mode)) = (keys.as_slice(), request.how) else { return true };
            match key.meter.remembered(key.hash, &key.version, request.costs[0], mode) {
                Some(decision) => {
                    request.promise.keep(Ok(Told::denied(decision)));
                    false
                }
                None => true,
            }
        });
    }

    async fn send(&self, jobs: Vec<Job>, is_asking: bool) -> Fate {
        let core = self.core;
        let sent = core.clock.now();
        let call = write(core, &jobs);
        let asked: usize =
            jobs.iter().map(|job| if let Job::Decide(group) = job { group.requests.len() } else { 0 }).sum();
        count(&core.counters.calls, 1);
        count(&core.counters.asked, asked as u64);
        match self.in_time(&jobs, self.connection.call(core, &call, is_asking)).await {
            Some(Ok(Value::Array(values))) => {
                let now_us = if let Some(Value::Int(now)) = values.first() { *now } else { 0 };
                let mut lead = self.shard.lead.lock().unwrap_or_else(PoisonError::into_inner);
                let reckoned = lead.reckon(sent, u64::try_from(now_us).unwrap_or(0));
                drop(lead);
                let reply = Reply { core, shard: self.shard, sent, done: reckoned };
                let errors = reply.read(jobs, &values);
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
            self.say_refused(error);
        }
        // Its replicas are gone, perhaps to another master.
        if errors.iter().any(|error| error.contains("NOREPLICAS")) {
            self.core.ask_sentinels();
        }
        if errors.iter().any(|error| error.contains("READONLY")) {
            self.core.ask_sentinels();
            return Fate::Wrong("it is a replica that takes no writes");
        }
        Fate::Done
    }

    fn say_refused(&self, error: &str) {
        let server = self.shard.address();
        // As Redis 6 and 7 say it of a command within a script.
        if error.contains("can't run this command") || error.contains("ACL failure") {
            tracing::error!(
                server,
                error,
                "the Redis user may not do all that the script does: see docs/redis.md for the rights it needs"
            );
        } else {
            tracing::warn!(server, error, "Redis refused what it was asked");
        }
    }

    /// The whole call was refused. What was not done for sure is asked elsewhere, or
    /// again.
    fn refused(&self, error: &RedisError, jobs: Vec<Job>) -> Fate {
        let fault = self.shard.fault(self.core);
        let redirect = |jobs: Vec<Job>, shard: Option<Arc<Shard>>, is_asking: bool| {
            for job in jobs {
                match &shard {
                    Some(shard) => shard.redirect(job, is_asking, Timestamp::default()),
                    None => job.fail(fault),
                }
            }
            Fate::Done
        };
        let fate = match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => {
                self.core.look_around();
                let shard = error.redirect_node().and_then(|(address, slot)| self.core.moved(address, slot));
                return redirect(jobs, shard, false);
            }
            ErrorKind::Server(ServerErrorKind::Ask) => {
                let shard = error.redirect_node().and_then(|(address, _)| self.core.shard_at(address));
                return redirect(jobs, shard, true);
            }
            ErrorKind::Server(ServerErrorKind::TryAgain) => {
                let later = self.core.now() + TRY_AGAIN;
                jobs.into_iter().for_each(|job| self.shard.redirect(job, false, later));
                return Fate::Done;
            }
            ErrorKind::Server(ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown) => {
                Fate::Wrong("its cluster is down")
            }
            ErrorKind::Server(ServerErrorKind::BusyLoading) => Fate::Wrong("it is loading its data"),
            ErrorKind::Server(ServerErrorKind::ReadOnly) => {
                self.core.ask_sentinels();
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
                    self.say_refused(&error.to_string());
                }
                if error.code() == Some("NOREPLICAS") {
                    self.core.ask_sentinels();
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
        jobs.into_iter().for_each(|job| job.fail(fault));
        fate
    }
}
