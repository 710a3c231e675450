//! `tidegate storm`: a crowd on a running sale, and its books afterwards.
//!
//! Open loop: users come by the plan, whatever the sale does, and each latency counts from the
//! moment that was meant. Deliberately absent: anything that a stranger's server could be hurt
//! with. It stays on this machine unless told otherwise, and always ends by itself.

mod answer;
mod books;
mod bound;
mod crowd;
mod inspect;
mod reply;
mod report;
mod request;
mod schedule;
mod sheet;
mod tally;
mod target;
mod token;
mod wire;

use crate::exit::{CODES, Ended, Usage};
use crate::terminal;
use anyhow::Context as _;
use crowd::{Outcome, Plan};
use report::Report;
use request::Requests;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use target::Target;
use tidegate_sale::SignedTokens;
use tokio::signal::unix::{SignalKind, signal};
use wire::Wire;

const HELP: &str = "\
What each user does:
  1. arrives at a random moment of --duration and asks for a path (GET /randomPath)
  2. told to come back (429, 503, or 425 before the opening): comes back after Retry-After and up
     to half as much again, at most --retries times; any other refusal is the end
  3. with a path, thinks for about --think, then orders --units (POST /{path}/decrStock)
  4. an order whose answer was lost is asked for again with the same path, which is safe;
     --repeat in a hundred buyers do so although they have their number, and must get it again

Arrivals never wait for answers, and latencies count from the moment that was meant, so a sale that
stalls cannot hide it. \"sent late by\" is the part of it that passed before the request was sent:
the timer's millisecond, and waiting for a free connection.

In the end the books of the sale (GET /sale/{goods}/books, read before and after) must add up and know of
every unit that the crowd was given a number for, no number may have been given twice, up to
--check-orders of them are looked up one by one, and no window of 100 ms, 1 s, 5 s or 20 s may hold more
paths than the sale's rate allows: otherwise it prints what differs, and exits with 1.

Examples:
  tidegate sale                                        in one terminal, and in another:
  tidegate storm                                       a million users within a minute
  tidegate storm --users 20000 --duration 10s          a small one
  tidegate storm --users 100000 --think 2s --check-orders 1000 --json storm.json
  TIDEGATE_SALE_SECRET=… TIDEGATE_ADMIN_TOKEN=… tidegate storm --url http://10.0.0.7:8080 --allow-remote

Signing in: the sale's secret signs a token for each user. The secret is --secret, else the environment
variable TIDEGATE_SALE_SECRET, else the file `secret` in the sale's folder (--data). The books are read
with the admin token: --admin-token, else TIDEGATE_ADMIN_TOKEN, else the file `admin-token` there. On a
command line every user of the machine can read both: prefer the others.

It stops after --duration and --grace at the latest, then waits up to 10 s for orders in flight. Ctrl-C
stops it at once, and the figures so far are told.";

