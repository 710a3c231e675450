//! One RabbitMQ broker of a test's own.
//!
//! A broker registers its name with epmd, Erlang's name service, and would start one that
//! outlives it. Ours is started first, beside the broker and on a port of its own, so that
//! both end with the test. Nothing is shared with a broker that the system runs: ports,
//! node name, cookie, folders and settings are all private.

use super::ports::ATTEMPTS;
use super::process::{LOG, Process};
use super::wait::wait_for;
use super::{ports, wait_until};
use rustix::process::Signal;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{env, fmt, fs};
use tempfile::TempDir;

/// How long a start or an end may take. A start takes 7 to 13 seconds on two processors that
/// others use too, and several brokers may start at once.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the answer to a greeting may take. Who takes longer is greeted again.
const GREETING: Duration = Duration::from_secs(1);

/// Not the programs in `/usr/sbin`, which switch to another user.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";

const LOOPBACK: &str = "-kernel inet_dist_use_interface {127,0,0,1}";

/// One thread of each kind: the machine belongs to what is tested.
const SMALL: &str = "+S 1:1 +SDcpu 1:1 +SDio 1 +A 1";

/// A broker that listens on its own port of 127.0.0.1, without plugins, with `guest` as its
/// administrator. Dropping it ends it.
pub struct RabbitServer {
    node: String,
    port: u16,
    node_port: u16,
    epmd_port: u16,
    /// First, because they are dropped in this order: the broker would start another epmd,
    /// and write into a folder that is being removed.
    broker: Mutex<Option<Process>>,
    epmd: Mutex<Process>,
    folder: TempDir,
}

