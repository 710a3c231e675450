//! One node's share of a limit, for when the nodes cannot ask each other.

use crate::{Algorithm, Limit};

/// A limit divided by a number of nodes; `None` where a share is below one unit.
///
/// Rates are divided exactly, by a longer period; what can start at once is rounded
/// down. So all shares together start no more at once than the whole (but for a
/// leaky queue and a warm-up, of which each share starts one).
pub(crate) fn share(limit: &Limit, nodes: u32) -> Option<Limit> {
    let (count, part) = (u64::from(nodes), |units: u64| units / u64::from(nodes));
    let slower = || Limit::per(limit.amount(), limit.period() * nodes);
    let fewer = || Limit::per(part(limit.amount()), limit.period());
    let wait = limit.wait();
    match limit.algorithm() {
        _ if count == 1 => return Some(limit.clone()),
        Algorithm::TokenBucket { burst } => slower().burst(part(*burst)).wait(wait),
        Algorithm::WarmUp { warmup } => slower().warmup(*warmup).wait(wait),
        Algorithm::LeakyBucket { capacity } => slower().leaky().capacity(part(*capacity)),
        Algorithm::LeakyQueue { queue } => slower().leaky().queue(part(*queue)),
        Algorithm::Ticked { cap } => {
            let every = Limit::every(part(limit.amount()), limit.period()).cap(part(*cap));
            every.offset(limit.offset()).wait(wait)
        }
        Algorithm::FixedWindow => fewer().fixed_window().offset(limit.offset()).wait(wait),
        Algorithm::SlidingWindow { slices } => fewer().sliding_window().slices(*slices).wait(wait),
        Algorithm::SlidingLog => fewer().sliding_log().wait(wait),
        Algorithm::Concurrency { queue } => match part(*queue) {
            0 => Limit::concurrent(part(limit.amount())),
            queue => Limit::concurrent(part(limit.amount())).queue(queue).wait(wait),
        },
    }
    .build()
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_no_more_than_the_whole() {
        let share = |text: &str, nodes| super::share(&text.parse().unwrap(), nodes).map(|l| l.to_string());
        assert_eq!(share("1000/s", 1).unwrap(), "1000/s");
        assert_eq!(share("1000/s burst 20", 3).unwrap(), "1000 per 3s burst 6");
        assert_eq!(share("1000/s burst 2", 3), None);
        assert_eq!(share("5 per 10s sliding-log", 2).unwrap(), "2 per 10s sliding-log");
        assert_eq!(share("5 per 10s fixed-window", 6), None);
        assert_eq!(share("5/day fixed-window offset 8h", 2).unwrap(), "2/day fixed-window offset 8h");
        assert_eq!(share("20 every 1h cap 30 offset 5min", 2).unwrap(), "10 every 1h cap 15 offset 5min");
        assert_eq!(share("10 concurrent queue 50 wait 2s", 4).unwrap(), "2 concurrent queue 12 wait 2s");
        assert_eq!(share("10 concurrent queue 3 wait 2s", 4).unwrap(), "2 concurrent");
        for text in
            ["100/s burst 7", "leaky 50/s capacity 9", "20 every 1s cap 100", "7 per 1s sliding-window"]
        {
            let whole: Limit = text.parse().unwrap();
            let part = super::share(&whole, 3).unwrap();
            for ms in [0, 1, 500, 1_000, 10_000] {
                let window = std::time::Duration::from_millis(ms);
                assert!(
                    3 * part.worst_case(window, 1) <= whole.worst_case(window, 1) + 3,
                    "{text} in {ms} ms"
                );
            }
        }
    }
}
