//! Claims records and deals them to the lanes; keeps leases alive; closes in order.

use super::crew::{Crew, Outcome, Tally, enter};
use super::dealt::Dealt;
use super::held::Why;
use super::turn::Turn;
use super::{Method, Plan, tidy};
use crate::backend::{Beat, Claim, Claimed};
use crate::clock::instant;
use crate::{Guid, Journal, JournalError};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinHandle;

/// How often to look at least for leases that have ended.
const LOOK: Duration = Duration::from_secs(1);

/// How long the driver goes on.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// Until the worker is closed.
    Closed,
    /// Until everything is done that was due then.
    Done { as_of: SystemTime },
}

/// The tasks of a worker at work. Dropped before it was closed, it takes all of them along.
pub(super) struct Engine {
    pub(super) crew: Arc<Crew>,
    lanes: Vec<Dealt>,
    /// Something was deferred in this process.
    due: watch::Receiver<u64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Engine {
    pub(super) fn start(
        journal: &Journal,
        plan: &Plan,
        until: Until,
        methods: Vec<Arc<Method>>,
        tally: &Arc<Tally>,
        closing: watch::Receiver<bool>,
    ) -> Self {
        let (crew, outcomes): (_, mpsc::UnboundedReceiver<Outcome>) =
            Crew::new(journal, plan, until, methods, tally, closing);
        let lanes = crew.methods.iter().map(|method| Dealt::start(&crew, method)).collect();
        let tasks = vec![
            tokio::spawn(enter(crew.clone(), outcomes)),
            tokio::spawn(keep_leases(crew.clone())),
            tokio::spawn(watch_leases(crew.clone())),
            tokio::spawn(hear_cancelled(crew.clone())),
        ];
        Self { due: journal.shared.due.subscribe(), crew, lanes, tasks }
    }

    /// Claims and deals for as long as asked.
    pub(super) async fn drive(&mut self) -> Result<(), JournalError> {
        let until = self.crew.until;
        let mut wait = Duration::from_millis(100);
        while !self.crew.is_closing() {
            let wants = self.wants();
            if wants.is_empty() {
                if let Until::Done { .. } = until
                    && self.lanes.iter().all(|lane| lane.dry_until.is_some() && !lane.line.is_stuck())
                    && self.crew.held.count() == 0
                {
                    return Ok(());
                }
                self.pause(until).await;
                continue;
            }
            let begun = self.crew.journal.backend().clock();
            match self.claim(&wants, until).await {
                Ok(claimed) => {
                    wait = Duration::from_millis(100);
                    let surely = self.crew.journal.backend().surely(self.crew.plan.lease);
                    self.deal(claimed, &wants, begun + surely);
                }
                Err(error) => {
                    if let Until::Done { .. } = until {
                        return Err(error);
                    }
                    tracing::warn!("nothing can be claimed: {error}");
                    tokio::select! { () = tokio::time::sleep(wait) => {}, () = self.crew.closed() => {} }
                    wait = (wait * 2).min(Duration::from_secs(5));
                }
            }
        }
        Ok(())
    }

    /// Gives back what has not started, lets run what runs for the grace time, enters all.
    pub(super) async fn close(mut self) {
        // Each lane gives back what it holds. What it sent is entered before the end, or cannot be.
        self.lanes.iter_mut().for_each(Dealt::close);
        let crew = &self.crew;
        if !held_empty(crew, crew.plan.grace).await {
            crew.held.stop_all(Why::Closing);
            if !held_empty(crew, Duration::from_secs(5).max(crew.plan.grace)).await {
                tracing::warn!("{} replays did not stop; their leases lapse", crew.held.count());
            }
        }
    }

    async fn claim(&self, wants: &[(String, u32)], until: Until) -> Result<Vec<Claimed>, JournalError> {
        let plan = &self.crew.plan;
        let as_of = match until {
            Until::Closed => None,
            Until::Done { as_of } => Some(as_of),
        };
        let ask = Claim { owner: plan.owner.clone(), lease: plan.lease, wants: wants.to_vec(), as_of };
        self.crew.journal.backend().claim(ask).await
    }

    /// How many of which method to ask for.
    fn wants(&mut self) -> Vec<(String, u32)> {
        let (held, now) = (self.crew.held.counts(), instant());
        let mut wants = Vec::new();
        for lane in &mut self.lanes {
            let held = held.get(&lane.line.method).copied().unwrap_or(0);
            wants.extend(lane.want(held, now).map(|want| (lane.line.method.to_string(), want)));
        }
        wants
    }

    fn deal(&mut self, mut claimed: Vec<Claimed>, wants: &[(String, u32)], ours_until: Duration) {
        let crew = &self.crew;
        // A lane begins with the first that it gets.
        claimed.sort_by(|a, b| b.priority.cmp(&a.priority).then(a.create_time.cmp(&b.create_time)));
        let mut got: HashMap<&str, u32> = HashMap::new();
        for one in &claimed {
            *got.entry(one.method.as_str()).or_default() += 1;
        }
        let now = instant();
        for lane in &mut self.lanes {
            if let Some((name, want)) = wants.iter().find(|(name, _)| **name == *lane.line.method) {
                let is_dry = got.get(name.as_str()).copied().unwrap_or(0) < *want;
                lane.claimed(now, now + crew.plan.poll, is_dry);
            }
        }
        for one in claimed {
            let Some(lane) = self.lanes.iter().find(|lane| *one.method == *lane.line.method) else {
                continue;
            };
            crew.tally.picked(&lane.line.method);
            let stop = crew.held.add(&one.lease, &lane.line, ours_until);
            lane.deal(Turn::new(one, stop));
        }
    }

    /// Until there may be something to claim.
    async fn pause(&mut self, until: Until) {
        let crew = &self.crew;
        if let Until::Done { .. } = until {
            // What is dry stays dry: later records are the next pass's.
            let far = instant() + Duration::from_secs(86_400);
            self.lanes.iter_mut().filter_map(|lane| lane.dry_until.as_mut()).for_each(|dry| *dry = far);
            tokio::select! { () = crew.held.room.notified() => {}, () = crew.closed() => {} }
            return;
        }
        let (held, now) = (crew.held.counts(), instant());
        let held = |lane: &Dealt| held.get(&lane.line.method).copied().unwrap_or(0);
        let soonest = self.lanes.iter().filter_map(|lane| lane.next_claim(held(lane))).min();
        let wake = soonest.unwrap_or(now + crew.plan.poll);
        tokio::select! {
            () = crew.closed() => {}
            // The journal lives for as long as the crew, so it changes, or nothing comes.
            _ = self.due.changed() => self.lanes.iter_mut().for_each(|lane| lane.dry_until = None),
            () = crew.held.room.notified() => {}
            () = tokio::time::sleep_until(wake.into()) => {}
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // After a close nothing is left of this. Otherwise what runs stops, and its leases lapse:
        // nobody would ever enter what came of it.
        self.lanes.iter().for_each(Dealt::abort);
        self.crew.held.stop_all(Why::Lost);
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Waits until nothing is in hand.
async fn held_empty(crew: &Crew, at_most: Duration) -> bool {
    let empty = async {
        while crew.held.count() > 0 {
            crew.held.room.notified().await;
        }
    };
    tokio::time::timeout(at_most, empty).await.is_ok()
}

/// Prolongs all leases three times in their length, so that two attempts may fail.
async fn keep_leases(crew: Arc<Crew>) {
    let length = crew.plan.lease;
    loop {
        tokio::time::sleep(length / 3).await;
        let leases = crew.held.leases();
        if leases.is_empty() {
            continue;
        }
        let begun = crew.journal.backend().clock();
        match crew.journal.backend().beat(leases.clone(), length).await {
            Ok(Beat { prolonged, lost }) => {
                let among = |guids: Vec<Guid>| {
                    let guids: HashSet<Guid> = guids.into_iter().collect();
                    leases.iter().filter(move |lease| guids.contains(&lease.guid))
                };
                crew.held.prolong(among(prolonged), begun + crew.journal.backend().surely(length));
                among(lost).for_each(|lease| crew.held.lose(&lease.guid, lease.number + 1));
            }
            Err(error) => tracing::warn!("leases cannot be prolonged: {error}"),
        }
    }
}

/// What could not be prolonged in time stops: others may have it by now, and it would run twice.
/// Beside the signs of life, which may be waiting for a database that does not answer.
async fn watch_leases(crew: Arc<Crew>) {
    // Timers stand still while the machine is suspended, so it looks often.
    let look = (crew.plan.lease / 10).min(LOOK);
    loop {
        tokio::time::sleep(crew.held.lapse().min(look)).await;
    }
}

/// What is cancelled in this process stops at once.
async fn hear_cancelled(crew: Arc<Crew>) {
    let mut cancelled = crew.journal.shared.waiters.cancelled();
    loop {
        match cancelled.recv().await {
            Ok((guid, number)) => crew.held.lose(&guid, number),
            // The next sign of life finds out.
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// A worker's life: works until closed, and then closes in order.
pub(super) async fn live(mut engine: Engine) {
    tidy::announce_first(&engine.crew).await;
    let tidying = tokio::spawn(tidy::from_time_to_time(engine.crew.clone()));
    // Only a pass can fail; a worker that lives tries again.
    let _ = engine.drive().await;
    tidying.abort();
    engine.close().await;
}
