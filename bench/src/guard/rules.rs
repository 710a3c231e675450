//! Ten thousand rules: what a request costs that meets two of them, and what replacing all of them
//! costs, itself and those who send requests meanwhile.
//!
//! Every rule has a pattern of its own and is keyed by client.

use super::contenders::{Bare, Call};
use super::overhead::{self, Contender, SEGMENT, Template, client, respond};
use crate::Fallible;
use crate::report::median;
use crate::rounds::Measured;
use http::StatusCode;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tidegate::Limiter;
use tidegate::http::{Guard, GuardBuilder, GuardService};
use tidegate::rules::Rule;
use tower::Layer;

const MANY: u32 = 10_000;
const FEW: u32 = 10;

/// Each service has two rules, and a request to it meets both.
const RULES_A_SERVICE: u32 = 2;

/// Limits that nobody reaches; replacing puts the other one in force.
const LIMITS: [u32; 2] = [1_000_000, 2_000_000];

fn rules(count: u32, per_second: u32) -> Vec<Rule> {
    (0..count / RULES_A_SERVICE).flat_map(|service| rules_of(service, per_second)).collect()
}

fn rules_of(service: u32, per_second: u32) -> [Rule; 2] {
    let limit = format!("{per_second}/s");
    let items = Rule::new(&format!("items-{service}"), limit.as_str());
    let all = Rule::new(&format!("all-{service}"), limit.as_str());
    [
        items.on(&format!("GET /service-{service}/items/{{id}}")).by("ip"),
        all.on(&format!("GET /service-{service}/{{*rest}}")).by("ip"),
    ]
}

fn guard(count: u32) -> Fallible<Guard> {
    let builder = Guard::new(&Limiter::new());
    Ok(rules(count, LIMITS[0]).into_iter().fold(builder, GuardBuilder::rule).build()?)
}

fn layered(guard: &Guard) -> GuardService<Bare> {
    guard.layer().layer(Bare::default())
}

/// As many requests as a segment has, to these services in turn.
fn requests(services: &[u32]) -> Fallible<Vec<Template>> {
    let one = |(nth, service): (u32, &u32)| {
        let uri = format!("/service-{service}/items/{nth}").parse()?;
        Ok(Template { client: client(nth / services.len() as u32), uri, user: None })
    };
    (0..).zip(services.iter().cycle()).take(SEGMENT).map(one).collect()
}

/// The same number of services in both, so that the same number of keys and rules is in the cache
/// and only finding the rules differs.
fn services(count: u32) -> Vec<u32> {
    const CALLED: u32 = 5;
    let all = count / RULES_A_SERVICE;
    (0..CALLED).map(|nth| nth * (all - 1) / (CALLED - 1)).collect()
}

/// Requests to every second or so of the services: their rules and keys are not in the cache.
fn spread_services() -> Vec<u32> {
    let all = MANY / RULES_A_SERVICE;
    let called = SEGMENT as u32;
    (0..called).map(|nth| nth * (all - 1) / (called - 1)).collect()
}

/// Nanoseconds that a request takes longer than at the bare service: with ten thousand rules, with
/// ten, and with ten thousand of which all are met.
pub fn lookup() -> Fallible<Vec<Measured>> {
    let (few, many) = (layered(&guard(FEW)?), layered(&guard(MANY)?));
    let mut contenders = Vec::new();
    let mut unmet = Vec::new();
    for (service, services) in [(&many, services(MANY)), (&few, services(FEW)), (&many, spread_services())] {
        let requests: Rc<[Template]> = requests(&services)?.into();
        unmet.push(unmet_share(service, &requests, &services));
        let target = Call::Cloned.of(service.clone());
        let bare = Some(Call::Cloned.of(Bare::default()));
        contenders.push(Contender { target, bare, requests, expected: StatusCode::OK });
    }
    let mut measured = overhead::measure(&mut contenders);
    for (one, unmet) in measured.iter_mut().zip(unmet) {
        one.wrong = one.wrong.max(unmet);
    }
    Ok(measured)
}

/// Share of the requests that did not meet exactly the two rules of their service.
fn unmet_share(layered: &GuardService<Bare>, requests: &[Template], services: &[u32]) -> f64 {
    let is_unmet = |(request, service): &(&Template, &u32)| {
        let names = [format!("\"items-{service}\";"), format!("\"all-{service}\";")];
        policies(layered, request).is_none_or(|text| {
            text.matches(";q=").count() != names.len() || names.iter().any(|name| !text.contains(name))
        })
    };
    let unmet = requests.iter().zip(services.iter().cycle()).filter(is_unmet).count();
    unmet as f64 / requests.len() as f64
}

/// The limits that a request met, as its response has them.
fn policies(layered: &GuardService<Bare>, request: &Template) -> Option<String> {
    let response = respond(&mut layered.clone(), request.request())?;
    let fields = response.headers().get_all("ratelimit-policy");
    Some(fields.iter().filter_map(|field| field.to_str().ok()).collect::<Vec<_>>().join(", "))
}

/// What the thread that sends requests is to enter its times as.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Unmeasured,
    Quiet,
    Replacing,
    Over,
}

/// How long requests took on the thread that sends them, one after the other.
#[derive(Default)]
struct Load {
    /// Some of those while nothing was replaced.
    quiet_ns: Vec<f64>,
    longest_quiet: Duration,
    longest_replacing: Duration,
    sent: u64,
    wrong: u64,
}

