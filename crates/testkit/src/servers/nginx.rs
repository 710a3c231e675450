//! One nginx of a test's own.
//!
//! A single process without a master: killing a master would leave its workers behind. Every
//! file that it writes is in its own folder, and none of the system's settings is read.

use super::ports::ATTEMPTS;
use super::process::{LOG, Process};
use super::{ports, wait_until};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fmt, fs};
use tempfile::TempDir;

/// How long a start may take. Far more than it needs, because many tests share few processors.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where Debian installs it, which is not in every user's `PATH`.
const INSTALLED: &str = "/usr/sbin/nginx";

/// An nginx that listens on its own port of 127.0.0.1. Dropping it ends it.
pub struct Nginx {
    port: u16,
    /// Before the folder, because they are dropped in this order: a server that still ran
    /// could write into a folder that is being removed.
    _process: Process,
    folder: TempDir,
}

impl Nginx {
    /// With this inside of its `http` block, made for the port that it is to listen on. Paths
    /// that do not begin with `/` are in the server's own folder.
    ///
    /// ```no_run
    /// # use testkit::servers::Nginx;
    /// let nginx = Nginx::http(|port| format!("server {{ listen 127.0.0.1:{port}; return 204; }}"));
    /// # drop(nginx);
    /// ```
    ///
    /// # Panics
    /// Where it does not start.
    pub fn http(inside: impl Fn(u16) -> String) -> Self {
        Self::with(|port| format!("http {{\n{HTTP}\n{}\n}}\n", inside(port)))
    }

    /// With these blocks beside ours, such as `stream { … }`, and lines before them, such as
    /// `load_module …;`.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn with(config: impl Fn(u16) -> String) -> Self {
        for _ in 0..ATTEMPTS {
            let port = ports::free();
            match Self::launch(port, &config(port)) {
                Ok(server) => return server,
                Err(log) if log.contains("Address already in use") => {}
                Err(log) => panic!("nginx does not start:\n{log}"),
            }
        }
        panic!("somebody else was quicker to take each of {ATTEMPTS} ports");
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// `http://127.0.0.1:PORT` and this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr())
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        read(&self.folder.path().join(LOG))
    }

    /// Starts the process and waits until it listens; else gives its log.
    fn launch(port: u16, config: &str) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("tidegate-nginx-").tempdir();
        let folder = folder.expect("a folder for temporary files can be made");
        let path = folder.path();
        let config = format!("{MAIN}\n{config}\nevents {{}}\n");
        fs::write(path.join("nginx.conf"), &config).expect("the server's folder can be written to");
        let program = if Path::new(INSTALLED).exists() { INSTALLED } else { "nginx" };
        let mut command = Command::new(program);
        command.arg("-p").arg(path).args(["-c", "nginx.conf", "-e", "stderr"]);
        let mut process = Process::start(&mut command, path);
        let mut has_ended = false;
        // It writes its number once it listens: whoever else answers on the port is not meant.
        wait_until("nginx listens", PATIENCE, || {
            has_ended = process.has_ended();
            has_ended || read(&path.join(PID)).trim() == process.id().to_string()
        });
        if has_ended {
            return Err(format!("{}\n{config}", read(&path.join(LOG))));
        }
        Ok(Self { port, _process: process, folder })
    }
}

/// The file with the process's number.
const PID: &str = "nginx.pid";

const MAIN: &str = "\
daemon off;
master_process off;
pid nginx.pid;
error_log stderr info;";

/// Folders of its own for what it keeps on its way, instead of the system's.
const HTTP: &str = "\
access_log off;
client_body_temp_path body;
proxy_temp_path proxy;
fastcgi_temp_path fastcgi;
uwsgi_temp_path uwsgi;
scgi_temp_path scgi;";

impl fmt::Debug for Nginx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nginx at {}", self.addr())
    }
}

fn read(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}
