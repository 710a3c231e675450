//! One node's share of a limit, for when Redis does not answer.

use crate::{Algorithm, Limit};
use std::time::Duration;

/// Five years: a limit may drain for ten, and the shortest leaky queue drains two units.
const PERIOD_MAX: Duration = Duration::from_micros(157_788_000_000_000);

/// A limit divided by a number of nodes; `None` where the slots of a concurrency limit are
/// fewer than the nodes.
///
/// Rates are divided exactly, by a longer period. What can start at once is rounded down,
/// but not below one unit: less would refuse every call. So all shares together have the
/// limit's rate, and start at once no more than the whole, or one unit a node. Slots are not
/// rounded up: what they protect may not bear one holder more.
pub(crate) fn per_node_share(limit: &Limit, nodes: u32) -> Option<Limit> {
    if nodes == 1 {
        return Some(limit.clone());
    }
    let part = |units: u64| (units / u64::from(nodes)).max(1);
    let (amount, period) = in_periods(limit, nodes);
    let smooth = || match limit.period() * nodes {
        period if period <= PERIOD_MAX => Limit::per(limit.amount(), period),
        _ => Limit::per(amount, period),
    };
    let wait = limit.wait();
    match limit.algorithm() {
        Algorithm::TokenBucket { burst } => smooth().burst(part(*burst)).wait(wait),
        Algorithm::WarmUp { warmup } => smooth().warmup(*warmup).wait(wait),
        Algorithm::LeakyBucket { capacity } => smooth().leaky().capacity(part(*capacity)),
        Algorithm::LeakyQueue { queue } => smooth().leaky().queue(part(*queue)),
        Algorithm::Ticked { cap } => {
            Limit::every(amount, period).cap(part(*cap)).offset(limit.offset()).wait(wait)
        }
        Algorithm::FixedWindow => Limit::per(amount, period).fixed_window().offset(limit.offset()).wait(wait),
        Algorithm::SlidingWindow { slices } => {
            Limit::per(amount, period).sliding_window().slices(*slices).wait(wait)
        }
        Algorithm::SlidingLog => Limit::per(amount, period).sliding_log().wait(wait),
        Algorithm::Concurrency { queue } => {
            let slots = Limit::concurrent(limit.amount() / u64::from(nodes));
            match queue / u64::from(nodes) {
                0 => slots,
                queue => slots.queue(queue).wait(wait),
            }
        }
    }
    .build()
    .ok()
}

/// One node's rate in whole units: of the limit's own period, or one unit of a longer one
/// where there are fewer units than nodes.
fn in_periods(limit: &Limit, nodes: u32) -> (u64, Duration) {
    let nodes = u64::from(nodes);
    if limit.amount() >= nodes {
        return (limit.amount() / nodes, limit.period());
    }
    let unit_us = (u128::from(limit.period_us()) * u128::from(nodes)).div_ceil(u128::from(limit.amount()));
    let unit = Duration::from_micros(u64::try_from(unit_us).unwrap_or(u64::MAX));
    (1, unit.min(PERIOD_MAX))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]
mod tests {
    use super::*;

    fn share(text: &str, nodes: u32) -> Option<String> {
        super::per_node_share(&text.parse().unwrap(), nodes).map(|share| share.to_string())
    }

    #[test]
    fn shares_add_up_to_no_more_than_the_whole() {
        assert_eq!(share("1000/s", 1).unwrap(), "1000/s");
        assert_eq!(share("1000/s burst 20", 3).unwrap(), "1000 per 3s burst 6");
        assert_eq!(share("5 per 10s sliding-log", 2).unwrap(), "2 per 10s sliding-log");
        assert_eq!(share("5/day fixed-window offset 8h", 2).unwrap(), "2/day fixed-window offset 8h");
        assert_eq!(share("20 every 1h cap 30 offset 5min", 2).unwrap(), "10 every 1h cap 15 offset 5min");
        assert_eq!(share("10 concurrent queue 50 wait 2s", 4).unwrap(), "2 concurrent queue 12 wait 2s");
        assert_eq!(share("10 concurrent queue 3 wait 2s", 4).unwrap(), "2 concurrent");
        for text in
            ["100/s burst 7", "leaky 50/s capacity 9", "20 every 1s cap 100", "7 per 1s sliding-window"]
        {
            let whole: Limit = text.parse().unwrap();
            let part = super::per_node_share(&whole, 3).unwrap();
            for ms in [0, 1, 500, 1_000, 10_000] {
                let window = Duration::from_millis(ms);
                assert!(
                    3 * part.worst_case(window, 1) <= whole.worst_case(window, 1) + 3,
                    "{text} in {ms} ms"
                );
            }
        }
    }

    #[test]
    fn a_share_below_one_unit_is_one_unit_at_the_rate_of_the_share() {
        assert_eq!(share("1000/s burst 2", 3).unwrap(), "1000 per 3s burst 1");
        assert_eq!(share("leaky 50/s capacity 2", 3).unwrap(), "leaky 50 per 3s capacity 1");
        assert_eq!(share("leaky 50/s queue 2", 3).unwrap(), "leaky 50 per 3s queue 1");
        assert_eq!(share("5 per 10s fixed-window", 6).unwrap(), "1 per 12s fixed-window");
        assert_eq!(share("5 per 10s sliding-window", 6).unwrap(), "1 per 12s sliding-window");
        assert_eq!(share("5 per 10s sliding-log wait 1s", 6).unwrap(), "1 per 12s sliding-log wait 1s");
        assert_eq!(share("1 every 1h cap 2 offset 5min", 3).unwrap(), "1 every 3h offset 5min");
        assert_eq!(share("3 per 1s sliding-log", 7).unwrap(), "1 per 2s333ms334us sliding-log");
    }

    #[test]
    fn slots_are_not_rounded_up() {
        assert_eq!(share("3 concurrent", 5), None);
        assert_eq!(share("1 concurrent queue 10 wait 1s", 2), None);
    }

    #[test]
    fn every_rate_has_a_share_on_any_number_of_nodes() {
        for text in [
            "1/s",
            "1 per 3650day",
            "1000 per 30day",
            "2 per 3650day sliding-log",
            "1 per 3650day fixed-window",
            "1 every 3650day",
            "leaky 1 per 365day queue 1",
            "1000000000/s burst 1",
            "1/h warmup 1h",
        ] {
            for nodes in [2, 3, 151, 10_000, u32::MAX] {
                assert!(share(text, nodes).is_some(), "{text} on {nodes} nodes");
            }
        }
    }
}
