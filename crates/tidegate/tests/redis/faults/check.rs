//! What is held against the promises, and each of the checks tried on a lie.

use super::drive::Record;
use std::time::Duration;
use tidegate::{Denial, Limit, RedisStats};

/// The default deadline.
pub(super) const DEADLINE: Duration = Duration::from_millis(20);

/// How much later than the deadline an answer may be seen. The promise is about waiting for
/// Redis; the tests run beside each other and beside their servers on two cores, where a
/// thread that is due may not run for some turns of the others.
pub(super) const SLACK: Duration = Duration::from_millis(150);
/// What a thread may be kept from running, now and then, by whatever else a machine does.
pub(super) const HICCUP: Duration = Duration::from_millis(500);

/// Within this time after its server, a store is exact again: pauses between two tries are
/// 1.5 s at most, and a try takes another second at most.
pub(super) const RECOVERY: Duration = Duration::from_secs(3);

const WINDOWS_MS: [u64; 7] = [0, 10, 100, 300, 1_000, 3_000, 30_000];

/// Decisions that took longer than they may: more than [`SLACK`] beyond the deadline, or
/// for one in two hundred more than [`HICCUP`].
pub(super) fn late(records: &[Record], deadline: Duration) -> Result<(), String> {
    let mut late: Vec<&Record> = records.iter().filter(|one| one.took() > deadline + SLACK).collect();
    late.sort_by_key(|record| record.took());
    let Some(longest) = late.last() else { return Ok(()) };
    let (took, all) = (longest.took(), records.len());
    if took <= deadline + HICCUP && late.len() <= all / 200 {
        return Ok(());
    }
    Err(format!("a decision took {took:?}, {deadline:?} were promised; {} of {all}: {late:?}", late.len()))
}

/// The most that started in any window of this length, for certain: a start counts where
/// its question and its answer lie inside.
pub(super) fn busiest(starts: &[(u64, u64)], window: Duration) -> u64 {
    let window_us = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
    let in_window = |from: u64| {
        let is_inside = |start: &&(u64, u64)| start.0 >= from && start.1 <= from.saturating_add(window_us);
        starts.iter().filter(is_inside).count() as u64
    };
    starts.iter().map(|start| in_window(start.0)).max().unwrap_or(0)
}

/// A window in which more started than the bound says.
pub(super) fn exceeded<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    bound: impl Fn(Duration) -> u64,
) -> Result<(), String> {
    let allowed = records.into_iter().filter(|record| record.is_allowed);
    let starts: Vec<(u64, u64)> = allowed.map(|record| (record.from_us, record.till_us)).collect();
    for window in WINDOWS_MS.map(Duration::from_millis) {
        let (most, bound) = (busiest(&starts, window), bound(window));
        if most > bound {
            return Err(format!("{most} started within {window:?}, the bound is {bound}"));
        }
    }
    Ok(())
}

/// More local starts than flow in while the store does not answer: from its last answer
/// before them, none of it saved up before, but for one request at once.
pub(super) fn burst(records: &[Record], share: &Limit) -> Result<(), String> {
    let degraded = || records.iter().filter(|record| record.is_degraded);
    let starts = degraded().filter(|record| record.is_allowed).count() as u64;
    let Some(first_us) = degraded().map(|record| record.till_us).min() else { return Ok(()) };
    let last_us = degraded().map(|record| record.till_us).max().unwrap_or(first_us);
    let exact = records.iter().filter(|record| record.is_allowed && !record.is_degraded);
    let since_us = exact.filter(|record| record.till_us <= first_us).map(|record| record.from_us).max();
    let flows_us = u128::from(last_us - since_us.unwrap_or(0));
    let flow = flows_us * u128::from(share.amount()) / share.period().as_micros();
    match u64::try_from(flow).unwrap_or(u64::MAX) + 1 {
        flow if starts > flow => Err(format!("{starts} local starts, while {flow} flow in")),
        _ => Ok(()),
    }
}

/// A degraded decision that is not what [`Fallback::Deny`](tidegate::Fallback::Deny) says.
pub(super) fn let_through(records: &[Record]) -> Result<(), String> {
    let is_told = |record: &&Record| match record.denial {
        Some(Denial::Unavailable(after)) => after.is_zero(),
        _ => true,
    };
    match records.iter().filter(|record| record.is_degraded).find(is_told) {
        Some(record) => Err(format!("not a denial with a time: {record:?}")),
        None => Ok(()),
    }
}

