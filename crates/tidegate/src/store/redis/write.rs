//! How jobs are written down for the script.

use super::charge::member;
use super::core::Core;
use super::job::{Change, Group, How, Job, Key, Request, What};
use super::name;
use super::pack::Packed;
use super::plan::{Mark, ScriptLimit, Version};
use crate::algorithm::OTHERS_MAX;
use smallvec::SmallVec;
use std::sync::Arc;

/// Operations from here on are one unit of a bucket, by the plan of the number above it.
const UNIT: u64 = 31;

/// One call of the script.
pub(crate) struct Call {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) packed: Vec<u8>,
}

/// Writes jobs down as one call.
pub(crate) fn write(core: &Core, jobs: &[Job]) -> Call {
    let prefix = core.config.prefix.as_str();
    let now = core.clock.now();
    let mut writer = Writer { prefix, keys: Vec::new(), plans: Vec::new(), groups: Packed::default() };
    for job in jobs {
        match job {
            Job::Decide(group) if group.is_unit() => writer.unit(group),
            Job::Decide(group) if group.is_plain() => writer.one(group),
            Job::Decide(group) => writer.several(group),
            Job::Change(change) => writer.change(change),
        }
    }
    let mut packed = Packed::default();
    if core.foreign_time {
        packed.number(now.as_micros());
    } else {
        packed.none();
    }
    packed.number(writer.plans.len() as u64);
    for Planned { numbers, before } in &writer.plans {
        numbers.plan.iter().for_each(|number| packed.number(*number));
        packed.text(&numbers.tag);
        packed.number(now.as_micros().saturating_sub(numbers.since.as_micros()));
        before.iter().for_each(|number| packed.number(*number));
    }
    packed.number(u64::from(is_each_once(jobs, &writer.keys)));
    packed.number(jobs.len() as u64);
    packed.append(&writer.groups);
    Call { keys: writer.keys, packed: packed.finish() }
}

/// True if all are about single units, or a heartbeat, and no key comes twice: then the script
/// can read all keys at once, as nothing is written to any before it is read. Keys are told
/// apart by their names: two gates can have the same one. (Two names with one hash only cost that reading.)
fn is_each_once(jobs: &[Job], names: &[Vec<u8>]) -> bool {
    let is_apart = |job: &Job| match job {
        Job::Decide(group) => group.is_unit(),
        Job::Change(change) => matches!(change.what, What::Beat { .. }),
    };
    let meter = |job: &Job| match job {
        Job::Decide(group) => Some(group.keys[0].meter.clone()),
        Job::Change(_) => None,
    };
    let Some(meter) = jobs.iter().find_map(meter).filter(|_| jobs.iter().all(is_apart)) else { return false };
    let mut ids: SmallVec<[u64; 64]> = names.iter().map(|name| meter.hash(name)).collect();
    ids.sort_unstable();
    ids.windows(2).all(|pair| pair[0] != pair[1])
}

/// Equal questions, one after the other, about one key.
pub(super) struct Run {
    how: How,
    cost: u64,
    pub(super) count: u64,
}

pub(super) fn runs(requests: &[Request]) -> SmallVec<[Run; 2]> {
    let mut runs: SmallVec<[Run; 2]> = SmallVec::new();
    for request in requests {
        let (how, cost) = (request.how, request.costs[0]);
        match runs.last_mut() {
            Some(run) if run.how == how && run.cost == cost => run.count += 1,
            _ => runs.push(Run { how, cost, count: 1 }),
        }
    }
    runs
}

/// A limit of the call, and the numbers of those that were in force before it; 0 for none.
struct Planned {
    numbers: Arc<ScriptLimit>,
    before: [u64; OTHERS_MAX],
}

struct Writer<'a> {
    prefix: &'a str,
    keys: Vec<Vec<u8>>,
    plans: Vec<Planned>,
    groups: Packed,
}

