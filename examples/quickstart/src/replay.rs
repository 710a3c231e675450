//! Sends the traffic through one limit and notes what becomes of each call.

use crate::traffic::LENGTH_MS;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate::{Acquire, Algorithm, GateError, Limiter, ManualClock, Permit, Timestamp, Verdict};

/// How long a call holds its place, for a concurrency limit.
const CALL_MS: u64 = 300;

/// What became of the calls.
pub(crate) struct Replay {
    pub(crate) limit: String,
    pub(crate) meaning: String,
    pub(crate) asked_ms: Vec<u64>,
    pub(crate) started_ms: Vec<u64>,
    /// Of those that started.
    pub(crate) waited: usize,
    pub(crate) denied: usize,
}

pub(crate) fn replay(limit: &str, meaning: &str, asked_ms: &[u64]) -> Result<Replay, GateError> {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).max_keys(16).build();
    let gate = limiter.gate("quickstart", limit)?;
    let holds_place = matches!(gate.limit().algorithm(), Algorithm::Concurrency { .. });

    let mut replay = Replay {
        limit: limit.into(),
        meaning: meaning.into(),
        asked_ms: asked_ms.to_vec(),
        started_ms: Vec::new(),
        waited: 0,
        denied: 0,
    };
    let mut waiting: Vec<Acquire> = Vec::new();
    let mut running: Vec<(u64, Permit)> = Vec::new();
    for now_ms in 0..LENGTH_MS + 2_000 {
        clock.set(Timestamp::from_micros(now_ms * 1_000));
        running.retain(|(end_ms, _)| *end_ms > now_ms);
        let mut note = |verdict: Verdict, replay: &mut Replay| match verdict.into_permit() {
            Ok(permit) => {
                replay.started_ms.push(now_ms);
                if holds_place {
                    running.push((now_ms + CALL_MS, permit));
                }
            }
            Err(_) => replay.denied += 1,
        };
        waiting.retain_mut(|call| match poll(call) {
            Poll::Ready(verdict) => {
                replay.waited += usize::from(verdict.is_allowed());
                note(verdict, &mut replay);
                false
            }
            Poll::Pending => true,
        });
        for _ in asked_ms.iter().filter(|at| **at == now_ms) {
            let mut call = gate.acquire("everyone");
            match poll(&mut call) {
                Poll::Ready(verdict) => note(verdict, &mut replay),
                Poll::Pending => waiting.push(call),
            }
        }
    }
    Ok(replay)
}

fn poll(call: &mut Acquire) -> Poll<Verdict> {
    pin!(call).poll(&mut Context::from_waker(Waker::noop()))
}

impl Replay {
    /// Calls in each slice of `slice_ms`, over the length of the traffic.
    pub(crate) fn by_slice(times_ms: &[u64], slice_ms: u64) -> Vec<u64> {
        let mut counts = vec![0; LENGTH_MS.div_ceil(slice_ms) as usize];
        for at in times_ms {
            if let Some(count) = counts.get_mut((at / slice_ms) as usize) {
                *count += 1;
            }
        }
        counts
    }

    /// The most starts in any second, and the most that the limit promises.
    pub(crate) fn busiest_second(&self) -> (usize, Option<u64>) {
        let most = self.started_ms.iter().enumerate().map(|(first, from)| {
            self.started_ms[first..].iter().take_while(|at| **at < from + 1_000).count()
        });
        let limit: Option<tidegate::Limit> = self.limit.parse().ok();
        let bound = limit
            .filter(|limit| !matches!(limit.algorithm(), Algorithm::Concurrency { .. }))
            .map(|limit| limit.worst_case(Duration::from_secs(1), 1));
        (most.max().unwrap_or(0), bound)
    }
}
