//! The words of hostile requests: methods, addresses, paths, header lines and bodies.

use testkit::rng::Rng;

/// What a campaign tries to evade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// A limit by address, without proxies.
    Client,
    /// The same behind a proxy that writes `X-Forwarded-For`.
    Proxied,
    /// The same behind a proxy that writes `Forwarded`.
    Forwarded,
    /// A limit of a route by a number in its path.
    Path,
    /// A limit by a header.
    Header,
    /// A limit by a field of a JSON body.
    Json,
}

/// The header in which the proxy says once more who its client is.
pub(crate) const TRUE_CLIENT: &str = "x-true-client";

fn word(rng: &mut Rng, from: &[&'static str]) -> &'static str {
    rng.pick::<&'static str>(from)
}

/// A method, mostly one that the rule is about.
pub(crate) fn method(rng: &mut Rng, aim: Aim) -> &'static str {
    let usual = match aim {
        Aim::Path | Aim::Json => "POST",
        Aim::Client | Aim::Proxied | Aim::Forwarded | Aim::Header => "GET",
    };
    const OTHERS: [&str; 14] = [
        "GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "post", "Post", "POSTS", "FOO",
        "PRI", "M-SEARCH",
    ];
    if rng.percent(80) { usual } else { word(rng, &OTHERS) }
}

/// What stands where a method should.
pub(crate) fn bad_method(rng: &mut Rng) -> String {
    match rng.below(5) {
        0 => String::new(),
        1 => "G@T".into(),
        2 => "GET\t".into(),
        3 => "\u{1b}[31mGET".into(),
        _ => "A".repeat(500),
    }
}

/// A path that can be sent, often one of the rule's in disguise.
pub(crate) fn path(rng: &mut Rng) -> String {
    let mut path = String::new();
    let ids =
        ["7", "7", "8", "07", "+7", "%2B7", "007", "7;x=1", "seven", "7.0", "0x7", "%2F7", "-7", "7%20"];
    let goods = if rng.percent(90) { "goods" } else { *rng.pick(&["Goods", "files", "goods%00", "goods."]) };
    for segment in [goods, word(rng, &ids), "order"] {
        path.push_str(slashes(rng));
        path.push_str(&escaped(rng, segment));
    }
    if rng.percent(15) {
        path.push_str(word(rng, &["/", "//", "/.", "/x/..", "/%2e", "/more"]));
    }
    path
}

/// What is between two segments.
fn slashes(rng: &mut Rng) -> &'static str {
    const WAYS: [&str; 12] = [
        "//",
        "///",
        "/./",
        "/%2e/",
        "/x/../",
        "/x/%2E%2e/",
        "/x/y/../../",
        "//../",
        "/x//../",
        "/.%2e/",
        "/%2F/",
        "/;a/../",
    ];
    if rng.percent(75) { "/" } else { word(rng, &WAYS) }
}

/// Some letters as percent signs and numbers, which means the same.
fn escaped(rng: &mut Rng, text: &str) -> String {
    let may_escape = rng.percent(30);
    let mut out = String::new();
    for letter in text.chars() {
        match may_escape && letter.is_ascii_alphanumeric() && !text.contains('%') && rng.percent(40) {
            true if rng.percent(50) => out.push_str(&format!("%{:02X}", letter as u32)),
            true => out.push_str(&format!("%{:02x}", letter as u32)),
            false => out.push(letter),
        }
    }
    out
}

/// A target that can be sent.
pub(crate) fn target(rng: &mut Rng) -> String {
    let path = path(rng);
    match rng.below(20) {
        0 => format!("http://shop.example{path}"),
        1 => format!("HTTP://127.0.0.1:1{path}?q=1"),
        2 => format!("{path}?goodsId=7&goodsId=8&x=/goods/7/order"),
        3 => format!("{path}?{}", "q=1&".repeat(50)),
        4 => "/".into(),
        _ => path,
    }
}

/// What stands where a target should.
pub(crate) fn bad_target(rng: &mut Rng) -> String {
    match rng.below(8) {
        0 => String::new(),
        1 => "*".into(),
        2 => "shop.example:443".into(),
        3 => "goods/7/order".into(),
        4 => "/goods/7 /order".into(),
        5 => "/goods/7/\u{f6}rder".into(),
        6 => format!("/{}", "a/".repeat(9_000)),
        _ => "\\goods\\7\\order".into(),
    }
}

/// An address as somebody may write it who wants to be somebody else.
fn address(rng: &mut Rng) -> String {
    const WORDS: [&str; 22] = [
        "127.0.0.1",
        "127.0.0.2",
        "::1",
        "[::1]:80",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "10.0.0.1",
        "unknown",
        "_hidden",
        "",
        ",",
        "\"",
        "\\",
        "127.0.0.1:",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "127.0.0.1%00",
        "localhost",
        "fe80::1%lo",
        "203.0.113.9\t",
    ];
    match rng.below(4) {
        0 => rng.pick(&WORDS).to_string(),
        1 => format!("203.0.113.{}, 127.0.0.1", rng.below(256)),
        2 => format!("2001:db8::{:x}", rng.below(1 << 16)),
        _ => format!("203.0.113.{}", rng.below(256)),
    }
}

