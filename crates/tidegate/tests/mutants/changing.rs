//! Variants that go wrong where limits change and nodes differ.

use crate::{SEED, TRACES};
use testkit::limits::MIXED;
use testkit::model::{Flaw, Store};
use testkit::suite::mixtures_conform;
use testkit::trace::Traffic;
use testkit::{Model, Subject};
use tidegate::Limit;

fn is_caught(store: Store, flaw: Option<Flaw>) -> bool {
    let changes = MIXED.iter().map(|text| text.parse().unwrap()).collect();
    let traffic = Traffic { changes, restarts: true, store, ..Traffic::plain() };
    let make = |limits: &[Limit]| -> Box<dyn Subject> {
        let model = Model::on(store, limits);
        Box::new(flaw.map_or(model.clone(), |flaw| model.broken(flaw)))
    };
    mixtures_conform(&traffic, SEED, TRACES, &make).is_err()
}

#[test]
fn the_model_of_a_mixture_is_not_caught() {
    for store in [Store::Memory, Store::Redis] {
        assert!(!is_caught(store, None), "{store:?}");
    }
}

#[test]
fn whole_units_that_go_from_limit_to_limit_are_caught() {
    assert!(is_caught(Store::Redis, Some(Flaw::RoundsUp)));
}

#[test]
fn a_denial_that_keeps_what_it_converted_is_caught() {
    assert!(is_caught(Store::Redis, Some(Flaw::WritesOnDenial)));
}

#[test]
fn a_key_that_keeps_one_count_only_is_caught() {
    assert!(is_caught(Store::Redis, Some(Flaw::ForgetsOthers)));
}

#[test]
fn a_grant_that_charges_its_own_count_only_is_caught() {
    assert!(is_caught(Store::Redis, Some(Flaw::ChargesItsOwn)));
}
