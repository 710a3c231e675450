//! Requests of HTTP/1 as bytes, whole or broken, and how they are sent.

use crate::grammar::{self, Aim, TRUE_CLIENT};
use crate::service::PROXY;
use std::net::Ipv4Addr;
use testkit::rng::Rng;

/// What one connection sends.
pub(crate) struct Case {
    pub(crate) from: Ipv4Addr,
    pub(crate) bytes: Vec<u8>,
    /// Where the bytes are cut into pieces.
    pub(crate) cuts: Vec<usize>,
    pub(crate) ending: Ending,
    /// One request whose answer is read, or several.
    pub(crate) is_alone: bool,
}

/// What happens after the last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The server closes the connection, as it was asked to.
    Wait,
    /// The client closes its side, and reads what comes.
    Finish,
    /// The client is gone.
    Leave,
}

/// The case of a seed, always the same.
pub(crate) fn case(aim: Aim, seed: u64) -> Case {
    let mut rng = Rng::new(seed ^ ((aim as u64 + 1) << 40));
    let rng = &mut rng;
    let is_proxied = matches!(aim, Aim::Proxied | Aim::Forwarded) && rng.percent(70);
    let from = if is_proxied { PROXY } else { client(rng) };
    let cut = |rng: &mut Rng, length: usize| -> Vec<usize> {
        let pieces = if rng.percent(70) { 0 } else { rng.below(6) };
        let mut cuts: Vec<usize> = (0..pieces).map(|_| below(rng, length + 1)).collect();
        cuts.sort_unstable();
        cuts
    };
    // A proxy passes on only what it has understood.
    if is_proxied || rng.percent(60) {
        let is_alone = rng.percent(85);
        let mut bytes = Vec::new();
        if !is_alone {
            for _ in 0..rng.between(1, 3) {
                bytes.extend(whole(rng, aim, is_proxied, Keep::Open));
            }
        }
        bytes.extend(whole(rng, aim, is_proxied, Keep::Close));
        let cuts = cut(rng, bytes.len());
        return Case { from, cuts, bytes, ending: Ending::Wait, is_alone };
    }
    let mut bytes = broken(rng, aim);
    if rng.percent(50) {
        mutate(rng, &mut bytes);
    }
    let ending = if rng.percent(75) { Ending::Finish } else { Ending::Leave };
    let cuts = cut(rng, bytes.len());
    Case { from, cuts, bytes, ending, is_alone: true }
}

/// One of the clients.
pub(crate) fn client(rng: &mut Rng) -> Ipv4Addr {
    let last = u8::try_from(rng.between(2, 7)).unwrap_or(2);
    Ipv4Addr::new(127, 0, 0, last)
}

/// Whether the connection is to stay open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Open,
    Close,
}

/// A request that HTTP allows.
fn whole(rng: &mut Rng, aim: Aim, is_proxied: bool, keep: Keep) -> Vec<u8> {
    let mut method = grammar::method(rng, aim);
    if keep == Keep::Open && method == "HEAD" {
        // Its answer says a length, and has none.
        method = "GET";
    }
    let mut lines = lines(rng, aim);
    if is_proxied {
        add_client(rng, aim, &mut lines);
    }
    if keep == Keep::Close {
        lines.push(b"connection: close".to_vec());
    }
    let (framing, body) = body(rng, aim);
    lines.extend(framing);
    request(method, &grammar::target(rng), "HTTP/1.1", &lines, &body)
}

/// The header lines of a request that HTTP allows.
fn lines(rng: &mut Rng, aim: Aim) -> Vec<Vec<u8>> {
    let mut lines = vec![b"host: shop.example".to_vec()];
    for _ in 0..rng.below(4) {
        lines.push(grammar::spoof(rng).into_bytes());
    }
    for _ in 0..rng.below(3) {
        lines.push(grammar::noise(rng).into_bytes());
    }
    if aim == Aim::Header || rng.percent(10) {
        lines.extend(grammar::api_keys(rng));
    }
    if aim == Aim::Json {
        lines.retain(|line| !line.to_ascii_lowercase().starts_with(b"content-type"));
        lines.extend(grammar::body_types(rng).into_iter().map(String::into_bytes));
    }
    // Which lines come first must not matter.
    for at in (1..lines.len()).rev() {
        let other = below(rng, at + 1);
        lines.swap(at, other);
    }
    lines
}