/// Counters that contradict each other.
pub(super) fn odd(stats: &RedisStats) -> Result<(), String> {
    let is_odd = stats.disagreements > 0
        || stats.timeouts > stats.degraded
        || stats.degraded_denied > stats.degraded
        || stats.coalesced > stats.decisions;
    if is_odd { Err(format!("{stats:?}")) } else { Ok(()) }
}

mod the_checks_can_fail {
    use super::*;
    use testkit::rng::Rng;
    use testkit::windows::{self, Edge};

    fn record(from_us: u64, till_us: u64, is_allowed: bool, is_degraded: bool) -> Record {
        let denial = (!is_allowed).then_some(Denial::Unavailable(Duration::from_millis(1)));
        Record { from_us, till_us, is_allowed, is_degraded, denial }
    }

    #[test]
    fn a_late_answer_is_found() {
        let mut records = vec![record(0, 20_000, true, false), record(0, 170_000, true, false)];
        assert_eq!(late(&records, DEADLINE), Ok(()));
        records.push(record(5, 170_006, false, true));
        assert!(late(&records, DEADLINE).unwrap_err().contains("170.001ms"));
    }

    #[test]
    fn one_start_too_many_is_found() {
        let limit: Limit = "100/s burst 20".parse().unwrap();
        let bound = |window| limit.worst_case(window, 1);
        let most: Vec<Record> = (0..120).map(|n| record(n * 100, n * 100, true, false)).collect();
        // Twenty and one more in each 10 ms are the most in 12 ms.
        assert!(exceeded(&most[..21], bound).is_ok());
        assert!(exceeded(&most[..22], bound).unwrap_err().contains("22 started within 10ms"));
        let spread: Vec<Record> = (0..120).map(|n| record(n * 10_000, n * 10_000, true, false)).collect();
        assert!(exceeded(&spread, bound).is_ok());
        let mut twice = spread.clone();
        twice.extend(&spread);
        assert!(exceeded(&twice, bound).is_err());
    }

    #[test]
    fn a_start_that_may_lie_outside_is_not_counted() {
        let starts = [(0, 5), (3, 12), (8, 9)];
        assert_eq!(busiest(&starts, Duration::from_micros(10)), 2);
        assert_eq!(busiest(&starts, Duration::from_micros(12)), 3);
    }

    #[test]
    fn certain_starts_are_counted_as_the_testkit_counts() {
        let mut rng = Rng::new(1);
        for _ in 0..200 {
            let at: Vec<u64> = (0..rng.between(1, 12)).map(|_| rng.below(30)).collect();
            let window_us = rng.below(35);
            let certain: Vec<(u64, u64)> = at.iter().map(|&at| (at, at)).collect();
            let counted: Vec<(u64, u64)> = at.iter().map(|&at| (at, 1)).collect();
            let expected = windows::busiest(&counted, window_us, Edge::Closed).units;
            assert_eq!(busiest(&certain, Duration::from_micros(window_us)), expected, "{at:?}");
        }
    }

    #[test]
    fn a_share_that_starts_full_is_found() {
        let share: Limit = "100/s burst 20".parse().unwrap();
        let mut records = vec![record(0, 1_000, true, false)];
        records.extend((2..=20).map(|n| record(n * 10_000, n * 10_000, true, true)));
        assert_eq!(burst(&records, &share), Ok(()));
        records.extend((2..4).map(|n| record(n * 10_000, n * 10_000, true, true)));
        assert_eq!(burst(&records, &share), Ok(()));
        records.push(record(200_000, 200_000, true, true));
        assert!(burst(&records, &share).unwrap_err().contains("22 local starts, while 21 flow in"));
    }

    #[test]
    fn a_degraded_start_is_found_where_there_may_be_none() {
        let mut records = vec![record(0, 1, true, false), record(0, 1, false, true)];
        assert_eq!(let_through(&records), Ok(()));
        records.push(record(0, 1, true, true));
        assert!(let_through(&records).is_err());
        let mut vague = record(0, 1, false, true);
        vague.denial = Some(Denial::Later(Duration::from_secs(1)));
        assert!(let_through(&[vague]).is_err());
    }

    #[test]
    fn counters_that_contradict_each_other_are_found() {
        let mut stats = RedisStats::default();
        assert_eq!(odd(&stats), Ok(()));
        stats.timeouts = 1;
        assert!(odd(&stats).is_err());
        stats.degraded = 1;
        assert_eq!(odd(&stats), Ok(()));
        stats.disagreements = 1;
        assert!(odd(&stats).is_err());
    }
}