/// Let a crowd loose on a running sale, and check its books afterwards.
#[derive(clap::Args, Debug)]
#[command(after_help = format!("{HELP}\n\n{CODES}"))]
pub(crate) struct Args {
    /// Where the sale is.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: Target,
    /// What is bought.
    #[arg(long, value_name = "ID", default_value = "demo", value_parser = id)]
    goods: String,
    /// How many users come.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    users: u32,
    /// Within which time they come; at most 1h.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = length)]
    duration: Duration,
    /// How long what has begun may still take after that.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = length)]
    grace: Duration,
    /// How long a buyer thinks between path and order, on average.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = length)]
    think: Duration,
    /// How many units a buyer orders.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    units: u32,
    /// How often a user comes back who was told to.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(..=2))]
    retries: u8,
    /// How many in a hundred buyers repeat their order, and must get the same number.
    #[arg(long, value_name = "PERCENT", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(..=100))]
    repeat: u8,
    /// Connections, which are kept; each carries one request at a time.
    #[arg(long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u16).range(1..=20_000))]
    connections: u16,
    /// How long one answer may take.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = length)]
    timeout: Duration,
    /// Look up to so many of the given orders up in the end.
    #[arg(long, value_name = "K", default_value_t = 10_000)]
    check_orders: u32,
    /// The same seed has the same arrivals. Chosen at random unless given.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The sale's secret, 64 hexadecimal digits.
    #[arg(long, value_name = "HEX")]
    secret: Option<String>,
    /// What operators sign in with, for the books.
    #[arg(long, value_name = "TOKEN", env = "TIDEGATE_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
    /// The folder of a sale on this machine, whose secret and admin token are taken.
    #[arg(long, value_name = "DIR", default_value = "tidegate-data")]
    data: PathBuf,
    /// Go to another machine, too.
    #[arg(long)]
    allow_remote: bool,
    /// Write all figures into this file; `-` is standard output, instead of the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Room for what else the process has open.
const FILES_BESIDE: u64 = 64;

pub(crate) async fn run(args: Args) -> anyhow::Result<Ended> {
    let secret =
        args.secret.clone().or_else(|| std::env::var(token::VARIABLE).ok()).filter(|text| !text.is_empty());
    let secret = token::secret(secret.as_deref(), &args.data)?;
    let address = args.url.resolve(args.allow_remote).await?;
    room_for(u64::from(args.connections) + FILES_BESIDE)?;
    // Before the storm: afterwards the figures would be lost.
    let mut file = match &args.json {
        Some(path) if path.as_os_str() != "-" => {
            Some(std::fs::File::create(path).with_context(|| format!("--json {}", path.display()))?)
        }
        _ => None,
    };
    let plan = Plan {
        users: args.users,
        span: args.duration,
        grace: args.grace,
        think: args.think,
        retries: args.retries,
        repeats: args.repeat,
        seed: args.seed.unwrap_or_else(|| fastrand::u64(..)),
    };
    // Not from the seed: the same storm twice needs new users, or the sale says that they have bought.
    let crowd = format!("storm-{:08x}", fastrand::u32(..));
    let good_for = args.duration + args.grace + Duration::from_secs(3600);
    let tokens = (SignedTokens::new(&secret), good_for);
    let admin = token::admin(args.admin_token.as_deref(), &args.data)?;
    let requests = Rc::new(Requests::new(&args.url, &args.goods, args.units, crowd, tokens, admin));
    let mut beside = Wire::new(address, args.timeout);
    let before = inspect::books(&mut beside, &requests, &args.url).await?;
    let rate = inspect::rate(&mut beside, &requests).await;
    let wires = connect(&args, address).await?;
    let connections = wires.len();
    let (outcome, cpu) = storm(&args, plan.clone(), requests.clone(), wires).await?;
    let after = inspect::settled(&mut beside, &requests, &args.url).await;
    let (goods, check) = ((args.goods.as_str(), args.units), (args.check_orders as usize, args.grace));
    let checked = inspect::check_orders(&mut beside, &requests, &outcome.tally.given, goods, check).await;
    let mut differences = match &after {
        Ok(after) => books::differences(&before, after, &outcome.tally.given, args.units),
        Err(error) => vec![format!("the books could not be read in the end: {error:#}")],
    };
    differences.extend(checked.differences.iter().cloned());
    // One that was changed meanwhile is no measure.
    let rate = match (rate, inspect::rate(&mut beside, &requests).await) {
        (Some(before), Some(after)) if before == after => Some(before),
        _ => None,
    };
    if let Some(rate) = &rate {
        differences.extend(bound::overruns(rate, &outcome.tally));
    }
    let report = Report {
        target: args.url.to_string(),
        goods: &args.goods,
        plan: &plan,
        connections,
        units_each: args.units,
        outcome: &outcome,
        cpu,
        rate: rate.as_ref(),
        before: &before,
        after: after.as_ref().ok(),
        checked: &checked,
        differences: &differences,
    };
    tell(&report, file.as_mut(), args.json.is_some())?;
    let is_good = differences.is_empty() && !outcome.was_interrupted;
    Ok(if is_good { Ended::Done } else { Ended::NotAll })
}

/// Runs the crowd under a progress bar, and measures what it costs.
async fn storm(
    args: &Args,
    plan: Plan,
    requests: Rc<Requests>,
    wires: Vec<Wire>,
) -> anyhow::Result<(Outcome, Duration)> {
    let (mut int, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stopped = async {
        tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
    };
    let bar = terminal::bar(u64::from(args.users));
    let before = cpu_time();
    let outcome = crowd::run(plan, requests, wires, &bar, stopped).await;
    bar.finish_and_clear();
    Ok((outcome, cpu_time().saturating_sub(before)))
}

/// All connections, before anybody comes: users do not pay for them.
async fn connect(args: &Args, address: SocketAddr) -> anyhow::Result<Vec<Wire>> {
    let mut wires = Vec::new();
    for made in 0..args.connections {
        let mut wire = Wire::new(address, args.timeout);
        let connected = tokio::time::timeout(args.timeout, wire.connect()).await;
        connected.map_err(anyhow::Error::from).and_then(|made| Ok(made?)).with_context(|| {
            format!("{} accepts {made} connections and no more; use fewer --connections", args.url)
        })?;
        wires.push(wire);
    }
    Ok(wires)
}

fn tell(report: &Report<'_>, file: Option<&mut std::fs::File>, is_json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if is_json {
        let json = terminal::json(&report.json())?;
        let Some(file) = file else { return Ok(writeln!(out, "{json}")?) };
        writeln!(file, "{json}").context("--json")?;
    }
    for line in report.lines() {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Lets this process have so many files and connections open.
fn room_for(files: u64) -> Result<(), Usage> {
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|most| most >= files) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(files), maximum: now.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|_| {
        Usage(format!(
            "this system allows {} open files: use fewer --connections, or raise `ulimit -n` to {files}",
            now.maximum.unwrap_or_default()
        ))
    })
}

fn cpu_time() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(spent).unwrap_or_default()
}

/// The longest that anything here may take.
const LENGTH_MAX: Duration = Duration::from_secs(3600);

/// An argument that is a length of time: `500ms`, `60s`, `1h`.
fn length(text: &str) -> Result<Duration, String> {
    const WRITE: &str = "write 500ms, 60s or 5m; at most 1h";
    let length = humantime::parse_duration(text).map_err(|error| format!("{error}; {WRITE}"))?;
    if length <= LENGTH_MAX { Ok(length) } else { Err(format!("too long; {WRITE}")) }
}

/// An argument that is an id of the sale's.
fn id(text: &str) -> Result<String, String> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_id = (1..=64).contains(&text.len()) && text.bytes().all(is_part);
    is_id
        .then(|| text.to_owned())
        .ok_or_else(|| "an id is 1 to 64 letters, digits or any of `._-`".to_owned())
}
