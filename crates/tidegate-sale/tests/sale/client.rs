//! A client as plain as can be: what it returns is what came over the wire.

use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// For machines that are busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One connection, which is kept.
pub(crate) struct Client {
    at: SocketAddr,
    stream: TcpStream,
    read: Vec<u8>,
}

/// An answer of the sale, which always has this shape.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) code: u64,
    pub(crate) message: String,
    pub(crate) data: Value,
}

impl Client {
    pub(crate) async fn connect(at: SocketAddr) -> Self {
        let stream = TcpStream::connect(at).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { at, stream, read: Vec::new() }
    }

    /// Sends a request without waiting for its answer.
    pub(crate) async fn send(&mut self, what: &str, fields: &[(&str, &str)], body: &str) {
        let mut text = format!("{what} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n", self.at, body.len());
        for (name, value) in fields {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("\r\n{body}");
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Sends a request, and reads its answer.
    pub(crate) async fn ask(&mut self, what: &str, fields: &[(&str, &str)], body: &str) -> Answer {
        self.send(what, fields, body).await;
        self.answer().await
    }

    /// Sends these bytes. The other side may have closed before all of them are sent.
    pub(crate) async fn raw(&mut self, text: &str) -> &mut Self {
        let _ = self.stream.write_all(text.as_bytes()).await;
        self
    }

    /// Sends nothing more.
    pub(crate) async fn close(&mut self) -> &mut Self {
        let _ = self.stream.shutdown().await;
        self
    }

    /// All that comes until the other side closes.
    pub(crate) async fn rest(&mut self) -> std::io::Result<String> {
        let read = self.stream.read_to_end(&mut self.read);
        tokio::time::timeout(PATIENCE, read).await.expect("it ends")?;
        Ok(String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned())
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        let head = self.head().await;
        let length: usize = field(&head, "content-length").unwrap().parse().unwrap();
        while self.read.len() < length {
            self.more().await;
        }
        let body: Vec<u8> = self.read.drain(..length).collect();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(field(&head, "cache-control"), Some("no-store"), "{head}");
        assert_eq!(field(&head, "content-type"), Some("application/json"), "{head}");
        assert_eq!(body.as_object().unwrap().len(), 3, "code, message and data: {body}");
        Answer {
            status: status(&head),
            head,
            code: body["code"].as_u64().unwrap(),
            message: body["message"].as_str().unwrap().to_owned(),
            data: body["data"].clone(),
        }
    }

    /// The head of the next answer.
    pub(crate) async fn head(&mut self) -> String {
        self.until(b"\r\n\r\n").await.expect("a whole head")
    }

    /// The next text up to and with this; none if the other side has ended before.
    pub(crate) async fn until(&mut self, end: &[u8]) -> Option<String> {
        loop {
            if let Some(at) = self.read.windows(end.len()).position(|part| part == end) {
                return Some(String::from_utf8(self.read.drain(..at + end.len()).collect()).unwrap());
            }
            if self.more().await == 0 {
                return None;
            }
        }
    }

    async fn more(&mut self) -> usize {
        let read = self.stream.read_buf(&mut self.read);
        tokio::time::timeout(PATIENCE, read).await.expect("an answer in time").unwrap()
    }
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    #[track_caller]
    pub(crate) fn expect(self, code: u64) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(u64::from(self.status), if code == 200 { 200 } else { code / 100 }, "{self:?}");
        self
    }

    /// The data as a text.
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        self.data.as_str().unwrap_or_else(|| panic!("a text: {self:?}"))
    }
}

pub(crate) fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}