impl RabbitServer {
    /// A plain broker.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With lines of `rabbitmq.conf`, such as `["heartbeat = 5"]`.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn with(settings: &[&str]) -> Self {
        for _ in 0..ATTEMPTS {
            let server = Self::make(settings);
            match server.launch() {
                Ok(()) => return server,
                Err(log) if server.is_taken(&log) => {}
                Err(log) => panic!("rabbitmq-server does not start:\n{log}"),
            }
        }
        panic!("somebody else was quicker to take each of {ATTEMPTS} ports");
    }

    /// What a client connects to: `amqp://guest:guest@127.0.0.1:PORT/%2f`.
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@{}/%2f", self.addr())
    }

    /// `127.0.0.1:PORT`.
    pub fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Asks `rabbitmqctl`, such as `["list_queues", "name", "type"]`. Fields come apart by
    /// tabs. This takes a second or two.
    ///
    /// # Panics
    /// Where the broker refuses or is down.
    #[track_caller]
    pub fn ctl(&self, args: &[&str]) -> String {
        self.try_ctl(args).unwrap_or_else(|error| panic!("{self:?} refuses {args:?}: {error}"))
    }

    /// As `ctl`.
    ///
    /// # Errors
    /// Where the broker refuses or is down, with what `rabbitmqctl` said.
    pub fn try_ctl(&self, args: &[&str]) -> Result<String, String> {
        let output = self.command("rabbitmqctl").arg("--silent").args(args).output();
        let output = output.expect("rabbitmqctl comes with the server");
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Makes it write down which quorum queues there are. By itself RabbitMQ 3.10 does that
    /// only later. Killed before that, it takes the queue for a new one when it is back: what
    /// it had confirmed is lost, and nobody leads the queue.
    ///
    /// # Panics
    /// Where the broker is down.
    pub fn sync(&self) {
        self.ctl(&["eval", "[ok = dets:sync(Table) || Table <- dets:all()]."]);
    }

    /// Kills it, as a crash would. What it confirmed in a quorum queue is on the disk, if the
    /// queue itself is: see [`sync`](Self::sync).
    pub fn kill(&self) {
        *self.broker() = None;
    }

    /// Kills it, and takes its disk away: it starts again without queues and messages.
    ///
    /// # Panics
    /// Where the files cannot be removed.
    pub fn lose_disk(&self) {
        self.kill();
        for entry in fs::read_dir(self.folder.path()).expect("the server's folder can be read").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&format!("{}@", self.node)) && entry.path().is_dir() {
                // The processes of the one that was killed need a moment to end.
                wait_until("its files are gone", PATIENCE, || {
                    let _ = fs::remove_dir_all(entry.path());
                    !entry.path().exists()
                });
            }
        }
    }

    /// Starts it again: the same node on the same port, with what it kept. One that still
    /// runs is killed first.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn restart(&self) {
        self.kill();
        self.launch().unwrap_or_else(|log| panic!("rabbitmq-server does not start again:\n{log}"));
    }

    /// Ends it in order, as an administrator would. A frozen one goes on first.
    pub fn stop(&self) {
        if let Some(mut process) = self.broker().take() {
            process.thaw();
            process.end(Signal::TERM, PATIENCE);
        }
    }

    /// Stops it where it is: connections stay open, nothing is answered.
    ///
    /// # Panics
    /// Where it was killed.
    pub fn freeze(&self) {
        self.broker().as_mut().expect("only a server that runs can be frozen").freeze();
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// Where it was killed.
    pub fn thaw(&self) {
        self.broker().as_mut().expect("only a server that runs can be thawed").thaw();
    }

    /// Neither killed nor stopped nor frozen.
    pub fn is_up(&self) -> bool {
        self.broker().as_ref().is_some_and(|process| !process.is_frozen())
    }

    /// The broker's process, unless it was killed or stopped.
    pub fn pid(&self) -> Option<u32> {
        self.broker().as_ref().map(Process::id)
    }

    /// What it has logged so far, over all its starts.
    pub fn log(&self) -> String {
        read(&self.folder.path().join(LOG))
    }

    /// All but the broker: folder, settings, and epmd.
    fn make(settings: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("tidegate-rabbit-").tempdir();
        let folder = folder.expect("a folder for temporary files can be made");
        let path = folder.path();
        let write = |name: &str, text: &str| {
            fs::write(path.join(name), text).expect("the server's folder can be written to");
        };
        write("rabbitmq.conf", &(settings.join("\n") + "\n"));
        write("enabled_plugins", "[].\n");
        let node = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let epmd_port = ports::free();
        Self {
            node: node.expect("the folder has a name"),
            port: ports::free(),
            node_port: ports::free(),
            epmd_port,
            broker: Mutex::new(None),
            epmd: Mutex::new(start_epmd(epmd_port, path)),
            folder,
        }
    }

    /// Starts the broker and waits until it answers; else gives its log.
    fn launch(&self) -> Result<(), String> {
        let before = self.log().len();
        let mut process = Process::start(&mut self.command("rabbitmq-server"), self.folder.path());
        let mut has_ended = false;
        let is_in_time = wait_for(PATIENCE, || {
            has_ended = process.has_ended() || lock(&self.epmd).has_ended();
            has_ended || self.is_ready(before).unwrap_or(false)
        });
        if has_ended || !is_in_time {
            return Err(self.log().split_off(before));
        }
        *self.broker() = Some(process);
        Ok(())
    }

    /// It greets, and it is ours: another process may have taken the port. The greeting is a
    /// frame (kind, channel, size) with the method `connection.start`, which names the node.
    /// The broker greets a moment before it is complete, and refuses `rabbitmqctl` until then.
    fn is_ready(&self, log_before: usize) -> io::Result<bool> {
        if !self.log().split_off(log_before).contains("Server startup complete") {
            return Ok(false);
        }
        let mut stream = TcpStream::connect(self.addr())?;
        stream.set_read_timeout(Some(GREETING))?;
        stream.write_all(b"AMQP\x00\x00\x09\x01")?;
        let mut head = [0; 7];
        stream.read_exact(&mut head)?;
        let [1, 0, 0, 0, 0, high, low] = head else { return Ok(false) };
        let mut body = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        stream.read_exact(&mut body)?;
        let is_start = body.starts_with(&[0, 10, 0, 10]);
        let is_ours = String::from_utf8_lossy(&body).contains(&format!("{}@", self.node));
        Ok(is_start && is_ours)
    }

    /// Somebody else has one of the ports. Of its own, epmd says nothing, and ends.
    fn is_taken(&self, log: &str) -> bool {
        lock(&self.epmd).has_ended() || log.contains("eaddrinuse") || log.contains("dist_port_already_used")
    }

    /// One of RabbitMQ's programs, told of this broker and of nothing else: settings of the
    /// system or of who runs the tests would reach it through the environment.
    fn command(&self, program: &str) -> Command {
        let path = |name: &str| self.folder.path().join(name);
        let installed = Path::new(PROGRAMS).join(program);
        let mut command = clean(if installed.exists() { installed.as_ref() } else { program.as_ref() });
        command
            // Here Erlang keeps the cookie that it makes.
            .env("HOME", path(""))
            // What went wrong is in the log; a dump of the memory would not say more.
            .env("ERL_CRASH_DUMP_SECONDS", "0")
            // The script is replaced by the broker, whose process then is our child.
            .env("RUNNING_UNDER_SYSTEMD", "true")
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_EPMD_PORT", self.epmd_port.to_string())
            .env("RABBITMQ_NODENAME", format!("{}@localhost", self.node))
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", self.port.to_string())
            .env("RABBITMQ_DIST_PORT", self.node_port.to_string())
            .env("RABBITMQ_MNESIA_BASE", path(""))
            .env("RABBITMQ_LOG_BASE", path(""))
            .env("RABBITMQ_LOGS", "-")
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env("RABBITMQ_CONFIG_FILE", path("rabbitmq.conf"))
            .env("RABBITMQ_CONFIG_FILES", path("none/*.conf"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", path("none.config"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", path("enabled_plugins"))
            // Else the single threads of several brokers would share the first processor.
            .env("RABBITMQ_SCHEDULER_BIND_TYPE", "u")
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", format!("{SMALL} {LOOPBACK}"))
            .env("RABBITMQ_CTL_ERL_ARGS", format!("{SMALL} {LOOPBACK}"))
            // Whichever port is free, instead of one of ten for the whole machine.
            .env("RABBITMQ_CTL_DIST_PORT_MIN", "0")
            .env("RABBITMQ_CTL_DIST_PORT_MAX", "0");
        command
    }

    fn broker(&self) -> MutexGuard<'_, Option<Process>> {
        lock(&self.broker)
    }
}

