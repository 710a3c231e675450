//! The most that started in any window: what a worst case promises about.
//!
//! Looks only at windows that begin at a start; any other window holds no more than
//! the one that begins at its first start.

/// Whether a start exactly one window after the first still belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// From a, up to but not including a + W: windows and logs.
    Open,
    /// From a to a + W, both included: buckets.
    Closed,
}

/// The busiest window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Busiest {
    /// Where it begins.
    pub from_us: u64,
    /// What started in it.
    pub units: u64,
}

/// The busiest window of length `window_us` among starts `(when, units)` in any order.
///
/// # Panics
/// On a window without length and with an open edge: nothing is in it.
pub fn busiest(starts: &[(u64, u64)], window_us: u64, edge: Edge) -> Busiest {
    assert!(window_us > 0 || edge == Edge::Closed, "an open window has a length");
    let mut starts = starts.to_vec();
    starts.sort_unstable();
    let mut best = Busiest::default();
    let (mut end, mut units) = (0, 0);
    for &(from_us, leaving) in &starts {
        let belongs = |at_us: u64| match edge {
            Edge::Open => at_us - from_us < window_us,
            Edge::Closed => at_us - from_us <= window_us,
        };
        while end < starts.len() && belongs(starts[end].0) {
            units += starts[end].1;
            end += 1;
        }
        if units > best.units {
            best = Busiest { from_us, units };
        }
        units -= leaving;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_at_the_far_edge_counts_only_where_the_edge_is_closed() {
        let starts = [(0, 1), (10, 2)];
        assert_eq!(busiest(&starts, 10, Edge::Open).units, 2);
        assert_eq!(busiest(&starts, 10, Edge::Closed).units, 3);
        assert_eq!(busiest(&starts, 11, Edge::Open).units, 3);
    }

    #[test]
    fn it_finds_what_trying_every_window_finds() {
        let mut rng = crate::rng::Rng::new(1);
        for _ in 0..200 {
            let starts: Vec<(u64, u64)> =
                (0..rng.between(1, 12)).map(|_| (rng.below(30), rng.between(1, 4))).collect();
            for window in 1..35 {
                let slow = (0..30)
                    .map(|a| starts.iter().filter(|(at, _)| (a..a + window).contains(at)).map(|s| s.1).sum())
                    .max();
                assert_eq!(Some(busiest(&starts, window, Edge::Open).units), slow, "{starts:?} {window}");
                assert_eq!(Some(busiest(&starts, window - 1, Edge::Closed).units), slow);
            }
        }
    }
}
