//! Tries the service by itself. The client is as plain as can be, so that what is printed
//! is what came over the wire.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;
use tidegate::listener::ListenerStats;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Prints the story, and fails if it is another one.
pub(crate) async fn run(at: SocketAddr, connections: &ListenerStats) -> Result<(), Box<dyn Error>> {
    println!("203.0.113.9 looks at goods four times; 3 are saved up, one a second flows in:");
    let look = |client: &'static str| send(at, "GET /goods/7", ("X-Forwarded-For", client));
    let mut told = None;
    for status in [200, 200, 200, 429] {
        told = look("203.0.113.9").await?.expect(status)?.retry_after()?;
    }
    println!("\nThe same client, whatever it makes up at the left end, and another one:");
    look("198.51.100.7, 203.0.113.9").await?.expect(429)?;
    look("198.51.100.7").await?.expect(200)?;
    let told = told.ok_or("a 429 says when to come back")?;
    println!("\nThe first one again, {} s later, as it was told:", told.as_secs());
    tokio::time::sleep(told).await;
    look("203.0.113.9").await?.expect(200)?;

    println!("\nAnn sends three orders together, bob one; two of ann's at a time, half a second apart:");
    let order = |token: &'static str| send(at, "POST /goods/7/order", ("Authorization", token));
    let ann = || order("Bearer ann-secret");
    let (first, second, third, bob) = tokio::join!(ann(), ann(), ann(), order("Bearer bob-secret"));
    let mut statuses = Vec::new();
    for answer in [first?, second?, third?, bob?] {
        statuses.push(answer.status);
        answer.print();
    }
    statuses[..3].sort_unstable();
    if statuses != [200, 200, 429, 200] {
        return Err(format!("expected 200, 200, 429 for ann and 200 for bob, not {statuses:?}").into());
    }
    println!("\nSomebody who has not signed in, and somebody who is not known:");
    send(at, "POST /goods/7/order", ("Accept", "*/*")).await?.expect(400)?;
    order("Bearer guessed").await?.expect(401)?;

    println!("\nNo rule stands before this one:");
    send(at, "GET /guard", ("Accept", "*/*")).await?.expect(200)?;
    println!("\n{} connections were accepted, {} refused.", connections.accepted(), connections.refused());
    Ok(())
}

/// An answer, as it came.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

async fn send(at: SocketAddr, what: &str, (name, value): (&str, &str)) -> Result<Answer, Box<dyn Error>> {
    let mut stream = TcpStream::connect(at).await?;
    let request = format!("{what} HTTP/1.1\r\nHost: {at}\r\n{name}: {value}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("an answer has a head")?;
    let status = head.split(' ').nth(1).ok_or("an answer has a status")?.parse()?;
    Ok(Answer { status, head: head.into(), body: body.into() })
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn retry_after(&self) -> Result<Option<Duration>, Box<dyn Error>> {
        let seconds = self.header("retry-after").map(str::parse).transpose()?;
        Ok(seconds.map(Duration::from_secs))
    }

    fn print(&self) {
        print!("  {}", self.status);
        for name in ["Retry-After", "RateLimit"] {
            if let Some(value) = self.header(name) {
                print!("  {name}: {value}");
            }
        }
        // Of a problem only the sentence.
        let sentence = self.body.split_once("\"detail\":\"").and_then(|(_, rest)| rest.split('"').next());
        println!("  {}", sentence.unwrap_or(&self.body));
    }

    fn expect(self, status: u16) -> Result<Self, Box<dyn Error>> {
        self.print();
        if self.status == status { Ok(self) } else { Err(format!("expected {status}").into()) }
    }
}
