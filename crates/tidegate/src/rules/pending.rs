//! The long way of a request: one that may wait, hold a place, or ask a store elsewhere.

use crate::caller::Caller;
use crate::clock::Timestamp;
use crate::http::guard::Shared;
use crate::http::response::Protocol;
use crate::limiter::Check;
use crate::pending::Pending;
use crate::permit::Permit;
use crate::rules::decide::{Ask, Asks, Decisions, Judged};
use crate::rules::judge::Judge;
use crate::rules::rule_set::RuleSet;
use crate::verdict::Verdict;
use smallvec::SmallVec;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

/// A request that may wait, hold a place, or ask a store elsewhere.
pub(crate) struct Asking {
    pub(crate) shared: Arc<Shared>,
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) asks: Asks,
    pub(crate) protocol: Protocol,
    pub(crate) caller: Caller,
    pub(crate) started: Option<Timestamp>,
}

impl Asking {
    pub(crate) async fn run(self) -> Judged {
        let judge = Judge { shared: &self.shared, rules: &self.rules, started: self.started };
        let (decisions, wait, permit) = self.decide(&judge).await;
        let mut passage = judge.settle(&self.asks.live, &decisions, wait, || self.protocol)?;
        let mut permits: SmallVec<[Permit; 1]> = permit.into_iter().collect();
        for (ask, verdict) in self.asks.shadow.iter().zip(self.watch(&judge).await) {
            judge.watch(ask, verdict.decisions(), verdict.wait());
            permits.extend(place(&judge, std::slice::from_ref(ask), verdict.into_permit().ok()));
        }
        if !permits.is_empty() {
            passage.more.get_or_insert_default().places = permits;
        }
        passage.caller = self.caller;
        Ok(passage)
    }

    /// Asks all rules that only watch: each alone, and all at the same time, so that however
    /// many they are, a store elsewhere takes no longer than for one.
    async fn watch(&self, judge: &Judge<'_>) -> Vec<Verdict> {
        let ask = |ask| self.shared.limiter.reserve_async(&checks(judge, std::slice::from_ref(ask)));
        let mut asked: Vec<(Pending<Verdict>, Option<Verdict>)> =
            self.asks.shadow.iter().map(|shadow| (ask(shadow), None)).collect();
        poll_fn(|context| {
            let mut is_whole = true;
            for (future, verdict) in asked.iter_mut().filter(|(_, verdict)| verdict.is_none()) {
                match Pin::new(future).poll(context) {
                    Poll::Ready(told) => *verdict = Some(told),
                    Poll::Pending => is_whole = false,
                }
            }
            if is_whole { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        asked.into_iter().filter_map(|(_, verdict)| verdict).collect()
    }

    /// Asks all rules in force, and waits for the start.
    async fn decide(&self, judge: &Judge<'_>) -> (Decisions, Duration, Option<Permit>) {
        let live = &self.asks.live[..];
        if live.is_empty() {
            return Default::default();
        }
        let limiter = &self.shared.limiter;
        let waits = judge.policies(live).any(|(_, policy, _)| policy.waits);
        let verdict = if waits {
            match Waiting::begin(&self.shared.waiting, self.shared.waiting_max) {
                Some(_waiting) => limiter.acquire(&checks(judge, live)).await,
                // As many wait as may: those who would have to are refused.
                None => limiter.hold_async(&checks(judge, live)).await,
            }
        } else if judge.policies(live).any(|(_, policy, _)| policy.is_place) {
            limiter.hold_async(&checks(judge, live)).await
        } else if let [ask] = live
            && let [policy] = judge.rules.rules[ask.rule].policies.as_slice()
        {
            // One gate alone can spend what it has taken ahead.
            let decision = policy.gate.check_cost_async(&ask.key, ask.cost).await;
            return (Decisions::from_slice(&[decision]), Duration::ZERO, None);
        } else {
            limiter.check_async(&checks(judge, live)).await
        };
        let (decisions, wait) = (Decisions::from_slice(verdict.decisions()), verdict.waited());
        (decisions, wait, place(judge, live, verdict.into_permit().ok()))
    }
}

/// All checks of these questions.
fn checks<'b>(judge: &Judge<'b>, asks: &'b [Ask]) -> Vec<Check<'b>> {
    judge.checks(asks).collect()
}

/// The permit, if there is a place in it to hold.
fn place(judge: &Judge<'_>, asks: &[Ask], permit: Option<Permit>) -> Option<Permit> {
    permit.filter(|_| judge.policies(asks).any(|(_, policy, _)| policy.is_place))
}

/// One of those that wait.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a AtomicUsize, max: usize) -> Option<Self> {
        let one_more = |now: usize| (now < max).then_some(now + 1);
        waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Self(waiting))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
