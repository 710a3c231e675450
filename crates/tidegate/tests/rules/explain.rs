//! `explain` says what `decide` then does, and changes nothing: over random rule sets and
//! requests, so that a check which is added to one of them and forgotten in the other is found.

use crate::line::LineFacts;
use crate::random::{builder, cases, draft, line, said};
use proptest::prelude::*;
use tidegate::rules::Charges;
use tidegate::{Limiter, ManualClock};

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn what_is_explained_is_what_is_decided(
        rules in prop::collection::vec(draft(), 0..6),
        lines in prop::collection::vec(line(), 1..12),
        off_at in 0..24_usize,
    ) {
        let limiter = Limiter::builder().clock(ManualClock::new()).max_keys(1000).build();
        let rules = builder(&limiter, &rules).deny_networks(["198.51.100.0/24"]).build().expect("the rules are right");
        let mut held = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            if at == off_at {
                rules.switch_off();
            }
            let facts = LineFacts::parse(line);
            let explained = rules.explain(&facts).blocking();
            prop_assert_eq!(said(&explained), said(&rules.explain(&facts).blocking()), "explaining charges");
            let decided = rules.decide(&facts, Charges::Final).blocking();
            // While the rules are off, records are made only for whoever reads them.
            if rules.is_on() {
                prop_assert_eq!(said(&explained), said(&decided), "{}", line);
            }
            prop_assert_eq!(explained.is_allowed(), decided.is_allowed());
            held.push(decided.into_permits());
        }
    }
}