/// Milliseconds: a replacement of all limits, a replacement of one limit, and how much longer than
/// usual a request took while rules were replaced, and in as much time without that.
pub fn replace() -> Fallible<Vec<Measured>> {
    let guard = guard(MANY)?;
    let requests = requests(&services(MANY))?;
    let phase = AtomicU8::new(Phase::Unmeasured as u8);
    let (replaced, load) = thread::scope(|scope| {
        let load = scope.spawn(|| Load::send(&layered(&guard), &requests, &phase));
        let replaced = replace_repeatedly(&guard, &requests, &phase);
        phase.store(Phase::Over as u8, Ordering::SeqCst);
        let load = load.join().map_err(|_| "the thread that sends requests panicked")?;
        Ok::<_, Box<dyn std::error::Error>>((replaced?, load))
    })?;
    let usual = Duration::from_nanos(median(&load.quiet_ns) as u64);
    let wrong_sent = load.wrong as f64 / load.sent.max(1) as f64;
    let delay = |longest: Duration| Measured { value: ms(longest.saturating_sub(usual)), wrong: wrong_sent };
    let time = |times: &[f64]| Measured { value: median(times), wrong: replaced.not_in_force };
    Ok(vec![
        time(&replaced.all_ms),
        time(&replaced.one_ms),
        delay(load.longest_replacing),
        delay(load.longest_quiet),
    ])
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Load {
    fn send(layered: &GuardService<Bare>, requests: &[Template], phase: &AtomicU8) -> Self {
        const KEPT_MAX: usize = 100_000;
        let now_in = |wanted: Phase| phase.load(Ordering::Relaxed) == wanted as u8;
        let mut load = Self::default();
        for request in requests.iter().cycle() {
            let was_quiet = now_in(Phase::Quiet);
            let was_replacing = now_in(Phase::Replacing);
            let request = request.request();
            let begun = Instant::now();
            let response = respond(&mut layered.clone(), request);
            let took = begun.elapsed();
            load.sent += 1;
            load.wrong += u64::from(response.is_none_or(|response| response.status() != StatusCode::OK));
            if was_replacing || now_in(Phase::Replacing) {
                load.longest_replacing = load.longest_replacing.max(took);
            } else if was_quiet {
                load.longest_quiet = load.longest_quiet.max(took);
                if load.quiet_ns.len() < KEPT_MAX {
                    load.quiet_ns.push(took.as_nanos() as f64);
                }
            } else if now_in(Phase::Over) {
                break;
            }
        }
        load
    }
}

/// How long replacements took.
#[derive(Default)]
struct Replaced {
    all_ms: Vec<f64>,
    one_ms: Vec<f64>,
    /// Share of the replacements after which an old limit was still in force.
    not_in_force: f64,
}

/// Replaces until there are enough figures, each time followed by as long a time without.
fn replace_repeatedly(guard: &Guard, requests: &[Template], phase: &AtomicU8) -> Fallible<Replaced> {
    const TIMES: usize = 10;
    const TIMES_MIN: usize = 2;
    const TIME_MAX: Duration = Duration::from_secs(3);
    const PAUSE: Duration = Duration::from_millis(20);

    let enter = |next: Phase| phase.store(next as u8, Ordering::SeqCst);
    let layered = layered(guard);
    let mut replaced = Replaced::default();
    let mut failed = 0_u32;
    // Long enough for pages and branches to be known.
    thread::sleep(10 * PAUSE);
    let begun = Instant::now();
    for nth in 0..TIMES {
        if nth >= TIMES_MIN && begun.elapsed() > TIME_MAX {
            break;
        }
        let (next, before) = (LIMITS[(nth + 1) % 2], LIMITS[nth % 2]);
        let all = rules(MANY, next);
        // Afterwards only the first service has the limit of before again.
        let mut one = all.clone();
        let [items, _] = rules_of(0, before);
        one[0] = items;
        for (rules, times, limit) in [(all, &mut replaced.all_ms, next), (one, &mut replaced.one_ms, before)]
        {
            enter(Phase::Replacing);
            let start = Instant::now();
            guard.replace(rules)?;
            let took = start.elapsed();
            enter(Phase::Quiet);
            thread::sleep(took);
            enter(Phase::Unmeasured);
            times.push(ms(took));
            let text = policies(&layered, &requests[0]).unwrap_or_default();
            failed += u32::from(!text.contains(&format!("\"items-0\";q={limit};")));
            thread::sleep(PAUSE);
        }
    }
    replaced.not_in_force = f64::from(failed) / (replaced.all_ms.len() + replaced.one_ms.len()) as f64;
    Ok(replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_spread_over_the_services_and_meet_the_two_rules_of_theirs() {
        let services = services(MANY);
        assert_eq!(services, [0, 1_249, 2_499, 3_749, 4_999]);
        let layered = layered(&guard(MANY).expect("the rules are right"));
        let requests = requests(&services).expect("the paths are paths");
        assert_eq!(unmet_share(&layered, &requests[..100], &services), 0.0);
        // A check that cannot fail would be none.
        assert_eq!(unmet_share(&layered, &requests[..100], &[7]), 1.0);
    }
}