/// A line that claims to know where the request comes from, or what it is about.
pub(crate) fn spoof(rng: &mut Rng) -> String {
    let name = *rng.pick(&[
        "X-Forwarded-For",
        "x-forwarded-for",
        "X-FORWARDED-FOR",
        "X_Forwarded_For",
        "X-Real-IP",
        "X-Client-IP",
        "True-Client-IP",
        "CF-Connecting-IP",
        "Client-IP",
        "X-Cluster-Client-IP",
    ]);
    match rng.below(10) {
        0 => format!("Forwarded: for={}", address(rng)),
        1 => format!("Forwarded: for=\"{}\";by=127.0.0.1, for=\"127.0.0.1", address(rng)),
        2 => format!("forwarded: host=\"a, for={}\"; for = 127.0.0.1", address(rng)),
        3 => format!("X-Forwarded-For: {}", "6.6.6.6, ".repeat(usize::try_from(rng.below(100)).unwrap_or(1))),
        4 => "X-HTTP-Method-Override: GET".into(),
        5 => "X-Original-URL: /free".into(),
        6 => format!(
            "Connection: {}, keep-alive",
            if rng.percent(50) { "x-api-key" } else { "x-forwarded-for" }
        ),
        _ => format!("{name}: {}", address(rng)),
    }
}

/// A line of no consequence, unless somebody thinks that it has one.
pub(crate) fn noise(rng: &mut Rng) -> String {
    const LINES: [&str; 16] = [
        "Content-Type: application/grpc",
        "content-type: application/grpc-web+proto",
        "Content-Type: application/grpcx",
        "Accept: */*",
        "Cookie: session=1; session=2",
        "TE: trailers",
        "Range: bytes=0-1",
        "If-None-Match: *",
        "Origin: https://elsewhere.example",
        "Access-Control-Request-Method: PUT",
        "Expect: 100-continue",
        "Upgrade: h2c",
        "Authorization: Bearer \u{f6}",
        "X-Empty:",
        "Via: 1.1 cache",
        "Max-Forwards: 0",
    ];
    match rng.below(12) {
        0 => format!("X-Long: {}", "x".repeat(usize::try_from(rng.below(4_000)).unwrap_or(1))),
        _ => rng.pick(&LINES).to_string(),
    }
}

/// A line that is none.
pub(crate) fn bad_line(rng: &mut Rng) -> Vec<u8> {
    const LINES: [&[u8]; 12] = [
        b"X-Forwarded-For : 203.0.113.1",
        b" folded: 1",
        b"\tx-api-key: k9",
        b"no colon",
        b": no name",
        b"x-nul: a\0b",
        b"x-api-key: k1\rx-api-key: k2",
        b"x-api-key\0: k1",
        b"x-bytes: \xff\xfe",
        b"x-api-key;: k1",
        b"\x01\x02\x03",
        b"x-lf: a\nx-forwarded-for: 127.0.0.1",
    ];
    rng.pick(&LINES).to_vec()
}

/// The lines of an API key: mostly one.
pub(crate) fn api_keys(rng: &mut Rng) -> Vec<Vec<u8>> {
    let count = if rng.percent(80) { 1 } else { rng.below(4) };
    let line = |rng: &mut Rng| {
        let name = word(rng, &["x-api-key", "X-Api-Key", "X-API-KEY"]);
        let value = match rng.below(14) {
            0 => b" k1 ".to_vec(),
            1 => b"K1".to_vec(),
            2 => b"k1,k2".to_vec(),
            3 => Vec::new(),
            4 => b"k".repeat(5_000),
            5 => b"k".repeat(4_096),
            6 => b"k\xff".to_vec(),
            7 => b"k1+%2B".to_vec(),
            nth => format!("k{}", nth % 3).into_bytes(),
        };
        [name.as_bytes(), b": ", &value].concat()
    };
    (0..count).map(|_| line(rng)).collect()
}

/// A body with goods, or what somebody may take for one.
pub(crate) fn json(rng: &mut Rng) -> Vec<u8> {
    const BODIES: [&str; 24] = [
        r#"{"goods": 7}"#,
        r#"{"goods": "7"}"#,
        r#"{"goods": "07"}"#,
        r#"{"goods": "+7"}"#,
        r#"{"goods": 7.0}"#,
        r#"{"goods": 7e0}"#,
        r#"{"goods": 07}"#,
        r#"{"goods": 7, "goods": 8}"#,
        r#"{"goods": "\u0037"}"#,
        r#"{"g\u006fods": 7}"#,
        r#"{"g\u006fods": 8, "goods": 7}"#,
        r#"{"goods": null}"#,
        r#"{"goods": [7]}"#,
        r#"{"goods": {"goods": 7}}"#,
        "[7]",
        "7",
        "",
        "null",
        "\u{feff}{\"goods\": 7}",
        "{\"goods\": 7} {}",
        "{\"goods\": 7,}",
        "{'goods': 7}",
        "{\"goods\": 7",
        "{\"goods\": \"7\\u0000\"}",
    ];
    match rng.below(20) {
        0 => format!("{}{}", "[".repeat(5_000), "]".repeat(5_000)).into_bytes(),
        1 => format!("{{\"pad\": \"{}\", \"goods\": 7}}", "x".repeat(70_000)).into_bytes(),
        2 => b"{\"goods\": \"\xff7\"}".to_vec(),
        3..12 => format!("{{\"goods\": {}}}", 7 + rng.below(3)).into_bytes(),
        _ => rng.pick(&BODIES).as_bytes().to_vec(),
    }
}

/// Lines that say what a body is: mostly JSON.
pub(crate) fn body_types(rng: &mut Rng) -> Vec<String> {
    const TYPES: [&str; 9] = [
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/vnd.shop+json",
        "text/plain",
        "application/grpc",
        "application/grpc+json",
        "application/jsonp",
        "application/json, text/plain",
        "",
    ];
    match rng.below(10) {
        0 => Vec::new(),
        1 => vec!["content-type: text/plain".into(), "content-type: application/json".into()],
        2 | 3 => vec![format!("content-type: {}", rng.pick(&TYPES))],
        _ => vec!["content-type: application/json".into()],
    }
}
