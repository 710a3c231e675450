//! The suite `guard`: what a rate-limiting layer costs a request over the bare service behind it,
//! without sockets.
//!
//! Every figure is a difference: the layered and the bare service answer the same requests in turns
//! of the same loop. Requests come from a thousand clients, told by their address.

mod course;

use crate::report::{Base, Better, Case, Plan};
use crate::rounds::{Entrant, Role, alternate};
use crate::{Fallible, Wanted};
use course::{Answers, Course};
use std::sync::Arc;
use tidegate::Limiter;
use tidegate::guard::{Guard, Headers, Rule};
use tower::Layer;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

const TOWER_GOVERNOR: &str = "tower-governor";

pub fn run(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    let mut cases = Vec::new();
    for (name, answers) in [("layer.ns", Answers::Allowed), ("layer.denied.ns", Answers::Denied)] {
        if wanted.case(name) {
            let entrants = entrants(answers)?;
            let plan = Plan {
                name,
                unit: "ns",
                better: Better::Lower,
                base: Base::Peer(TOWER_GOVERNOR),
                notes: vec![
                    "processor time of a call through the layer, less that of the bare service, on one thread".into(),
                    "keyed by the peer's address, of a thousand clients; headers on: RateLimit and RateLimit-Policy here, x-ratelimit-* there".into(),
                ],
            };
            cases.push(Case::new(plan, &alternate(name, entrants, wanted.rounds)?)?);
        }
    }
    Ok(cases)
}

fn entrants(answers: Answers) -> Fallible<Vec<Entrant<'static>>> {
    let ours = guard(answers, Headers::default())?;
    let silent = guard(answers, Headers::none())?;
    let theirs = governor(answers)?;
    let mut entrants = vec![
        entrant("tidegate", Role::Ours, answers, ours.layer().layer(course::Bare)),
        entrant("tidegate, without headers", Role::Variant, answers, silent.layer().layer(course::Bare)),
        entrant(TOWER_GOVERNOR, Role::Peer, answers, theirs.layer(course::Bare)),
    ];
    if answers == Answers::Allowed {
        let gate = Limiter::new().gate("floor", "1000000/s")?;
        let course = Course::new(answers);
        entrants.push(Entrant::new("what no layer can do without", Role::Yardstick, move |_| {
            Ok(course.floor(&gate))
        }));
    }
    Ok(entrants)
}

fn entrant<S: course::Layered + 'static>(
    name: &'static str,
    role: Role,
    answers: Answers,
    mut service: S,
) -> Entrant<'static> {
    let course = Course::new(answers);
    Entrant::new(name, role, move |_| Ok(course.overhead(&mut service)))
}

/// One rule by client: nobody meets it, or nobody passes.
fn guard(answers: Answers, headers: Headers) -> Fallible<Guard> {
    let limit = match answers {
        Answers::Allowed => "1000000/s",
        Answers::Denied => "1/day",
    };
    let guard = Guard::new(&Limiter::new());
    Ok(guard.headers(headers).rule(Rule::new("clients", limit).by("ip")).build()?)
}

type Config = tower_governor::governor::GovernorConfig<
    tower_governor::key_extractor::PeerIpKeyExtractor,
    governor::middleware::StateInformationMiddleware,
>;

fn governor(
    answers: Answers,
) -> Fallible<
    GovernorLayer<
        tower_governor::key_extractor::PeerIpKeyExtractor,
        governor::middleware::StateInformationMiddleware,
        axum::body::Body,
    >,
> {
    let mut config = GovernorConfigBuilder::default();
    match answers {
        Answers::Allowed => config.per_nanosecond(1_000).burst_size(1_000_000),
        Answers::Denied => config.per_second(86_400).burst_size(1),
    };
    let config: Config = config.use_headers().finish().ok_or("tower-governor does not take the limit")?;
    Ok(GovernorLayer::new(Arc::new(config)))
}
