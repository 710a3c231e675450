//! Many keys by their text, all inserted before timing, all allowed: a million and ten million, requested
//! uniformly and by Zipf, on one thread and on two; and our batch call.

use super::contenders::{
    Allowance, Keyed, LOCKED, Learning, governor, limitador, pingora, throttlecrab, tidegate,
};
use super::keys::{Key, Spread, requests};
use super::timing::{BATCH, Expect, Segments};
use crate::report::{Base, Better, Case, Plan};
use crate::rounds::{Entrant, Measured, Role, alternate, progress};
use crate::{Fallible, Wanted};

/// How many keys, and the cases that share their tables.
pub struct KeySet {
    keys: u32,
    /// Long enough that a round does not repeat itself in the cache.
    requests: usize,
    cases: &'static [(&'static str, Spread, usize)],
    batch: Option<&'static str>,
    limitador: bool,
}

pub const MILLION: KeySet = KeySet {
    keys: 1_000_000,
    requests: 1 << 22,
    cases: &[
        ("keys.1m.uniform.1t", Spread::Uniform, 1),
        ("keys.1m.uniform.2t", Spread::Uniform, 2),
        ("keys.1m.zipf.1t", Spread::Zipf, 1),
        ("keys.1m.zipf.2t", Spread::Zipf, 2),
    ],
    batch: None,
    limitador: true,
};

pub const TEN_MILLION: KeySet = KeySet {
    keys: 10_000_000,
    requests: 1 << 23,
    cases: &[
        ("keys.10m.uniform.1t", Spread::Uniform, 1),
        ("keys.10m.uniform.2t", Spread::Uniform, 2),
        ("keys.10m.zipf.1t", Spread::Zipf, 1),
        ("keys.10m.zipf.2t", Spread::Zipf, 2),
    ],
    batch: Some("batch64.10m"),
    // More than a kilobyte a key: ten gigabytes.
    limitador: false,
};

/// All contenders with all keys inserted.
struct Tables {
    ours: tidegate::ByKey,
    governor: governor::ByKey,
    throttlecrab: throttlecrab::ByKey,
    limitador: Option<limitador::ByKey>,
    sketch: pingora::Sketch,
    sketch_wrong: f64,
}

pub fn run(key_set: &KeySet, wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    let mut names: Vec<&str> = key_set.cases.iter().map(|case| case.0).collect();
    names.extend(key_set.batch);
    if !wanted.any(&names) {
        return Ok(Vec::new());
    }
    let uniform = requests(Spread::Uniform, key_set.keys, key_set.requests);
    let zipf = requests(Spread::Zipf, key_set.keys, key_set.requests);
    let mut tables = Tables::build(key_set, &uniform)?;
    let mut cases = Vec::new();
    for &(name, spread, threads) in key_set.cases {
        if wanted.case(name) {
            let keys = match spread {
                Spread::Uniform => &uniform,
                Spread::Zipf => &zipf,
            };
            let plan = plan(name, Base::BestPeerAndAlso(governor::NAME), notes(key_set));
            let entrants = tables.entrants(keys, threads);
            cases.push(Case::new(plan, &alternate(name, entrants, wanted.rounds)?)?);
        }
    }
    if let Some(name) = key_set.batch.filter(|name| wanted.case(name)) {
        let note = format!("ours checks {BATCH} keys a call, the peers one by one; ns a key");
        let plan = plan(name, Base::Peer(governor::NAME), vec![note]);
        let entrants = tables.batch_entrants(&uniform);
        cases.push(Case::new(plan, &alternate(name, entrants, wanted.rounds)?)?);
    }
    Ok(cases)
}

impl Tables {
    /// One contender after the other, so that no peer's heap is interleaved with another's.
    fn build(key_set: &KeySet, uniform: &[Key]) -> Fallible<Self> {
        let (limit, keys) = (Allowance::ROOMY, key_set.keys);
        let limitador = if key_set.limitador {
            let empty = limitador::ByKey::new(limit, keys)?;
            Some(filled(limitador::NAME, empty, keys)?)
        } else {
            None
        };
        Ok(Self {
            ours: filled(tidegate::NAME, tidegate::ByKey::new(limit, keys)?, keys)?,
            governor: filled(governor::NAME, governor::ByKey::new(limit)?, keys)?,
            throttlecrab: filled(throttlecrab::NAME, throttlecrab::ByKey::new(limit, keys), keys)?,
            limitador,
            sketch: pingora::Sketch::new(),
            sketch_wrong: pingora::Sketch::wrong_share(uniform),
        })
    }

    fn entrants<'a>(&'a mut self, keys: &'a [Key], threads: usize) -> Vec<Entrant<'a>> {
        let mut entrants = vec![
            entrant(tidegate::NAME, Role::Ours, &mut self.ours, keys, threads),
            entrant(governor::NAME, Role::Peer, &mut self.governor, keys, threads),
            entrant(throttlecrab::NAME, Role::Peer, &mut self.throttlecrab, keys, threads),
        ];
        if let Some(limitador) = &mut self.limitador {
            entrants.push(entrant(limitador::NAME, Role::Peer, limitador, keys, threads));
        }
        let (sketch, wrong) = (&mut self.sketch, self.sketch_wrong);
        let mut segments = Segments::new(threads, Expect::Anything);
        entrants.push(Entrant::new(pingora::NAME, Role::Peer, move |round| {
            let value = segments.keyed(sketch, keys, round).value;
            Ok(Measured { value, wrong })
        }));
        entrants
    }

    fn batch_entrants<'a>(&'a mut self, keys: &'a [Key]) -> Vec<Entrant<'a>> {
        let ours = &self.ours;
        let mut segments = Segments::new(1, Expect::Allowed);
        vec![
            Entrant::new(tidegate::NAME, Role::Ours, move |round| Ok(segments.batched(ours, keys, round))),
            entrant(governor::NAME, Role::Peer, &mut self.governor, keys, 1),
            entrant(throttlecrab::NAME, Role::Peer, &mut self.throttlecrab, keys, 1),
        ]
    }
}

fn entrant<'a>(
    name: &'static str,
    role: Role,
    contender: &'a mut impl Keyed,
    keys: &'a [Key],
    threads: usize,
) -> Entrant<'a> {
    let mut segments = Segments::new(threads, Expect::Allowed);
    Entrant::new(name, role, move |round| Ok(segments.keyed(contender, keys, round)))
}

/// Checks every key once.
fn filled<K: Learning>(name: &str, mut contender: K, keys: u32) -> Fallible<K> {
    progress(&format!("{keys} keys"), "filling", name);
    let mut key = Key::default();
    for number in 0..keys {
        key.renumber(number);
        if !contender.learn(&key, Allowance::ROOMY_FIRST_UNITS) {
            return Err(format!("{name} refused the first request of key {number}").into());
        }
    }
    Ok(contender)
}

fn notes(key_set: &KeySet) -> Vec<String> {
    let mut notes = vec![LOCKED.to_owned()];
    if !key_set.limitador {
        notes.push("limitador holds over 1,000 bytes a key: measured at 1 M keys only".into());
    }
    notes
}

fn plan(name: &'static str, base: Base, notes: Vec<String>) -> Plan {
    Plan { name, unit: "ns", better: Better::Lower, base, notes }
}
