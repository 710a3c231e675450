//! One haproxy of a test's own: a balancer for TCP in front of a listener.
//!
//! Everything that it writes is in its own folder, and none of the system's settings is read.

use super::ports::ATTEMPTS;
use super::process::{LOG, Process};
use super::{TlsFiles, ports, wait_until};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fmt, fs};
use tempfile::TempDir;

/// How long a start may take. Far more than it needs, because many tests share few processors.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where Debian installs it, which is not in every user's `PATH`.
const INSTALLED: &str = "/usr/sbin/haproxy";

/// What a haproxy listens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// A port of 127.0.0.1.
    Ipv4,
    /// A port of `::1`.
    Ipv6,
    /// A port of 127.0.0.1, with TLS that ends here, and a certificate for `127.0.0.1`.
    Tls,
}

/// A haproxy that passes every connection on to one server. Dropping it ends it.
pub struct Haproxy {
    addr: SocketAddr,
    /// Before the folder, because they are dropped in this order: a server that still ran
    /// could write into a folder that is being removed.
    _process: Process,
    folder: TempDir,
}

impl Haproxy {
    /// Passes connections on to `server`, with these options of a `server` line, such as
    /// `send-proxy-v2`.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start(front: Front, server: SocketAddr, options: &str) -> Self {
        for _ in 0..ATTEMPTS {
            let port = ports::free();
            match Self::launch(front, port, server, options) {
                Ok(haproxy) => return haproxy,
                Err(log) if log.contains("cannot bind socket") => {}
                Err(log) => panic!("haproxy does not start:\n{log}"),
            }
        }
        panic!("somebody else was quicker to take each of {ATTEMPTS} ports");
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        read(&self.folder.path().join(LOG))
    }

    /// Starts the process and waits until it answers; else gives its log.
    fn launch(front: Front, port: u16, server: SocketAddr, options: &str) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("tidegate-haproxy-").tempdir();
        let folder = folder.expect("a folder for temporary files can be made");
        let path = folder.path();
        let (ip, tls) = match front {
            Front::Ipv4 => (Ipv4Addr::LOCALHOST.into(), String::new()),
            Front::Ipv6 => (Ipv6Addr::LOCALHOST.into(), String::new()),
            Front::Tls => (Ipv4Addr::LOCALHOST.into(), format!("ssl crt {}", certificate(path))),
        };
        let addr = SocketAddr::new(ip, port);
        let control = path.join(CONTROL);
        let config = format!(
            "global\n    stats socket {} mode 600\n\
             defaults\n    mode tcp\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n\
             listen test\n    bind {addr} {tls}\n    server server {server} {options}\n",
            control.display(),
        );
        fs::write(path.join("haproxy.cfg"), &config).expect("the server's folder can be written to");
        let program = if Path::new(INSTALLED).exists() { INSTALLED } else { "haproxy" };
        // In the foreground, as one process.
        let mut process =
            Process::start(Command::new(program).arg("-db").arg("-f").arg(path.join("haproxy.cfg")), path);
        let mut has_ended = false;
        wait_until("haproxy answers", PATIENCE, || {
            has_ended = process.has_ended();
            has_ended || is_ready(&control).unwrap_or(false)
        });
        if has_ended {
            return Err(format!("{}\n{config}", read(&path.join(LOG))));
        }
        Ok(Self { addr, _process: process, folder })
    }
}

/// The socket at which it answers questions about itself.
const CONTROL: &str = "control.sock";

/// It answers by its own socket, which it makes when it listens.
fn is_ready(control: &Path) -> io::Result<bool> {
    let mut stream = UnixStream::connect(control)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"show info\n")?;
    let mut info = String::new();
    stream.read_to_string(&mut info)?;
    Ok(info.contains("Name: HAProxy"))
}

/// A certificate and its key in one file, as haproxy wants them.
fn certificate(folder: &Path) -> String {
    let file = folder.join("both.pem");
    let [certificate, key] = TlsFiles::make().install_server(folder);
    fs::write(&file, read(&certificate) + &read(&key)).expect("the server's folder can be written to");
    file.display().to_string()
}

impl fmt::Debug for Haproxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "haproxy at {}", self.addr)
    }
}

fn read(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}
