//! Many callers on one key, at nodes whose limits differ and change: what starts is counted,
//! and held against what the limits promise together. Knows nothing of how it is decided.

use crate::model::{MILLION, State};
use crate::windows::{Edge, busiest};
use crate::{Mode, Subject};
use std::time::Duration;
use tidegate::{Algorithm, Limit};

/// What happened to a hot key.
#[derive(Clone, Debug, Default)]
pub struct Crowd {
    /// Starts: when, and how many units.
    pub starts: Vec<(u64, u64)>,
    /// The limits that were in force.
    pub limits: Vec<Limit>,
    /// The longest that a node denied one unit, beyond a full key of its limit, counted from
    /// the last grant and from when its limit came into force.
    pub locked_out_us: u64,
    /// How long it was watched.
    pub until_us: u64,
}

/// What a controller does at a time: nothing, or another limit for a node.
pub type Controller<'a> = &'a mut dyn FnMut(u64) -> Vec<(usize, Limit)>;

/// Every `step_us` each node in turn starts all that it is let start, until it is denied.
///
/// # Panics
/// Where more starts at one instant than any limit could mean.
pub fn crowd(
    subject: &mut dyn Subject,
    nodes: &[Limit],
    step_us: u64,
    until_us: u64,
    control: Controller<'_>,
) -> Crowd {
    let mut in_force: Vec<(Limit, u64)> = nodes.iter().map(|limit| (limit.clone(), 0)).collect();
    let mut crowd = Crowd { limits: nodes.to_vec(), until_us, ..Crowd::default() };
    let mut granted_us = 0;
    for (nth, now_us) in (0..until_us).step_by(usize::try_from(step_us).unwrap_or(1)).enumerate() {
        for (node, limit) in control(now_us) {
            subject.turn_to(node);
            subject.change(now_us, &limit);
            if in_force[node].0 != limit {
                in_force[node] = (limit.clone(), now_us);
            }
            if !crowd.limits.contains(&limit) {
                crowd.limits.push(limit);
            }
        }
        for node in (0..nodes.len()).map(|node| (node + nth) % nodes.len()) {
            subject.turn_to(node);
            let mut asked = 0;
            while subject.decide(now_us, b"hot", 1, Mode::Check).allowed {
                crowd.starts.push((now_us, 1));
                granted_us = now_us;
                asked += 1;
                assert!(asked < 1_000_000, "node {node} starts without end at {now_us}us");
            }
            let (limit, since_us) = &in_force[node];
            let denied_us = now_us - granted_us.max(*since_us);
            let over_us = denied_us.saturating_sub(full_key_us(limit));
            crowd.locked_out_us = crowd.locked_out_us.max(over_us);
        }
    }
    crowd
}

/// How long a full key of a limit takes until it is as good as new.
pub fn full_key_us(limit: &Limit) -> u64 {
    let mut full = State::new(limit);
    full.hold(0, 1_000_000_000_000 * MILLION);
    u64::try_from(full.idle_at(0)).unwrap_or(u64::MAX)
}

impl Crowd {
    /// Units that started.
    pub fn units(&self) -> u64 {
        self.starts.iter().map(|(_, units)| units).sum()
    }

    /// Units that started after the first instant, which takes the bursts.
    pub fn flowed(&self) -> u64 {
        self.starts.iter().filter(|(at_us, _)| *at_us > 0).map(|(_, units)| units).sum()
    }

    /// What the strictest of the limits lets flow in the time, without its burst: of a
    /// sliding window what fits with its oldest slice, of a warm-up what it lets start cold.
    pub fn least_flow(&self) -> u64 {
        let flow = |limit: &Limit| match *limit.algorithm() {
            Algorithm::WarmUp { .. } => flow(limit, self.until_us) / 3,
            Algorithm::SlidingWindow { slices } => flow(limit, self.until_us) * slices / (slices + 1),
            _ => flow(limit, self.until_us),
        };
        self.limits.iter().map(flow).min().unwrap_or(0)
    }

    /// The window in which most more started than may: its length, the units, the bound.
    pub fn worst_window(&self, windows_us: &[u64]) -> Option<(u64, u64, u64)> {
        let found = windows_us.iter().map(|window_us| {
            let units = busiest(&self.starts, *window_us, Edge::Closed).units;
            (*window_us, units, together(&self.limits, *window_us))
        });
        found.filter(|(_, units, bound)| units > bound).max_by_key(|(_, units, bound)| units - bound)
    }
}

/// At most so much starts in any window where these limits decide about one key: what the
/// loosest allows, if one is, else the largest burst and the highest rate.
pub fn together(limits: &[Limit], window_us: u64) -> u64 {
    let allows = |limit: &Limit| limit.worst_case(Duration::from_micros(window_us), 1);
    let is_looser = |a: &Limit, b: &Limit| {
        is_smooth(a) && is_smooth(b) && a.capacity() >= b.capacity() && flow(a, 1 << 50) >= flow(b, 1 << 50)
    };
    match limits.iter().find(|one| limits.iter().all(|other| is_looser(one, other))) {
        Some(loosest) => allows(loosest),
        None => {
            let burst = limits.iter().map(Limit::capacity).max().unwrap_or(0);
            burst + limits.iter().map(|limit| flow(limit, window_us) + 1).max().unwrap_or(0)
        }
    }
}

/// Units that flow in a time at a limit's rate, rounded down.
pub fn flow(limit: &Limit, us: u64) -> u64 {
    let units = u128::from(us) * u128::from(limit.amount()) / limit.period().as_micros().max(1);
    u64::try_from(units).unwrap_or(u64::MAX)
}

fn is_smooth(limit: &Limit) -> bool {
    matches!(limit.algorithm(), Algorithm::TokenBucket { .. } | Algorithm::LeakyBucket { .. })
}
