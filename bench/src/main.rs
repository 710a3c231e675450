//! The bench of Tidegate: the same work on us and on every peer, in one run.
//!
//! Here is only the command line. A suite lives in its own module, measures through `rounds`, and
//! hands its cases to `report`.

mod guard;
mod inproc;
mod journal;
mod procfs;
mod redis;
mod report;
mod rounds;
mod sale;

use clap::{Args, Parser, Subcommand};
use std::process::ExitCode;

/// Whatever goes wrong ends the run with a sentence; nothing here recovers.
type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
#[command(
    about = "Measures Tidegate beside its peers, in alternating rounds of one run",
    after_help = "\
Examples:
  cargo run --release --manifest-path bench/Cargo.toml -- inproc
  cargo run --release --manifest-path bench/Cargo.toml -- inproc --case hot --rounds 5
  cargo run --release --manifest-path bench/Cargo.toml -- redis
  cargo run --release --manifest-path bench/Cargo.toml -- journal --case enqueue
  cargo run --release --manifest-path bench/Cargo.toml -- sale --rounds 5
  bench/compare old/tidegate-bench new/tidegate-bench inproc --case hot --rounds 7

Reading the result: `ratio` is ours against the best peer that answered correctly, or against the
base that the case names; above 1 is better for us. It is the median of the rounds' ratios, and the
range behind it runs from the worst round to the best. Figures of an unoptimised build or of a busy
machine mean nothing: use --release, and close what else is running; the first line says how much
of the processors others used meanwhile."
)]
struct Cli {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Subcommand)]
enum Suite {
    /// The library in one process, against other Rust libraries; about six minutes
    Inproc(RunOptions),
    /// Several processes on one Redis, against the scripts that people use today; about fifteen
    /// minutes, needs the program redis-server
    Redis(RunOptions),
    /// What the tower layer costs a request, against tower-governor, and what ten thousand rules
    /// cost; about three minutes
    Guard(RunOptions),
    /// Calls kept and replayed on SQLite and PostgreSQL, against a table and a loop; about ten
    /// minutes, needs PostgreSQL
    Journal(RunOptions),
    /// Orders of a sale, end to end on real servers and on one file, against the seeds' flow; about
    /// five minutes, needs redis-server, RabbitMQ and PostgreSQL
    Sale(RunOptions),
    /// One contender's memory, in a process of its own; started by `inproc`
    #[command(hide = true)]
    BytesChild(inproc::bytes::ChildOptions),
    /// One contender's overhead in one situation, in a process of its own; started by `guard`
    #[command(hide = true)]
    GuardChild(guard::ChildOptions),
    /// One client process of a contender on Redis; started by `redis`
    #[command(hide = true)]
    Client(redis::client::ClientOptions),
}

/// What every suite lets its caller choose.
#[derive(Args)]
struct RunOptions {
    /// How often each contender is measured; fewer than 5 is only for a quick look
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Run only the cases whose name contains this text; the results file then stays untouched
    #[arg(long, value_name = "SUBSTRING")]
    case: Option<String>,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().suite {
        Suite::Inproc(options) => run("inproc", &options, inproc::run),
        Suite::Redis(options) => run("redis", &options, redis::run),
        Suite::Guard(options) => run("guard", &options, guard::run),
        Suite::Journal(options) => run("journal", &options, journal::run),
        Suite::Sale(options) => run("sale", &options, sale::run),
        Suite::BytesChild(options) => inproc::bytes::child(&options),
        Suite::GuardChild(options) => guard::child(&options),
        Suite::Client(options) => redis::client::child(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a suite, prints its table, and writes its results where the whole suite was run.
fn run(
    suite: &'static str,
    options: &RunOptions,
    measure: fn(&Wanted<'_>) -> Fallible<Vec<report::Case>>,
) -> Fallible<()> {
    if cfg!(debug_assertions) {
        eprintln!("bench: built without --release, the figures mean nothing");
    }
    let wanted = Wanted { rounds: usize::from(options.rounds), part: options.case.as_deref() };
    let watch = report::Watch::start();
    let cases = measure(&wanted)?;
    if cases.is_empty() {
        return Err("no case has this text in its name; run without --case to see all".into());
    }
    let report = report::Report::new(suite, cases, &watch);
    print!("{}", report.table());
    if options.case.is_none() {
        println!("\nwritten to {}", report.write()?);
    } else {
        println!("\na part of the suite: bench/results/{suite}.json stays as it was");
    }
    report.verdict()
}

/// Which cases to run, and how often.
pub struct Wanted<'a> {
    pub rounds: usize,
    part: Option<&'a str>,
}

impl Wanted<'_> {
    pub fn case(&self, name: &str) -> bool {
        self.part.is_none_or(|part| name.contains(part))
    }

    /// Whether any of these is wanted: what they share is then worth building.
    pub fn any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.case(name))
    }
}
