//! A connection that is kept: one request, one answer, again.
//!
//! Not a general client: no pipelining, no redirects, no encryption. What it saves is processor
//! time, which the sale on the same machine needs.

use super::reply::{self, Fault, Reply};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Room for one reading; answers of the sale fit into it.
const ROOM: usize = 4 * 1024;

pub(super) struct Wire {
    address: SocketAddr,
    timeout: Duration,
    stream: Option<TcpStream>,
    /// Whether an answer came over this connection before. The server may end such a one at any
    /// time, as an idle one, and a request that crosses with the end is no fault of anybody.
    is_used: bool,
    /// The request, written by the caller.
    pub(super) out: Vec<u8>,
    answer: Vec<u8>,
    /// How often an idle connection was gone.
    pub(super) reconnects: u64,
}

impl Wire {
    pub(super) fn new(address: SocketAddr, timeout: Duration) -> Self {
        let (out, answer) = (Vec::with_capacity(1024), Vec::with_capacity(ROOM));
        Self { address, timeout, stream: None, is_used: false, out, answer, reconnects: 0 }
    }

    /// Connects, unless it is connected.
    pub(super) async fn connect(&mut self) -> std::io::Result<()> {
        if self.stream.is_none() {
            let stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            (self.stream, self.is_used) = (Some(stream), false);
        }
        Ok(())
    }

    /// Sends what is in `out`, and reads the answer. After a fault the connection is gone, and
    /// the next request makes a new one.
    pub(super) async fn exchange(&mut self) -> Result<Reply, Fault> {
        let outcome = match tokio::time::timeout(self.timeout, self.try_twice()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Fault::Timeout),
        };
        match &outcome {
            Ok(reply) if !reply.closes => self.is_used = true,
            _ => self.stream = None,
        }
        outcome
    }

    /// The bytes of the answer's body.
    pub(super) fn body(&self, reply: &Reply) -> &[u8] {
        self.answer.get(reply.body.clone()).unwrap_or_default()
    }

    async fn try_twice(&mut self) -> Result<Reply, Fault> {
        let was_used = self.stream.is_some() && self.is_used;
        match self.once().await {
            Err(Fault::Closed | Fault::Io) if was_used && self.answer.is_empty() => {
                self.stream = None;
                self.reconnects += 1;
                self.once().await
            }
            outcome => outcome,
        }
    }

    async fn once(&mut self) -> Result<Reply, Fault> {
        self.connect().await.map_err(|_| Fault::Connect)?;
        self.answer.clear();
        let Some(stream) = &mut self.stream else { return Err(Fault::Connect) };
        stream.write_all(&self.out).await.map_err(|_| Fault::Io)?;
        loop {
            // The parser ends this before the bytes grow past its bounds by more than the room.
            self.answer.reserve(ROOM);
            match stream.read_buf(&mut self.answer).await {
                Ok(0) => return Err(Fault::Closed),
                Ok(_) => {}
                Err(_) => return Err(Fault::Io),
            }
            if let Some(reply) = reply::parse(&self.answer)? {
                return Ok(reply);
            }
        }
    }
}
