//! `tidegate sale`: without servers a demo on this machine, ready to buy from; with them a
//! service in production, which makes, prints and keeps no secrets.

mod credentials;
mod demo;
mod folder;

use crate::exit::{CODES, Ended, Usage};
use anyhow::Context as _;
use credentials::Given;
use demo::Demo;
use folder::Folder;
use std::cell::Cell;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;
use tidegate::http::ClientIp;
use tidegate::listener::Listener;
use tidegate::{Limit, Limiter};
use tidegate_sale::{
    GoodsId, Http, Refusal, SaleService, Secret, ServersConfig, SignedTokens, StartError, Starting, serve,
};
use tokio::signal::unix::{SignalKind, signal};

/// Connections at the same time. Each takes some kilobytes, and a file of the system's.
const CONNECTIONS: &str = "20000 concurrent";
/// Of them, for one address (an IPv6 one by its /64): nobody takes all of them alone. Behind a
/// proxy all come from one.
const CONNECTIONS_BY_CLIENT: &str = "2000 concurrent";

const HELP: &str = "\
Limits are written as in `1000/s burst 1s wait 1s`; `off` is none. The sale is made when it is
not there yet: then --stock, --rate and --per-user count, later the admin API changes it.";

/// Run a flash sale: one process, one SQLite file, nothing installed.
#[derive(clap::Args, Debug)]
#[command(after_help = format!("{HELP}\n\n{CODES}"))]
pub(crate) struct Args {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The folder for the database, the secret and the admin token; made if it is not there. Not
    /// used with servers.
    #[arg(long, value_name = "DIR", default_value = "tidegate-data")]
    data: PathBuf,
    /// What is sold.
    #[arg(long, value_name = "ID", default_value = "demo")]
    goods: GoodsId,
    /// How many units.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    stock: u64,
    /// How many buyers are let in.
    #[arg(long, value_name = "LIMIT", default_value = "1000/s burst 1s wait 1s")]
    rate: Limit,
    /// How many units one user may buy.
    #[arg(long, value_name = "N", default_value_t = 1)]
    per_user: u32,
    /// How often one user may ask for a path, and, counted by itself, for orders.
    #[arg(long, value_name = "LIMIT", default_value = "5/s burst 10", value_parser = limit_or_off)]
    user_limit: MaybeLimit,
    /// How often one address may ask for a path, and, each counted by itself, for orders, as an
    /// operator, and with a wrong token. Unless given it is `50/s burst 100`, and spares this
    /// machine's own addresses, from which the storm comes.
    #[arg(long, value_name = "LIMIT", value_parser = limit_or_off)]
    ip_limit: Option<MaybeLimit>,
    /// How many buyers may wait for their start at the same time. Each holds a connection: keep
    /// it below what the clients have together, or refusals wait behind them.
    #[arg(long, value_name = "N", default_value_t = 256)]
    waiters: usize,
    /// What operators sign in with, 16 characters or more. Every user of the machine can read a
    /// command line: prefer the variable, or a file. Made and kept in the folder without servers.
    #[arg(long, value_name = "TOKEN", env = "TIDEGATE_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
    /// A file with it.
    #[arg(long, value_name = "FILE", conflicts_with = "admin_token")]
    admin_token_file: Option<PathBuf>,
    /// What paths and buyers' tokens are signed with, 64 hexadecimal digits; likewise.
    #[arg(long, value_name = "HEX", env = "TIDEGATE_SALE_SECRET", hide_env_values = true)]
    secret: Option<String>,
    /// A file with it.
    #[arg(long, value_name = "FILE", conflicts_with = "secret")]
    secret_file: Option<PathBuf>,
    /// A proxy whose X-Forwarded-For is believed: an address, a network such as 10.0.3.0/24,
    /// `loopback` or `private`. May be given several times.
    #[arg(long, value_name = "NETWORK")]
    trusted_proxy: Vec<String>,
    /// Redis, for any number of processes: `redis://user:password@host:6379`. Goes with `--amqp`
    /// and `--postgres`; without the three, one file in the folder does it all.
    #[arg(long, value_name = "URL", env = "TIDEGATE_REDIS", hide_env_values = true, requires_all = ["amqp", "postgres"])]
    redis: Option<String>,
    /// RabbitMQ: `amqp://user:password@host:5672/%2f`.
    #[arg(long, value_name = "URL", env = "TIDEGATE_AMQP", hide_env_values = true, requires_all = ["redis", "postgres"])]
    amqp: Option<String>,
    /// PostgreSQL: `postgres://user:password@host:5432/database`.
    #[arg(long, value_name = "URL", env = "TIDEGATE_POSTGRES", hide_env_values = true, requires_all = ["redis", "amqp"])]
    postgres: Option<String>,
}

impl Args {
    /// The servers, if the sale is to run on them.
    fn servers(&self) -> Option<ServersConfig> {
        Some(ServersConfig::new(self.redis.as_ref()?, self.amqp.as_ref()?, self.postgres.as_ref()?))
    }
}

/// What the sale runs on.
enum On {
    /// The demo: one process, one file.
    Folder(Folder),
    Servers(ServersConfig),
}

/// A limit, or none.
#[derive(Clone, Debug)]
struct MaybeLimit(Option<Limit>);

fn limit_or_off(text: &str) -> Result<MaybeLimit, String> {
    if text == "off" {
        return Ok(MaybeLimit(None));
    }
    text.parse().map(|limit| MaybeLimit(Some(limit))).map_err(|error: tidegate::LimitError| error.to_string())
}

