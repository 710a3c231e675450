//! A connection that asks and waits for the answer: the tests' own view of a server,
//! independent of the client that is tested.

use super::Reply;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longer than any healthy server takes, so that a frozen one is an error, not a hang.
const PATIENCE: Duration = Duration::from_secs(5);

trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// One connection. An answer that takes five seconds is an error.
pub struct Conn(BufReader<Box<dyn Stream>>);

impl Conn {
    /// Connects to an address such as `127.0.0.1:6379`.
    ///
    /// # Errors
    /// Where nobody listens, or the address is none.
    pub fn open(addr: &str) -> io::Result<Self> {
        let addr: SocketAddr = addr.parse().map_err(io::Error::other)?;
        let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self::over(stream))
    }

    /// Connects to a socket in the file system.
    pub(super) fn open_unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self::over(stream))
    }

    /// Speaks over any stream, such as an encrypted one.
    pub fn over(stream: impl Read + Write + Send + 'static) -> Self {
        Self(BufReader::new(Box::new(stream)))
    }

    /// Asks, and gives the answer, which may be a refusal.
    ///
    /// # Panics
    /// Where no answer comes.
    #[track_caller]
    pub fn cmd<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        match self.try_cmd(args) {
            Ok(reply) => reply,
            Err(error) => panic!("no answer to {}: {error}", printable(args)),
        }
    }

    /// As `cmd`.
    ///
    /// # Errors
    /// Where no answer comes. The connection is of no use after that.
    pub fn try_cmd<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.send(args)?;
        self.receive()
    }

    /// Asks without waiting for the answer.
    ///
    /// # Errors
    /// Where the connection is gone.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args.iter().map(AsRef::as_ref) {
            bytes.extend(format!("${}\r\n", arg.len()).into_bytes());
            bytes.extend(arg);
            bytes.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes)?;
        self.0.get_mut().flush()
    }

    /// The next answer to what was sent.
    ///
    /// # Errors
    /// Where none comes.
    pub fn receive(&mut self) -> io::Result<Reply> {
        Reply::read(&mut self.0)
    }
}

/// A command as a person would type it.
pub(super) fn printable<A: AsRef<[u8]>>(args: &[A]) -> String {
    let words: Vec<_> = args.iter().map(|arg| String::from_utf8_lossy(arg.as_ref())).collect();
    words.join(" ")
}