impl Writer<'_> {
    fn key(&mut self, key: &Key) {
        let subject = name::subject(&key.bytes);
        let parts: &[&str] = if key.version.is_place() { &["", ":queue", ":alive"] } else { &[""] };
        for part in parts {
            self.keys.push(name::name(self.prefix, &key.meter.name, &subject, part));
        }
    }

    fn plan(&mut self, version: &Arc<Version>) {
        let number = self.plan_number(version);
        self.groups.number(number);
    }

    fn plan_number(&mut self, version: &Arc<Version>) -> u64 {
        let number = self.number_of(&version.numbers);
        let mut before = [0; OTHERS_MAX];
        for (place, numbers) in before.iter_mut().zip(&version.before) {
            *place = self.number_of(numbers);
        }
        self.plans[number as usize - 1].before = before;
        number
    }

    fn number_of(&mut self, numbers: &Arc<ScriptLimit>) -> u64 {
        let at =
            self.plans.iter().position(|plan| Arc::ptr_eq(&plan.numbers, numbers)).unwrap_or_else(|| {
                self.plans.push(Planned { numbers: numbers.clone(), before: [0; OTHERS_MAX] });
                self.plans.len() - 1
            });
        at as u64 + 1
    }

    fn unit(&mut self, group: &Group) {
        self.key(&group.keys[0]);
        let plan = self.plan_number(&group.keys[0].version);
        self.groups.number(UNIT + plan);
    }

    fn one(&mut self, group: &Group) {
        self.key(&group.keys[0]);
        self.groups.number(1);
        self.plan(&group.keys[0].version);
        let runs = runs(&group.requests);
        self.groups.number(runs.len() as u64);
        for run in runs {
            self.groups.number(run.how.number());
            self.groups.number(run.count);
            self.groups.number(run.cost);
        }
    }

    fn several(&mut self, group: &Group) {
        self.groups.number(2);
        self.groups.number(group.keys.len() as u64);
        for key in &group.keys {
            self.key(key);
            self.plan(&key.version);
        }
        self.groups.number(group.requests.len() as u64);
        for request in &group.requests {
            self.groups.number(request.how.number());
            request.costs.iter().for_each(|cost| self.groups.number(*cost));
            let places = group.keys.iter().zip(&request.costs).filter(|(key, _)| key.version.is_place());
            for (at, (key, cost)) in places.enumerate() {
                self.groups.text(&member(&key.meter, request.number(at), *cost));
            }
        }
    }

    fn change(&mut self, change: &Change) {
        let op = match change.what {
            What::GiveBack { .. } => 3,
            What::Owe { .. } => 4,
            What::Reset => 5,
            What::Release { .. } => 6,
            What::Renew { .. } => 7,
            What::Queue { .. } => 8,
            What::Leave { .. } => 9,
            What::Beat { .. } => 10,
        };
        self.groups.number(op);
        match &change.key {
            Some(key) => self.key(key),
            None => self.keys.push(name::nodes(self.prefix)),
        }
        if let (Some(key), false) = (&change.key, matches!(change.what, What::Reset)) {
            // Places that come back are handed on, and debts charged, by the limit that is in
            // force now.
            let is_by_current = key.version.is_place() || matches!(change.what, What::Owe { .. });
            let version = if is_by_current && !key.meter.decides(&key.version) {
                key.meter.version()
            } else {
                key.version.clone()
            };
            self.plan(&version);
        }
        match &change.what {
            What::GiveBack { given, has_own } => {
                self.groups.number(given.len() as u64);
                self.groups.number(u64::from(*has_own));
                for one in given {
                    let Mark { end: (m1, m2), span, stored } = one.mark();
                    let numbers = [one.cost, one.start_us, m1, m2, span, stored, one.units];
                    numbers.iter().for_each(|number| self.groups.number(*number));
                }
            }
            What::Owe { units } => self.groups.number(*units),
            What::Reset => {}
            What::Release { member, left } => {
                self.groups.text(member);
                self.groups.text(left);
            }
            What::Renew { holders } => {
                self.groups.number(holders.len() as u64);
                holders.iter().for_each(|(_, member)| self.groups.text(member));
            }
            What::Queue { member, is_new } => {
                self.groups.text(member);
                self.groups.number(u64::from(*is_new));
            }
            What::Leave { member } => self.groups.text(member),
            What::Beat { node, life_us } => {
                self.groups.text(node);
                self.groups.number(*life_us);
            }
        }
    }
}
