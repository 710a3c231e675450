//! A Redis of the demonstration's own, in a temporary folder, that keeps nothing.

use std::error::Error;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use tidegate::Limiter;

/// Runs until it is dropped.
pub(crate) struct Server {
    child: Child,
    url: String,
    _folder: TempDir,
}

impl Server {
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        let port = free_port()?;
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => "redis-server is missing: install it (on Debian `apt-get install \
                                        redis-server`), or give the URL of a Redis that you have"
                    .to_owned(),
                _ => format!("redis-server does not start: {error}"),
            })?;
        let mut server = Self { child, url: format!("redis://127.0.0.1:{port}"), _folder: folder };
        server.wait_until_it_listens(port)?;
        Ok(server)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    fn wait_until_it_listens(&mut self, port: u16) -> Result<(), Box<dyn Error>> {
        let pace = Limiter::new().gate("pace", "100/s burst 1 wait 1s")?;
        for _ in 0..500 {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("redis-server has ended at once: {status}").into());
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(());
            }
            drop(pace.acquire("connect").blocking());
        }
        Err("redis-server does not listen after 5 s".into())
    }
}

impl Drop for Server {
    /// Ends this one process, by its id.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Below the ports that the system gives to outgoing connections: there a client that tries
/// to reach a stopped server can be given the server's own port, and reach itself.
fn free_port() -> Result<u16, Box<dyn Error>> {
    let from = 20_000 + u16::try_from(std::process::id() % 10_000)?;
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    Ok((from..from + 1_000).find(is_free).ok_or("there is no free port")?)
}
