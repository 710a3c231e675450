//! A private redis-server: on this machine's own address only, on a free port, in a temporary
//! folder, without persistence. It ends with whoever holds it, also when that one panics.

use crate::{Fallible, procfs};
use ::redis::{Client, Connection, cmd};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const START_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);
/// Somebody else may take the port between our finding it and the server's binding it.
const TRIES_MAX: usize = 3;

pub struct Server {
    running: Running,
    pub port: u16,
    /// For counters of the server; the load has connections of its own.
    control: Connection,
}

/// What has to be ended and removed, even if the server never replies.
struct Running {
    process: Child,
    folder: PathBuf,
}

/// Counters at one moment; the difference between two is what a load cost.
#[derive(Clone, Copy)]
pub struct Snapshot {
    /// The server's clock.
    pub time_us: u64,
    /// The server's processor time.
    pub cpu_us: u64,
    /// Scripts called from outside.
    pub script_calls: u64,
}

impl Server {
    pub fn start() -> Fallible<Self> {
        let mut last = None;
        for _ in 0..TRIES_MAX {
            match Self::try_start() {
                Ok(server) => return Ok(server),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| "no redis-server was tried".into()))
    }

    fn try_start() -> Fallible<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let folder = std::env::temp_dir().join(format!("tidegate-bench-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--loglevel", "warning"])
            .arg("--dir")
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server cannot be started, is it installed? {error}"))?;
        let mut running = Running { process, folder };
        let control = running.wait_for_reply(port)?;
        Ok(Self { running, port, control })
    }

    pub fn snapshot(&mut self) -> Fallible<Snapshot> {
        let (seconds, micros): (u64, u64) = cmd("TIME").query(&mut self.control)?;
        let times = procfs::times(&self.running.process.id().to_string())
            .ok_or("this system has no processor time of a process (/proc/<pid>/stat)")?;
        Ok(Snapshot {
            time_us: seconds * 1_000_000 + micros,
            cpu_us: times.itself * 1_000_000 / procfs::TICKS_PER_SECOND,
            script_calls: script_calls(&self.info("commandstats")?),
        })
    }

    /// Memory in use and keys held, once all clients but ourselves have gone: their buffers are no
    /// part of the keys.
    pub fn memory(&mut self) -> Fallible<(u64, u64)> {
        let begun = Instant::now();
        while field(&self.info("clients")?, "connected_clients")? > 1 {
            if begun.elapsed() > START_MAX {
                return Err("a client is still connected after its process ended".into());
            }
            sleep(POLL);
        }
        let keys: u64 = cmd("DBSIZE").query(&mut self.control)?;
        Ok((field(&self.info("memory")?, "used_memory")?, keys))
    }

    pub fn control(&mut self) -> &mut Connection {
        &mut self.control
    }

    fn info(&mut self, section: &str) -> Fallible<String> {
        Ok(cmd("INFO").arg(section).query(&mut self.control)?)
    }
}

impl Running {
    fn wait_for_reply(&mut self, port: u16) -> Fallible<Connection> {
        let client = Client::open(format!("redis://127.0.0.1:{port}"))?;
        let begun = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("redis-server ended at once: {status}").into());
            }
            if let Ok(mut connection) = client.get_connection() {
                let text: String = cmd("INFO").arg("server").query(&mut connection)?;
                if field(&text, "process_id")? == u64::from(self.process.id()) {
                    return Ok(connection);
                }
                return Err(format!("another Redis listens on port {port}").into());
            }
            if begun.elapsed() > START_MAX {
                return Err("redis-server does not reply".into());
            }
            sleep(POLL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself, and the folder is empty: nothing here is worth a complaint.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A number out of `INFO`, where a line is `name:value`.
fn field(info: &str, name: &str) -> Fallible<u64> {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = value.ok_or_else(|| format!("INFO has no {name}"))?;
    Ok(value.trim().parse()?)
}

/// Calls of scripts and functions out of `INFO commandstats`. What a script calls is counted there
/// too, under its own names, and is left out.
fn script_calls(info: &str) -> u64 {
    let of = |line: &str| -> Option<u64> {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let counts = matches!(command, "eval" | "evalsha" | "eval_ro" | "evalsha_ro" | "fcall" | "fcall_ro");
        counts.then(|| rest.split_once(',')?.0.parse().ok())?
    };
    info.lines().filter_map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError};

    #[test]
    fn script_calls_are_those_from_outside() {
        let info = "# Commandstats\r\n\
                    cmdstat_evalsha:calls=120,usec=900,usec_per_call=7.50,rejected_calls=0,failed_calls=1\r\n\
                    cmdstat_zadd:calls=119,usec=100,usec_per_call=0.84,rejected_calls=0,failed_calls=0\r\n\
                    cmdstat_fcall:calls=3,usec=1,usec_per_call=0.33,rejected_calls=0,failed_calls=0\r\n\
                    cmdstat_script|load:calls=1,usec=50,usec_per_call=50.00,rejected_calls=0,failed_calls=0\r\n";
        assert_eq!(script_calls(info), 123);
        assert_eq!(script_calls(""), 0);
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let info = "# Memory\r\nused_memory:1048576\r\nused_memory_human:1.00M\r\nused_memory_rss:2\r\n";
        assert_eq!(field(info, "used_memory").unwrap(), 1_048_576);
        assert!(field(info, "used").is_err());
    }

    #[test]
    fn a_server_ends_and_its_folder_goes_when_its_holder_panics() {
        let started = Mutex::new(None);
        let panicked = std::panic::catch_unwind(|| {
            let server = Server::start().unwrap();
            let running = (server.running.process.id(), server.running.folder.clone());
            *started.lock().unwrap() = Some(running);
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        let (process, folder) = started.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap();
        assert!(procfs::times(&process.to_string()).is_none());
        assert!(!folder.exists());
    }
}
