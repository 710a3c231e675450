//! The same over HTTP/2: requests by a client that speaks it, and connections that only begin so.

use crate::answer;
use crate::grammar::{self, Aim};
use crate::requests::{below, client};
use crate::target::Target;
use crate::wire::{block_on, connect};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;
use testkit::rng::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Requests of a connection.
const REQUESTS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends what these seeds make, and gives what is wrong with the answers.
pub(crate) fn attack(target: &Target, aim: Aim, seeds: Range<u64>) -> Vec<String> {
    let address = target.address;
    block_on(async move {
        let mut wrong = Vec::new();
        for seed in seeds {
            let mut rng = Rng::new(seed ^ ((aim as u64 + 100) << 40));
            let attack = async {
                if rng.percent(30) {
                    garbage(&mut rng, address).await;
                    return Vec::new();
                }
                requests(&mut rng, aim, address).await
            };
            match tokio::time::timeout(PATIENCE, attack).await {
                Ok(found) => wrong.extend(found.iter().map(|what| format!("HTTP/2, seed {seed}: {what}"))),
                Err(_) => wrong.push(format!("HTTP/2, seed {seed}: neither answered nor closed")),
            }
        }
        wrong
    })
}

/// Frames that are none.
async fn garbage(rng: &mut Rng, address: SocketAddr) {
    let mut stream = connect(client(rng), address).await.unwrap();
    let mut bytes = PREFACE.to_vec();
    // An empty SETTINGS frame, without which nothing else is looked at.
    bytes.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    for _ in 0..rng.below(6) {
        let length = below(rng, 40);
        let kind = u8::try_from(rng.below(11)).unwrap_or(0);
        let stream_id = u8::try_from(rng.below(6)).unwrap_or(0);
        let flags = rng.bits().to_le_bytes()[0];
        let claimed = if rng.percent(80) { length } else { below(rng, 1 << 14) };
        let [.., high, middle, low] = claimed.to_be_bytes();
        bytes.extend_from_slice(&[high, middle, low, kind, flags, 0, 0, 0, stream_id]);
        bytes.extend((0..length).map(|_| rng.bits().to_le_bytes()[0]));
    }
    let _ = stream.write_all(&bytes).await;
    let _ = stream.shutdown().await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

/// A few requests over one connection; what is wrong with their answers.
async fn requests(rng: &mut Rng, aim: Aim, address: SocketAddr) -> Vec<String> {
    let stream = connect(client(rng), address).await.unwrap();
    let Ok((mut sender, connection)) = h2::client::handshake(stream).await else { return Vec::new() };
    let connection = tokio::spawn(connection);
    let mut wrong = Vec::new();
    for _ in 0..REQUESTS {
        let Some(request) = request(rng, aim) else { continue };
        let shown = format!("{request:?}");
        let body = if aim == Aim::Json || rng.percent(20) { grammar::json(rng) } else { Vec::new() };
        // Windows open with time only if what comes is read: what is longer is not for here.
        let is_over = body.is_empty() || body.len() > 10_000;
        sender = match sender.ready().await {
            Ok(sender) => sender,
            Err(_) => break,
        };
        let Ok((answer, mut sending)) = sender.send_request(request, is_over) else { continue };
        if !is_over {
            let has_trailers = rng.percent(20);
            let _ = sending.send_data(Bytes::from(body), !has_trailers);
            if has_trailers {
                let mut trailers = HeaderMap::new();
                trailers.insert("x-forwarded-for", HeaderValue::from_static("203.0.113.9"));
                trailers.insert("x-api-key", HeaderValue::from_static("k9"));
                let _ = sending.send_trailers(trailers);
            }
        }
        if rng.percent(10) {
            sending.send_reset(h2::Reason::CANCEL);
            continue;
        }
        if let Ok(answer) = answer.await {
            let found = answer::wrong_head(answer.status().as_u16(), answer.headers());
            wrong.extend(found.map(|what| format!("{what}: {answer:?}\nto {shown}")));
        }
    }
    connection.abort();
    wrong
}

/// A request, if what the grammar says can be said in HTTP/2.
fn request(rng: &mut Rng, aim: Aim) -> Option<Request<()>> {
    let target = grammar::target(rng);
    let target = if target.starts_with('/') { format!("http://shop.example{target}") } else { target };
    let mut request = Request::builder().method(grammar::method(rng, aim)).uri(target).body(()).ok()?;
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for _ in 0..rng.below(4) {
        lines.push(grammar::spoof(rng).into_bytes());
        lines.push(grammar::noise(rng).into_bytes());
    }
    match aim {
        Aim::Header => lines.extend(grammar::api_keys(rng)),
        Aim::Json => lines.extend(grammar::body_types(rng).into_iter().map(String::into_bytes)),
        Aim::Client | Aim::Proxied | Aim::Forwarded | Aim::Path => {}
    }
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(line[colon + 1..].trim_ascii()));
        let (Ok(name), Ok(value)) = (name, value) else { continue };
        // HTTP/2 knows no connections but its own.
        if !["connection", "upgrade", "te", "expect"].contains(&name.as_str()) {
            request.headers_mut().append(name, value);
        }
    }
    Some(request)
}
