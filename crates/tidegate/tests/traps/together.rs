//! Traps of several limits on one request: some charged and some not, and deadlock.

use crate::FIVE_A_SECOND;
use tidegate::{Check, Limiter, ManualClock};

#[test]
fn several_limits_are_charged_all_or_none() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock).max_keys(1_000).build();
    for (nth, limit) in FIVE_A_SECOND.iter().enumerate() {
        let wide = limiter.gate(&format!("wide-{nth}"), *limit).unwrap();
        let narrow = limiter.gate(&format!("narrow-{nth}"), "2/s").unwrap();
        let both = || limiter.check(&[Check::new(&wide, "ada"), Check::new(&narrow, "ada")]);
        assert_eq!((0..10).filter(|_| both().is_allowed()).count(), 2, "{limit}");
        assert_eq!(wide.peek("ada").remaining(), 3, "`{limit}` was charged for what another limit refused");
    }
}

#[test]
fn a_race_over_two_limits_charges_both_alike_in_any_order() {
    let kinds = ["300/s", "999983/s burst 300", "300 per 1s fixed-window", "300 per 1s sliding-log"];
    for (first, second) in kinds.iter().flat_map(|a| kinds.map(|b| (*a, b))) {
        let limiter = Limiter::builder().clock(ManualClock::new()).max_keys(1_000).build();
        let gates =
            [("first", first), ("second", second)].map(|(name, limit)| limiter.gate(name, limit).unwrap());
        let race = |racer: usize| {
            let both = [Check::new(&gates[racer % 2], "hot"), Check::new(&gates[1 - racer % 2], "hot")];
            (0..200).filter(|_| limiter.check(&both).is_allowed()).count()
        };
        let allowed: usize = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..4).map(|racer| scope.spawn(move || race(racer))).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).sum()
        });
        assert_eq!(allowed, 300, "`{first}` and `{second}`");
        assert_eq!(gates.map(|gate| gate.peek("hot").remaining()), [0, 0], "`{first}` and `{second}`");
    }
}
