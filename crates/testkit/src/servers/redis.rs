//! One Redis server of a test's own.
//!
//! Nothing is written to disk by itself, so a server that was killed comes back empty,
//! unless it was started with `--appendonly yes` or the like.

use super::conn::printable;
use super::ports::ATTEMPTS;
use super::process::{LOG, Process};
use super::{Conn, Reply, TlsFiles, ports, wait_until};
use std::io;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, fs};
use tempfile::TempDir;

/// How long anything may take that a healthy server does at once. Far more than that,
/// because many tests share few processors.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A server that listens on its own port of 127.0.0.1. Dropping it ends it; one in a
/// `static` is never dropped, and ends with the test process.
pub struct RedisServer {
    recipe: Recipe,
    port: u16,
    bus_port: u16,
    /// Before the folder, because they are dropped in this order: a server that still ran
    /// could write into a folder that is being removed.
    process: Mutex<Option<Process>>,
    folder: TempDir,
}

impl RedisServer {
    /// A plain server.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With further arguments, such as `["--maxmemory", "3mb"]`. They overrule ours.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn with(args: &[&str]) -> Self {
        Self::make(&Recipe::with(args))
    }

    /// With a password of plain letters for everybody.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn with_password(password: &str) -> Self {
        let login = Some((String::new(), password.to_owned()));
        Self::make(&Recipe { login, ..Recipe::with(&["--requirepass", password]) })
    }

    /// With a user who may do what `rules` say, such as `~limits:* +eval +evalsha`, and
    /// whose address is [`url_as`](Self::url_as). Nobody gets in without a name; the
    /// server's own [`url`](Self::url) and [`cmd`](Self::cmd) are an administrator's.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn with_acl(user: &str, password: &str, rules: &str) -> Self {
        let secret = format!(">{password}");
        let mut args = vec!["--user", "default", "off"];
        args.extend(["--user", "admin", "on", ">admin", "~*", "&*", "+@all"]);
        args.extend(["--user", user, "on", &secret]);
        args.extend(rules.split_whitespace());
        let login = Some(("admin".to_owned(), "admin".to_owned()));
        Self::make(&Recipe { login, ..Recipe::with(&args) })
    }

    /// Encrypted only, and only for clients with a certificate: see [`tls`](Self::tls).
    ///
    /// # Panics
    /// Where it does not start.
    pub fn with_tls() -> Self {
        Self::make(&Recipe { tls: Some(TlsFiles::make()), ..Recipe::with(&[]) })
    }

    /// A replica that can only be read, once it has caught up with its master.
    ///
    /// # Panics
    /// Where it does not start, or its master does not answer.
    pub fn replica_of(master: &Self) -> Self {
        assert!(master.recipe.tls.is_none(), "replicas of an encrypted master are not provided for");
        let port = master.port.to_string();
        let mut args = vec!["--replicaof", "127.0.0.1", &port];
        if let Some((user, password)) = &master.recipe.login {
            args.extend(["--requirepass", password, "--masterauth", password]);
            if !user.is_empty() {
                args.extend(["--masteruser", user]);
            }
        }
        let login = master.recipe.login.as_ref().map(|(_, password)| (String::new(), password.clone()));
        let replica = Self::make(&Recipe { login, ..Recipe::with(&args) });
        wait_until("the replica has caught up", PATIENCE, || replica.is_linked() && master.feeds(&replica));
        replica
    }

    /// What a client connects to: `redis://127.0.0.1:PORT`, with name and password if
    /// there are any; `rediss:` where it is encrypted.
    pub fn url(&self) -> String {
        match &self.recipe.login {
            Some((user, password)) => self.url_as(user, password),
            None => format!("{}://{}", self.scheme(), self.addr()),
        }
    }

    /// The same for another user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("{}://{user}:{password}@{}", self.scheme(), self.addr())
    }

    /// `127.0.0.1:PORT`.
    pub fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port, the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificates.
    ///
    /// # Panics
    /// Where the server is not encrypted.
    pub fn tls(&self) -> &TlsFiles {
        self.recipe.tls.as_ref().expect("only a server made by `with_tls` has certificates")
    }

    /// Asks over a new connection, logged in if that is needed.
    ///
    /// # Panics
    /// Where no answer comes. A refusal is an answer.
    #[track_caller]
    pub fn cmd<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply {
        match self.try_cmd(args) {
            Ok(reply) => reply,
            Err(error) => panic!("{self:?} does not answer {}: {error}", printable(args)),
        }
    }

    /// As `cmd`.
    ///
    /// # Errors
    /// Where no answer comes.
    pub fn try_cmd<A: AsRef<[u8]>>(&self, args: &[A]) -> io::Result<Reply> {
        self.connect()?.try_cmd(args)
    }

    /// A connection, logged in if that is needed.
    ///
    /// # Errors
    /// Where the server is down.
    pub fn connect(&self) -> io::Result<Conn> {
        let mut conn = match self.recipe.tls {
            // Beside the encryption, so that this does not depend on what is tested.
            Some(_) => Conn::open_unix(&self.folder.path().join(SOCKET))?,
            None => Conn::open(&self.addr())?,
        };
        let Some((user, password)) = &self.recipe.login else { return Ok(conn) };
        let user = if user.is_empty() { "default" } else { user };
        let reply = conn.try_cmd(&["AUTH", user, password])?;
        reply.error().map_or(Ok(conn), |text| Err(io::Error::other(text)))
    }

    /// Kills it, as a power cut would.
    pub fn kill(&self) {
        *self.process() = None;
    }

    /// Starts it again, on the same port, in the same folder and with the same arguments.
    /// One that still runs is killed first.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn restart(&self) {
        self.kill();
        self.launch().unwrap_or_else(|log| panic!("redis-server does not start again:\n{log}"));
    }

    /// Stops it where it is: connections stay open, nothing is answered.
    ///
    /// # Panics
    /// Where it was killed.
    pub fn freeze(&self) {
        self.process().as_mut().expect("only a server that runs can be frozen").freeze();
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// Where it was killed.
    pub fn thaw(&self) {
        self.process().as_mut().expect("only a server that runs can be thawed").thaw();
    }

    /// Neither killed nor frozen.
    pub fn is_up(&self) -> bool {
        self.process().as_ref().is_some_and(|process| !process.is_frozen())
    }

    /// Its process, unless it was killed.
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Process::id)
    }

    /// How often a command was run, such as `evalsha`, since the server's start or the last
    /// `CONFIG RESETSTAT`. Calls that were refused before they ran do not count.
    ///
    /// # Panics
    /// Where the server does not answer.
    pub fn calls(&self, command: &str) -> u64 {
        let stats = self.info("commandstats", &format!("cmdstat_{}", command.to_lowercase()));
        let calls = stats.as_deref().and_then(|text| text.strip_prefix("calls=")?.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("Redis counts calls in whole numbers"))
    }

    /// Its clock, in microseconds.
    ///
    /// # Panics
    /// Where it does not answer.
    pub fn micros(&self) -> u64 {
        let time = self.cmd(&["TIME"]);
        let part = |nth: usize| time.items()[nth].text().parse::<u64>().expect("TIME is two numbers");
        part(0) * 1_000_000 + part(1)
    }

    /// Bytes that it has allocated.
    ///
    /// # Panics
    /// Where the server does not answer.
    pub fn used_memory(&self) -> u64 {
        let used = self.info("memory", "used_memory").and_then(|text| text.parse().ok());
        used.expect("Redis tells its memory in whole numbers")
    }

    /// One field of one section of `INFO`.
    ///
    /// # Panics
    /// Where the server does not answer.
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        find(&self.cmd(&["INFO", section]).accepted().text(), field)
    }

    /// What it has logged so far, over all its starts.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.folder.path().join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The port at which nodes of a cluster talk among themselves.
    pub(super) fn bus_port(&self) -> u16 {
        self.bus_port
    }

    /// A replica that is connected to its master.
    pub(super) fn is_linked(&self) -> bool {
        self.info("replication", "master_link_status").as_deref() == Some("up")
    }

    /// A master that sends each write to that replica at once. The replica finds itself
    /// connected some time before that.
    pub(super) fn feeds(&self, replica: &Self) -> bool {
        let info = self.cmd(&["INFO", "replication"]).accepted().text();
        let port = format!("port={},state=online", replica.port);
        info.lines().any(|line| line.starts_with("slave") && line.contains(&port))
    }

    pub(super) fn make(recipe: &Recipe) -> Self {
        for _ in 0..ATTEMPTS {
            let folder = tempfile::Builder::new().prefix("tidegate-redis-").tempdir();
            let server = Self {
                recipe: recipe.clone(),
                port: ports::free(),
                bus_port: ports::free(),
                folder: folder.expect("a folder for temporary files can be made"),
                process: Mutex::new(None),
            };
            match server.launch() {
                Ok(()) => return server,
                Err(log) if log.contains("Address already in use") => {}
                Err(log) => panic!("redis-server does not start:\n{log}"),
            }
        }
        panic!("somebody else was quicker to take each of {ATTEMPTS} ports");
    }

    /// Starts the process and waits until it answers; else gives its log.
    fn launch(&self) -> Result<(), String> {
        let args = self.recipe.args(self);
        let mut process = Process::start(Command::new("redis-server").args(&args), self.folder.path());
        let mut has_ended = false;
        wait_until("redis-server answers", PATIENCE, || {
            has_ended = process.has_ended();
            has_ended || self.is_ready(process.id()).unwrap_or(false)
        });
        if has_ended {
            return Err(format!("{}\narguments: {}", self.log(), args.join(" ")));
        }
        *self.process() = Some(process);
        Ok(())
    }

    /// It answers, and it is ours: another process may have taken the port.
    fn is_ready(&self, pid: u32) -> io::Result<bool> {
        let mut conn = self.connect()?;
        let pong = conn.try_cmd(&["PING"])?;
        let Reply::Bulk(info) = conn.try_cmd(&["INFO", "server"])? else { return Ok(false) };
        let its_pid = find(&String::from_utf8_lossy(&info), "process_id");
        Ok(pong == Reply::Simple("PONG".to_owned()) && its_pid == Some(pid.to_string()))
    }

    fn scheme(&self) -> &'static str {
        if self.recipe.tls.is_some() { "rediss" } else { "redis" }
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &*self.process() {
            None => "killed",
            Some(process) if process.is_frozen() => "frozen",
            Some(_) => "running",
        };
        write!(f, "Redis at {} ({state})", self.addr())
    }
}

