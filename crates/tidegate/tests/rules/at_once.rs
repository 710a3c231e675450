//! A ruling that is ready at once is the one that takes its time: over random rule sets and
//! requests, with lists, shadow, observers, waits, slots, and rules that are switched off, so that
//! what is added to one of the ways and forgotten in the other is found.

use crate::line::LineFacts;
use crate::random::{builder, cases, draft, line, said};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use testkit::library::Clocked;
use tidegate::Limiter;
use tidegate::rules::{Charges, Observer, Record, Rules};

/// Writes down every verdict.
#[derive(Clone, Default)]
struct Verdicts(Arc<Mutex<Vec<String>>>);

impl Observer for Verdicts {
    fn verdict(&self, record: &Record<'_>) {
        self.0
            .lock()
            .expect("nobody panics with it")
            .push(format!("{record} ({})", record.outcome().as_str()));
    }
}

/// The rules on a limiter, and the verdicts that their observer gets.
fn observed(limiter: &Limiter, rules: &[crate::random::Draft]) -> (Rules, Verdicts) {
    let verdicts = Verdicts::default();
    (builder(limiter, rules).observer(verdicts.clone()).build().expect("the rules are right"), verdicts)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_ruling_at_once_is_the_one_that_takes_its_time(
        drafts in prop::collection::vec(draft(), 0..6),
        lines in prop::collection::vec(line(), 1..12),
        off_at in 0..24_usize,
    ) {
        let (quick, slow, remote) = (Clocked::in_memory(), Clocked::in_memory(), Clocked::over_a_wire().0);
        // Charges that can change are decided by the future; so is what is not in memory.
        let ways = [
            (observed(&quick.limiter, &drafts), Charges::Final),
            (observed(&slow.limiter, &drafts), Charges::Adjustable),
            (observed(&remote.limiter, &drafts), Charges::Final),
        ];
        let mut held = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            if at == off_at {
                ways.iter().for_each(|((rules, _), _)| rules.switch_off());
            }
            let facts = LineFacts::parse(line);
            let mut rulings = ways.iter().map(|((rules, verdicts), charges)| {
                let ruling = rules.decide(&facts, *charges).blocking();
                let verdicts = std::mem::take(&mut *verdicts.0.lock().expect("nobody panics with it"));
                let said = (said(&ruling), verdicts);
                held.push(ruling.into_permits());
                said
            });
            let (at_once, later, far) = (rulings.next(), rulings.next(), rulings.next());
            prop_assert_eq!(&at_once, &later, "{}", line);
            prop_assert_eq!(&at_once, &far, "over a wire: {}", line);
        }
    }
}