/// What an honest proxy adds: where it was called from, after whatever its client wrote, in a
/// line of its own or in the last one.
fn add_client(rng: &mut Rng, aim: Aim, lines: &mut Vec<Vec<u8>>) {
    let client = format!("198.51.100.{}", rng.between(1, 6));
    let (name, hop) = match aim {
        Aim::Forwarded => ("forwarded:", format!("for={client}")),
        _ => ("x-forwarded-for:", client.clone()),
    };
    let is_it = |line: &Vec<u8>| line.to_ascii_lowercase().starts_with(name.as_bytes());
    match lines.iter().rposition(is_it) {
        Some(last) if rng.percent(50) => lines[last].extend(format!(", {hop}").bytes()),
        _ => lines.push(format!("{name} {hop}").into_bytes()),
    }
    lines.push(format!("{TRUE_CLIENT}: {client}").into_bytes());
}

/// A body, and the lines that say how long it is.
fn body(rng: &mut Rng, aim: Aim) -> (Vec<Vec<u8>>, Vec<u8>) {
    let body = match aim {
        Aim::Json => grammar::json(rng),
        _ if rng.percent(80) => return (Vec::new(), Vec::new()),
        _ => grammar::json(rng),
    };
    if rng.percent(60) {
        return (vec![format!("content-length: {}", body.len()).into_bytes()], body);
    }
    (vec![b"transfer-encoding: chunked".to_vec()], chunked(rng, &body))
}

fn chunked(rng: &mut Rng, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let size = rng.between(1, 4_000);
    for chunk in body.chunks(usize::try_from(size).unwrap_or(1)) {
        let extension = if rng.percent(10) { ";a=\"b\"" } else { "" };
        out.extend(format!("{:x}{extension}\r\n", chunk.len()).bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n");
    if rng.percent(20) {
        out.extend_from_slice(b"x-api-key: k9\r\nx-forwarded-for: 203.0.113.9\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// A request that HTTP does not allow, or that not all programs read in the same way.
fn broken(rng: &mut Rng, aim: Aim) -> Vec<u8> {
    let method = if rng.percent(10) { grammar::bad_method(rng) } else { grammar::method(rng, aim).into() };
    let target = if rng.percent(20) { grammar::bad_target(rng) } else { grammar::target(rng) };
    let version = if rng.percent(80) {
        "HTTP/1.1"
    } else {
        *rng.pick(&["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "", "http/1.1"])
    };
    let mut lines = lines(rng, aim);
    if rng.percent(20) {
        lines.retain(|line| !line.starts_with(b"host"));
    }
    if rng.percent(40) {
        lines.push(grammar::bad_line(rng));
    }
    let (framing, mut body) = body(rng, aim);
    lines.extend(framing);
    if rng.percent(40) {
        let length = rng.pick(&[
            "content-length: 5",
            "content-length: 0",
            "content-length: +5",
            "content-length: -1",
            "content-length: 5, 5",
            "content-length: 99999999999999999999",
            "content-length: 0x5",
            "transfer-encoding: xchunked",
            "transfer-encoding: chunked, identity",
            "transfer-encoding: chunked",
            "transfer-encoding:\x0bchunked",
            "content-length: 100000",
        ]);
        lines.push(length.as_bytes().to_vec());
    }
    if rng.percent(20) {
        body.extend_from_slice(b"POST /goods/7/order HTTP/1.1\r\nhost: smuggled\r\nx-api-key: k1\r\n\r\n");
    }
    request(&method, &target, version, &lines, &body)
}

fn request(method: &str, target: &str, version: &str, lines: &[Vec<u8>], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {target} {version}\r\n").into_bytes();
    for line in lines {
        bytes.extend_from_slice(line);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// Changes a few bytes, anywhere.
fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.between(1, 4) {
        let at = below(rng, bytes.len());
        match rng.below(5) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << rng.below(8),
            1 => bytes.insert(at, *rng.pick(b"\0\r\n :\t%\xff/\"")),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..(at + below(rng, 20)).min(bytes.len()))),
            _ => {
                let again = bytes[at..(at + below(rng, 60)).min(bytes.len())].to_vec();
                bytes.splice(at..at, again);
            }
        }
    }
}

pub(crate) fn below(rng: &mut Rng, end: usize) -> usize {
    usize::try_from(rng.below(end as u64)).unwrap_or(0)
}