const SOCKET: &str = "redis.sock";

/// How a server is started, except for what is chosen anew for each.
#[derive(Clone, Debug, Default)]
pub(super) struct Recipe {
    args: Vec<String>,
    /// User, or nothing, and password.
    login: Option<(String, String)>,
    tls: Option<TlsFiles>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, Default)]
enum Kind {
    #[default]
    Alone,
    Node,
    Sentinel,
}

impl Recipe {
    fn with(args: &[&str]) -> Self {
        Self { args: args.iter().map(ToString::to_string).collect(), ..Self::default() }
    }

    /// A node of a cluster.
    pub(super) fn node(args: &[&str]) -> Self {
        Self { kind: Kind::Node, ..Self::with(args) }
    }

    /// A sentinel that watches nothing yet.
    pub(super) fn sentinel() -> Self {
        Self { kind: Kind::Sentinel, ..Self::default() }
    }

    /// What stands first is overruled by what comes later.
    fn args(&self, server: &RedisServer) -> Vec<String> {
        let folder = server.folder.path();
        let (port, bus_port) = (server.port.to_string(), server.bus_port.to_string());
        let (dir, socket) = (folder.display().to_string(), folder.join(SOCKET).display().to_string());
        let mut args = Vec::new();
        let mut add = |more: &[&str]| args.extend(more.iter().map(ToString::to_string));
        if let Kind::Sentinel = self.kind {
            // It keeps what it knows in this file, and refuses to start without one.
            let file = folder.join("sentinel.conf");
            if !file.exists() {
                fs::write(&file, "").expect("the server's folder can be written to");
            }
            add(&[&file.display().to_string(), "--sentinel"]);
        } else {
            add(&["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]);
            // A master would wait five seconds for more replicas before it sends anything.
            add(&["--repl-diskless-sync-delay", "0"]);
        }
        add(&["--bind", "127.0.0.1", "--dir", &dir]);
        match self.tls {
            Some(_) => add(&["--port", "0", "--tls-port", &port, "--unixsocket", &socket]),
            None => add(&["--port", &port]),
        }
        if let Kind::Node = self.kind {
            add(&["--cluster-enabled", "yes", "--cluster-port", &bus_port]);
        }
        args.extend(self.tls.iter().flat_map(|tls| tls.install(folder)));
        args.extend(self.args.iter().cloned());
        args
    }
}

/// One field of what `INFO` and its like answer.
pub(super) fn find(info: &str, field: &str) -> Option<String> {
    let value = |line: &str| Some(line.strip_prefix(field)?.strip_prefix(':')?.trim_end().to_owned());
    info.lines().find_map(value)
}
