//! The suite `guard`: what a rate-limiting layer costs a request over the bare service behind it,
//! without sockets.
//!
//! Every figure is a difference: the layered and the bare service answer the same requests in turns.
//! Requests come from a thousand clients, told by their address. Each round is a process of its own,
//! where all contenders take turns: where the system puts a stack changes such figures by a tenth,
//! and so does what else the machine has to do.

mod course;

use crate::report::{Base, Better, Case, Plan};
use crate::rounds::{Measured, Role, Series, progress, progress_done};
use crate::{Fallible, Wanted};
use course::{Bare, Contender, Course, Floor};
use std::sync::Arc;
use tidegate::Limiter;
use tidegate::http::{Guard, Headers};
use tidegate::rules::Rule;
use tower::Layer;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

const TIDEGATE: &str = "tidegate";
const WITHOUT_HEADERS: &str = "tidegate, without headers";
const TOWER_GOVERNOR: &str = "tower-governor";
const FLOOR: &str = "what no layer can do without";

/// What requests meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Situation {
    /// Clients that have asked for nothing lately, answers without fields of their own.
    Allowed,
    /// What a layer meets in a service: signed-in users, clients that have used up some of their
    /// allowance, answers with a content type.
    LivedIn,
    /// Nobody passes.
    Denied,
}

impl Situation {
    fn case(self) -> (&'static str, &'static str) {
        match self {
            Self::Allowed => ("layer.ns", "allowed"),
            Self::LivedIn => ("layer.lived-in.ns", "lived-in"),
            Self::Denied => ("layer.denied.ns", "denied"),
        }
    }

    fn limit(self) -> &'static str {
        match self {
            Self::Allowed => "1000000/s",
            Self::LivedIn => "1000000/h",
            Self::Denied => "1/day",
        }
    }
}

pub fn run(wanted: &Wanted<'_>) -> Fallible<Vec<Case>> {
    let mut cases = Vec::new();
    for situation in [Situation::Allowed, Situation::LivedIn, Situation::Denied] {
        let (name, word) = situation.case();
        if !wanted.case(name) {
            continue;
        }
        let mut entrants =
            vec![(TIDEGATE, Role::Ours), (WITHOUT_HEADERS, Role::Variant), (TOWER_GOVERNOR, Role::Peer)];
        let mut notes = vec![
            "processor time of a call through the layer, less that of the bare service, on one thread; each round is the median of a hundred turns, of all contenders in one process".to_owned(),
            "keyed by the peer's address, of a thousand clients; headers on: RateLimit and RateLimit-Policy here, x-ratelimit-* there".to_owned(),
        ];
        match situation {
            Situation::Allowed => entrants.push((FLOOR, Role::Yardstick)),
            Situation::LivedIn => notes.push(
                "a signed-in user, a used allowance, an answer with a content type; the user also becomes the caller of the service here".to_owned(),
            ),
            Situation::Denied => {}
        }
        let series = in_turns(name, word, &entrants, wanted.rounds)?;
        let plan = Plan { name, unit: "ns", better: Better::Lower, base: Base::Peer(TOWER_GOVERNOR), notes };
        cases.push(Case::new(plan, &series)?);
    }
    Ok(cases)
}

/// All contenders of a round in one process, in turns of a millisecond: a machine that is slower
/// for a while is slower for all of them.
fn in_turns(
    case: &'static str,
    situation: &str,
    entrants: &[(&'static str, Role)],
    rounds: usize,
) -> Fallible<Vec<Series>> {
    let series =
        |(name, role): &(&'static str, Role)| Series { name, role: *role, values: Vec::new(), wrong: 0.0 };
    let mut series: Vec<Series> = entrants.iter().map(series).collect();
    for round in 0..rounds {
        progress(case, &format!("round {}/{rounds}", round + 1), "all in turns");
        let names: Vec<&str> = entrants.iter().map(|(name, _)| *name).collect();
        let arguments: Vec<&str> = ["guard-child", situation].into_iter().chain(names).collect();
        for (one, measured) in series.iter_mut().zip(Measured::in_own_process(&arguments)?) {
            one.values.push(measured.value);
            one.wrong = one.wrong.max(measured.wrong);
        }
    }
    progress_done(case);
    Ok(series)
}

#[derive(clap::Args)]
pub struct ChildOptions {
    situation: Situation,
    contenders: Vec<String>,
}

/// The child's side: prints each contender's overhead in nanoseconds and share of wrong answers.
pub fn child(options: &ChildOptions) -> Fallible<()> {
    let situation = options.situation;
    let course = Course::new(situation);
    let mut contenders = Vec::new();
    for name in &options.contenders {
        contenders.push(contender(situation, name)?);
    }
    course.run(&mut contenders).iter().for_each(Measured::tell);
    Ok(())
}

fn contender(situation: Situation, name: &str) -> Fallible<Box<dyn Contender>> {
    let bare = Bare::new(situation);
    Ok(match name {
        TIDEGATE => Box::new(guard(situation, Headers::default())?.layer().layer(bare)),
        WITHOUT_HEADERS => Box::new(guard(situation, Headers::none())?.layer().layer(bare)),
        TOWER_GOVERNOR => Box::new(governor(situation)?.layer(bare)),
        FLOOR => Box::new(Floor(Limiter::new().gate("floor", situation.limit())?)),
        other => return Err(format!("nobody here is called {other:?}").into()),
    })
}

/// One rule by client: nobody meets it, or nobody passes.
fn guard(situation: Situation, headers: Headers) -> Fallible<Guard> {
    let guard = Guard::new(&Limiter::new());
    Ok(guard.headers(headers).rule(Rule::new("clients", situation.limit()).by("ip")).build()?)
}

type Config = tower_governor::governor::GovernorConfig<
    tower_governor::key_extractor::PeerIpKeyExtractor,
    governor::middleware::StateInformationMiddleware,
>;

fn governor(
    situation: Situation,
) -> Fallible<
    GovernorLayer<
        tower_governor::key_extractor::PeerIpKeyExtractor,
        governor::middleware::StateInformationMiddleware,
        axum::body::Body,
    >,
> {
    let mut config = GovernorConfigBuilder::default();
    match situation {
        Situation::Allowed => config.per_nanosecond(1_000).burst_size(1_000_000),
        Situation::LivedIn => config.per_nanosecond(3_600_000).burst_size(1_000_000),
        Situation::Denied => config.per_second(86_400).burst_size(1),
    };
    let config: Config = config.use_headers().finish().ok_or("tower-governor does not take the limit")?;
    Ok(GovernorLayer::new(Arc::new(config)))
}
