//! One PostgreSQL server of a test's own, with `fsync` on: what it acknowledged, it kept.
//!
//! PostgreSQL does not run as root. Where the tests do, its processes are started as the user
//! `postgres`, whom its packages make.

use super::TlsFiles;
use super::ports::ATTEMPTS;
use super::process::{LOG, Process};
use super::{ports, wait_until};
use rustix::process::Signal;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, fs};
use tempfile::TempDir;

/// How long anything may take that a healthy server does at once. Far more than that, because
/// many tests share few processors, and a server that was killed reads its log first.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that listens on its own port of 127.0.0.1. Dropping it ends it.
pub struct PostgresServer {
    port: u16,
    settings: Vec<String>,
    databases: AtomicUsize,
    process: Mutex<Option<Process>>,
    folder: TempDir,
}

impl PostgresServer {
    /// A plain server.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With settings, such as `["deadlock_timeout=10ms"]`. They overrule ours.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn with(settings: &[&str]) -> Self {
        let settings = settings.iter().map(ToString::to_string).collect();
        Self::prepared(settings, |_| Vec::new())
    }

    /// With a certificate for `127.0.0.1` and `localhost`, and what a client needs to check it.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn with_tls() -> (Self, TlsFiles) {
        let files = TlsFiles::make();
        let server = Self::prepared(vec!["ssl=on".to_owned()], |folder| {
            let [cert, key] = files.install_server(folder);
            for file in [&cert, &key] {
                fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("the file is ours");
                if let Some((uid, gid)) = other_user() {
                    chown(file, Some(uid), Some(gid)).expect("root can give a file away");
                }
            }
            vec![format!("ssl_cert_file={}", cert.display()), format!("ssl_key_file={}", key.display())]
        });
        (server, files)
    }

    fn prepared(mut settings: Vec<String>, prepare: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let folder = tempfile::Builder::new().prefix("tidegate-postgres-").tempdir();
        let folder = folder.expect("a folder for temporary files can be made");
        if let Some((uid, gid)) = other_user() {
            chown(folder.path(), Some(uid), Some(gid)).expect("root can give a folder away");
        }
        settings.extend(prepare(folder.path()));
        let mut server =
            Self { port: 0, settings, databases: AtomicUsize::new(0), process: Mutex::new(None), folder };
        server.init();
        for _ in 0..ATTEMPTS {
            server.port = ports::free();
            match server.launch() {
                Ok(()) => return server,
                Err(log) if log.contains("Address already in use") => {}
                Err(log) => panic!("postgres does not start:\n{log}"),
            }
        }
        panic!("somebody else was quicker to take each of {ATTEMPTS} ports");
    }

    /// What a client connects to, as administrator: `postgres://postgres@127.0.0.1:PORT/postgres`.
    pub fn url(&self) -> String {
        self.url_of("postgres", "postgres")
    }

    /// The same for a user and a database.
    pub fn url_of(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@{}/{database}", self.addr())
    }

    /// Makes an empty database, and tells its address.
    ///
    /// # Panics
    /// Where the server refuses.
    pub fn database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql(&format!("CREATE DATABASE {name}"));
        self.url_of("postgres", &name)
    }

    /// `127.0.0.1:PORT`.
    pub fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Runs statements in the administrator's database; values come apart by `|`.
    ///
    /// # Panics
    /// Where the server refuses.
    #[track_caller]
    pub fn sql(&self, statements: &str) -> String {
        self.sql_in(&self.url(), statements)
    }

    /// Runs statements at this address.
    ///
    /// # Panics
    /// Where the server refuses.
    #[track_caller]
    pub fn sql_in(&self, url: &str, statements: &str) -> String {
        self.try_sql_in(url, statements)
            .unwrap_or_else(|error| panic!("{self:?} refuses {statements}: {error}"))
    }

    /// As `sql_in`.
    ///
    /// # Errors
    /// Where the server refuses, with what it said.
    pub fn try_sql_in(&self, url: &str, statements: &str) -> Result<String, String> {
        let mut psql = Command::new(binary("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", statements]);
        let output = psql.output().expect("psql comes with the server");
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Kills it, as a crash would. What it was asked to commit is decided by its log.
    pub fn kill(&self) {
        *self.process() = None;
    }

    /// Starts it again, on the same port and in the same folder. One that still runs is
    /// killed first.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn restart(&self) {
        self.kill();
        let mut log = String::new();
        // The processes of the one that was killed need a moment to notice.
        wait_until("postgres starts again", PATIENCE, || self.launch().map_err(|text| log = text).is_ok());
    }

    /// Ends it in order, as an administrator would, breaking off what clients are at.
    pub fn stop(&self) {
        if let Some(process) = self.process().take() {
            process.end(Signal::INT, PATIENCE);
        }
    }

    /// Its process, unless it was killed.
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Process::id)
    }

    /// What it has logged so far, over all its starts.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.path().join(LOG)).unwrap_or_default()).into_owned()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn init(&self) {
        let data = self.data().display().to_string();
        // Making the files need not survive a power cut; what is written later does.
        let args = ["-D", &data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N"];
        let (program, args) = as_other_user(&binary("initdb"), &args.map(str::to_owned));
        let output = Command::new(&program).args(&args).current_dir("/").output();
        let output = output.unwrap_or_else(|error| panic!("{program} does not start: {error}"));
        assert!(output.status.success(), "initdb fails: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn launch(&self) -> Result<(), String> {
        let folder = self.folder.path();
        let mut args = vec!["-D".to_owned(), self.data().display().to_string()];
        args.extend(["-p".to_owned(), self.port.to_string()]);
        let sockets = format!("unix_socket_directories={}", folder.display());
        for setting in ["listen_addresses=127.0.0.1", &sockets, "max_connections=200"] {
            args.extend(["-c".to_owned(), setting.to_owned()]);
        }
        args.extend(self.settings.iter().flat_map(|setting| ["-c".to_owned(), setting.clone()]));
        let before = self.log().len();
        let (program, args) = as_other_user(&binary("postgres"), &args);
        let mut process = Process::start(Command::new(program).args(args), folder);
        let mut has_ended = false;
        wait_until("postgres answers", PATIENCE, || {
            has_ended = process.has_ended();
            has_ended || self.is_ready(process.id())
        });
        if has_ended {
            return Err(self.log().split_off(before));
        }
        *self.process() = Some(process);
        Ok(())
    }

    /// It answers, and it is ours: another process may have taken the port.
    fn is_ready(&self, pid: u32) -> bool {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        file.lines().next() == Some(&pid.to_string()) && self.try_sql_in(&self.url(), "SELECT 1").is_ok()
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(process) = self.process().take() {
            // At once, but its own processes first: they would write into a folder that goes.
            process.end(Signal::QUIT, PATIENCE);
        }
    }
}

impl fmt::Debug for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.pid().is_some() { "running" } else { "not running" };
        write!(f, "PostgreSQL at {} ({state})", self.addr())
    }
}

/// The newest version's program, else whatever the path finds.
fn binary(name: &str) -> String {
    let folders = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = folders.map(|entry| entry.path()).filter_map(|path| Some((version(&path)?, path))).max();
    let found = newest.map(|(_, path)| path.join("bin").join(name)).filter(|path| path.exists());
    found.map_or_else(|| name.to_owned(), |path| path.display().to_string())
}

/// As whom to run it, where we are root.
fn other_user() -> Option<(u32, u32)> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = users.lines().find_map(|line| line.strip_prefix("postgres:"));
    let mut fields = line?.split(':').skip(1).map(|field| field.parse().ok());
    is_root.then_some(())?;
    Some((fields.next()??, fields.next()??))
}

fn as_other_user(program: &str, args: &[String]) -> (String, Vec<String>) {
    let Some((uid, gid)) = other_user() else { return (program.to_owned(), args.to_vec()) };
    let mut all = vec![format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()];
    all.push(program.to_owned());
    all.extend_from_slice(args);
    ("setpriv".to_owned(), all)
}
