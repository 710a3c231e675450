//! A ruling that is ready at once is the one that takes its time, and so is a request that needs
//! no ruling: over random rule sets and requests, with lists, shadow, observers, waits, slots, and
//! rules that are switched off, so that what is added to one of the ways and forgotten in another
//! is found.

use crate::line::LineFacts;
use crate::random::{Draft, builder, cases, draft, line};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use testkit::library::Clocked;
use tidegate::rules::{Charges, KeyExpr, Observer, Record, Rule, Rules, RulesBuilder};
use tidegate::{Limiter, ManualClock, Permit};

/// Writes down every verdict.
#[derive(Clone, Default)]
struct Verdicts(Arc<Mutex<Vec<String>>>);

impl Observer for Verdicts {
    fn verdict(&self, record: &Record<'_>) {
        self.0.lock().expect("nobody panics with it").push(text(record));
    }
}

/// All that a record says.
fn text(record: &Record<'_>) -> String {
    let decision = record.decision().map(|decision| (decision.reset_after(), decision.retry_after()));
    format!("{record} ({}) {decision:?} {:?}", record.outcome().as_str(), record.shows_key())
}

/// One way of deciding the same requests, on a limiter of its own.
struct Way {
    rules: Rules,
    how: How,
    verdicts: Verdicts,
    held: Vec<Permit>,
}

/// What is said of a request, and what an observer gets.
#[derive(Debug, PartialEq)]
struct Said {
    is_allowed: bool,
    records: Vec<String>,
    verdicts: Vec<String>,
}

#[derive(Clone, Copy)]
enum How {
    Decide(Charges),
    /// The fast path where there is one.
    Allow,
}

impl Way {
    fn new(on: &Clocked, how: How, build: impl FnOnce(&Limiter, Verdicts) -> RulesBuilder) -> Self {
        let verdicts = Verdicts::default();
        let rules = build(&on.limiter, verdicts.clone()).build().expect("the rules are right");
        Self { rules, how, verdicts, held: Vec::new() }
    }