impl fmt::Debug for RabbitServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &*self.broker() {
            None => "not running",
            Some(process) if process.is_frozen() => "frozen",
            Some(_) => "running",
        };
        write!(f, "RabbitMQ at {} ({state})", self.addr())
    }
}

/// The folder of epmd within the server's.
const EPMD: &str = "epmd";

/// It has to answer before the broker asks, which else would start another. Whether it is
/// ours that answers shows later: it ends where the port is taken.
fn start_epmd(port: u16, folder: &Path) -> Process {
    let own = folder.join(EPMD);
    fs::create_dir(&own).expect("the server's folder can be written to");
    let mut command = clean(EPMD.as_ref());
    command.env("HOME", folder).args(["-address", "127.0.0.1", "-port", &port.to_string()]);
    let mut process = Process::start(&mut command, &own);
    wait_until("epmd answers", PATIENCE, || {
        process.has_ended() || TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    process
}

/// A command that inherits nothing but where programs are found.
fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LANG", "C.UTF-8").env("PATH", env::var_os("PATH").unwrap_or_default());
    command
}

fn read(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_test_process_that_dies_takes_broker_epmd_and_folder_along() {
        let server = RabbitServer::start();
        let folder = server.folder.path().to_owned();
        let mut broker = server.broker().take().unwrap();
        let mut epmd = lock(&server.epmd);
        for process in [&mut broker, &mut epmd] {
            process.abandon();
            wait_until("the guard has killed it", PATIENCE, || process.has_ended());
        }
        wait_until("the guard has removed the folder", PATIENCE, || !folder.exists());
    }

    #[test]
    fn a_port_that_somebody_else_has_is_recognised() {
        let mut server = RabbitServer::make(&[]);
        for port in [server.port, server.node_port] {
            let _other = TcpListener::bind(("127.0.0.1", port)).unwrap();
            let log = server.launch().unwrap_err();
            assert!(server.is_taken(&log), "{port} of {server:?}:\n{log}");
        }
        assert!(!server.is_taken(""));
        let folder = tempfile::tempdir().unwrap();
        server.epmd_port = ports::free();
        let _other = TcpListener::bind(("127.0.0.1", server.epmd_port)).unwrap();
        server.epmd = Mutex::new(start_epmd(server.epmd_port, folder.path()));
        let log = server.launch().unwrap_err();
        assert!(server.is_taken(&log), "epmd's port:\n{log}");
    }
}