pub(crate) async fn run(args: Args) -> anyhow::Result<Ended> {
    let client_ip = match &args.trusted_proxy[..] {
        [] => ClientIp::peer(),
        proxies => ClientIp::behind(proxies).map_err(|error| Usage(format!("--trusted-proxy: {error}")))?,
    };
    let given = Given::read(&args)?;
    more_files();
    let listener = listen(args.listen, args.trusted_proxy.is_empty()).await?;
    let at = listener.local_addr()?;
    let on = match args.servers() {
        None => On::Folder(Folder::open(&args.data)?),
        Some(servers) => On::Servers(servers),
    };
    // Whoever comes before it can sell is told so: 50302, and not a connection that hangs.
    let (starting, mut signalled) = (Starting::default(), pin!(signals()?));
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(serve(listener, starting.router(), async move {
        let _ = ended.await;
    }));
    let service = tokio::select! {
        service = started(&args, &on, given.secret()) => service?,
        () = &mut signalled => return Ok(Ended::Done),
    };
    if let (On::Folder(folder), None) = (&on, given.secret()) {
        folder.share_secret(service.secret())?;
    }
    let (admin, kept) = given.admin(&on)?;
    let routes = Http::new(service.clone(), SignedTokens::new(service.secret()));
    starting.begin(routes.admin_token(admin).client_ip(client_ip).router());
    let demo = Demo {
        args: &args,
        at,
        secret: service.secret(),
        admin: kept.as_deref(),
        is_on_servers: matches!(on, On::Servers(_)),
        is_made: Cell::new(false),
    };
    let told = tokio::select! {
        told = prepared(&demo, &service) => Some(told),
        () = &mut signalled => None,
    };
    let mut out = std::io::stdout();
    match told {
        Some(Ok(told)) => {
            out.write_all(told.as_bytes()).and_then(|()| out.flush())?;
            signalled.await;
        }
        Some(Err(error)) => {
            service.stop().await;
            return Err(error);
        }
        None => {}
    }
    service.leave();
    let _ = end.send(());
    let _ = serving.await;
    service.stop().await;
    match on {
        On::Folder(folder) => writeln!(
            out,
            "stopped; every order that was given a number is in {}",
            folder.database().display()
        )?,
        On::Servers(_) => writeln!(out, "stopped; other processes go on with what is on its way")?,
    }
    Ok(Ended::Done)
}

/// Between two tries to reach what it runs on.
const AGAIN: Duration = Duration::from_millis(500);

/// The service, as soon as PostgreSQL answers.
async fn started(args: &Args, on: &On, secret: Option<&Secret>) -> anyhow::Result<SaleService> {
    let mut waiting = Waiting::default();
    loop {
        match start(args, on, secret).await {
            Err(StartError::NoAnswer(why)) => waiting.tell(&why),
            service => return Ok(service?),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The sale as it was asked for, as soon as everything that it runs on answers.
async fn prepared(demo: &Demo<'_>, service: &SaleService) -> anyhow::Result<String> {
    let mut waiting = Waiting::default();
    loop {
        match demo.prepare(service).await {
            Err(error) if error.downcast_ref() == Some(&Refusal::Busy) => {
                waiting.tell(&service.unanswered().unwrap_or_else(|| "the sale is being loaded".into()));
            }
            told => return told,
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// What the operator was told to wait for: said once, until it is something else.
#[derive(Default)]
struct Waiting(String);

impl Waiting {
    fn tell(&mut self, why: &str) {
        if self.0 != why {
            eprintln!("waiting: {why}");
            why.clone_into(&mut self.0);
        }
    }
}

async fn start(args: &Args, on: &On, secret: Option<&Secret>) -> Result<SaleService, StartError> {
    let builder = SaleService::builder().user_limit(args.user_limit.0.clone()).waiters(args.waiters);
    let builder = match secret {
        Some(secret) => builder.secret(secret.clone()),
        None => builder,
    };
    let builder = match &args.ip_limit {
        Some(MaybeLimit(limit)) => builder.ip_limit(limit.clone()),
        None => builder.spare_loopback(true),
    };
    match on {
        On::Folder(folder) => builder.embedded(folder.database()).await,
        On::Servers(servers) => builder.servers(servers.clone()).await,
    }
}

async fn listen(at: SocketAddr, is_direct: bool) -> anyhow::Result<Listener> {
    let listener = Listener::bind(at).await;
    let listener =
        listener.with_context(|| format!("cannot listen on {at}; choose another with --listen"))?;
    let limiter = Limiter::new();
    let listener = listener.connections(limiter.gate("connections", CONNECTIONS)?)?;
    if !is_direct {
        return Ok(listener);
    }
    Ok(listener.connections_by_client(limiter.gate("connections.client", CONNECTIONS_BY_CLIENT)?)?)
}

/// Ends at the first signal to end. A second one ends the program at once.
fn signals() -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    let (mut int, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let next = async move || {
        tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
    };
    let (first, is_first) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut next = next;
        next().await;
        let _ = first.send(());
        eprintln!("stopping: what has begun is finished; once more to end at once");
        next().await;
        std::process::exit(1);
    });
    Ok(async move {
        let _ = is_first.await;
    })
}

/// As many open files as the system lets a process have: each connection is one.
fn more_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where that is refused, the listener waits for a free one.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