    fn decide(&mut self, line: &str) -> Said {
        let facts = LineFacts::parse(line);
        let ruling = match self.how {
            How::Decide(charges) => Err(self.rules.decide(&facts, charges)),
            How::Allow => self.rules.allow_or_decide(&facts, |record| vec![text(&record)]),
        };
        let mut is_allowed = true;
        let records = ruling.unwrap_or_else(|ruling| {
            let ruling = ruling.blocking();
            is_allowed = ruling.is_allowed();
            // Of rules in shadow only where the request was let through: else they are not decided.
            let records = ruling.records().filter(|record| is_allowed || !record.is_shadow());
            let records = records.map(|record| text(&record)).collect();
            self.held.extend(ruling.into_permits());
            records
        });
        let verdicts = std::mem::take(&mut *self.verdicts.0.lock().expect("nobody panics with it"));
        Said { is_allowed, records, verdicts }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_ruling_at_once_is_the_one_that_takes_its_time(
        drafts in prop::collection::vec(draft(), 0..6),
        lines in prop::collection::vec(line(), 1..12),
        list in prop::sample::select(vec!["", "", "", "deny net", "allow net", "deny key", "allow key"]),
        off_at in 0..24_usize,
    ) {
        // Keys that no rule has are no keys.
        let list = if list.ends_with("key") && !drafts.iter().any(|rule| rule.is_by("ip")) { "" } else { list };
        let build = |limiter: &Limiter, drafts: &[Draft]| match (list, builder(limiter, drafts)) {
            ("deny net", rules) => rules.deny_networks(["198.51.100.0/24"]),
            ("allow net", rules) => rules.allow_networks(["198.51.100.0/24"]),
            ("deny key", rules) => rules.deny_keys(["ip:192.0.2.200"]),
            ("allow key", rules) => rules.allow_keys(["ip:192.0.2.200"]),
            (_, rules) => rules,
        };
        let watched = |limiter: &Limiter, verdicts| build(limiter, &drafts).observer(verdicts);
        let mut full = Way::new(&Clocked::in_memory(), How::Decide(Charges::Final), watched);
        let mut others = [
            // Charges that can change are decided by the future; so is what is not in memory.
            ("later", Way::new(&Clocked::in_memory(), How::Decide(Charges::Adjustable), watched)),
            ("over a wire", Way::new(&Clocked::over_a_wire().0, How::Decide(Charges::Final), watched)),
            ("allowed and watched", Way::new(&Clocked::in_memory(), How::Allow, watched)),
        ];
        let unwatched = |limiter: &Limiter, _| build(limiter, &drafts);
        let mut fast = Way::new(&Clocked::in_memory(), How::Allow, unwatched);
        for (at, line) in lines.iter().enumerate() {
            if at == off_at {
                full.rules.switch_off();
                others.iter().for_each(|(_, way)| way.rules.switch_off());
                fast.rules.switch_off();
            }
            let expected = full.decide(line);
            for (name, way) in &mut others {
                prop_assert_eq!(&expected, &way.decide(line), "{}: {}", name, line);
            }
            let said = fast.decide(line);
            // While the rules are off, records are made only for whoever reads them.
            let records = if full.rules.is_on() { expected.records } else { Vec::new() };
            prop_assert_eq!(Said { records, verdicts: Vec::new(), ..expected }, said, "unwatched: {}", line);
            prop_assert_eq!(full.rules.stats().rules, fast.rules.stats().rules);
        }
    }
}

/// Whether a request is decided without a ruling.
fn needs_no_ruling(rules: RulesBuilder, line: &str) -> bool {
    let rules = rules.build().expect("the rules are right");
    rules.allow_or_decide(&LineFacts::parse(line), |_| ()).is_ok()
}

#[test]
fn only_a_single_limit_in_memory_that_allows_needs_no_ruling() {
    let limiter = || Limiter::builder().clock(ManualClock::new()).build();
    let needs_none = |rule: Rule| needs_no_ruling(Rules::new(&limiter()).rule(rule), "GET /a from 192.0.2.1");
    let rule = |limit: &str| Rule::new("r", limit).by("ip");
    assert!(needs_none(rule("1/s")));
    assert!(needs_none(rule("5 per 10s sliding-log").on("GET /{name}").by("path:1 else user")));
    assert!(!needs_none(rule("1/s wait 1s")));
    assert!(!needs_none(rule("1 concurrent")));
    assert!(!needs_none(rule("1/s").limit("9/h")));
    assert!(!needs_none(rule("1/s").shadow()));
    assert!(!needs_none(rule("1/s").by("user")), "the key is missing");
    assert!(!needs_none(rule("1/s").on("GET /b")), "no rule applies");
    assert!(!needs_none(rule("1/s").deny_networks(["198.51.100.0/24"])));
    assert!(!needs_none(rule("1/s").cost_with(|_| 1)));
    let tenant = KeyExpr::from_fn("tenant", |_| Some("t".to_string())).unwrap();
    assert!(!needs_none(Rule::new("r", "1/s").by(tenant)));
    // In HTTP, a function of the application finds entries.
    let by_plan = Rules::new(&limiter()).rule(Rule::new("r", "1/s").by("entry:plan"));
    assert!(!needs_no_ruling(by_plan, "GET /a from 192.0.2.1 entry plan=pro"));
    let alone = || Rules::new(&limiter()).rule(rule("1/s"));
    assert!(!needs_no_ruling(alone().observer(Verdicts::default()), "GET /a from 192.0.2.1"));
    assert!(!needs_no_ruling(alone().allow_networks(["198.51.100.0/24"]), "GET /a from 192.0.2.1"));
    let spent = alone().build().unwrap();
    let facts = LineFacts::parse("GET /a from 192.0.2.1");
    assert!(spent.allow_or_decide(&facts, |_| ()).is_ok());
    let Err(refused) = spent.allow_or_decide(&facts, |_| ()) else { panic!("it is spent") };
    assert!(!refused.blocking().is_allowed());
}
