//! A service that counts for itself who reaches it.
//!
//! It shares no code with the guard, and reads what it gets as leniently as services do: paths
//! with doubled slashes, dot segments and escapes, numbers with signs and zeros, and the last of
//! two members of a JSON object.

use crate::grammar::{Aim, TRUE_CLIENT};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, Request};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, Method};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use tidegate::http::{ClientIp, Guard, Peer};
use tidegate::rules::{Missing, Rule};
use tidegate::{Limiter, ManualClock};

/// Requests that a key has. The clock stands still, so no more are ever let through.
pub(crate) const LIMIT: u64 = 20;
/// Requests at the same time, for all. More than there are clients.
pub(crate) const SLOTS: u64 = 64;

/// The proxy whose word on its clients counts.
pub(crate) const PROXY: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A guard, right unless a test makes it wrong.
pub(crate) struct Setup {
    pub(crate) aim: Aim,
    pub(crate) key: &'static str,
    pub(crate) client_ip: ClientIp,
}

impl Setup {
    pub(crate) fn new(aim: Aim) -> Self {
        let behind = || ClientIp::behind([PROXY.to_string()]).unwrap();
        let (key, client_ip) = match aim {
            Aim::Client => ("ip", ClientIp::peer()),
            Aim::Proxied => ("ip", behind()),
            Aim::Forwarded => ("ip", behind().forwarded().unwrap()),
            Aim::Path => ("number(path:2)", ClientIp::peer()),
            Aim::Header => ("header:x-api-key", ClientIp::peer()),
            Aim::Json => ("number(json:/goods)", ClientIp::peer()),
        };
        Self { aim, key, client_ip }
    }

    fn rule(&self) -> Rule {
        let rule = Rule::new("limit", format!("{LIMIT}/day").as_str()).by(self.key).missing(Missing::Refuse);
        match self.aim {
            Aim::Path => rule.on("POST /goods/{id}/order"),
            Aim::Json => rule.on("POST"),
            Aim::Client | Aim::Proxied | Aim::Forwarded | Aim::Header => rule,
        }
    }
}

pub(crate) struct Service {
    aim: Aim,
    guard: Guard,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    /// By whom, as the service sees it.
    counts: Mutex<BTreeMap<String, u64>>,
    /// What should never have come.
    wrong: Mutex<Vec<String>>,
}

/// What the service thinks of a request.
enum Reading {
    /// It is this one's.
    Of(String),
    /// The rule is not about it.
    Free,
    /// The rule must not have let it through.
    Wrong(&'static str),
}

impl Service {
    pub(crate) fn new(setup: Setup) -> Self {
        let limiter = Limiter::builder().clock(ManualClock::new()).max_keys(100_000).build();
        let guard = Guard::new(&limiter).rule(setup.rule());
        // The simplest guard decides without a future; the others hold slots as well.
        let guard = match setup.aim {
            Aim::Client => guard,
            _ => guard.rule(Rule::new("slots", format!("{SLOTS} concurrent").as_str()).by("'everyone'")),
        };
        let guard = guard.client_ip(setup.client_ip).build().unwrap();
        Self { aim: setup.aim, guard, seen: Arc::default() }
    }

    pub(crate) fn aim(&self) -> Aim {
        self.aim
    }

    pub(crate) fn app(&self) -> Router {
        let (aim, seen) = (self.aim, Arc::clone(&self.seen));
        let serve = move |ConnectInfo(peer): ConnectInfo<Peer>, request: Request| {
            serve(aim, Arc::clone(&seen), peer, request)
        };
        Router::new().fallback(serve).layer(self.guard.layer()).layer(self.guard.json_layer())
    }

    /// Who came too often, and what should never have come.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let mut wrong = self.seen.wrong.lock().unwrap().clone();
        for (key, count) in &*self.seen.counts.lock().unwrap() {
            if *count > LIMIT {
                wrong.push(format!("{key} reached the service more than {LIMIT} times: {count}"));
            }
        }
        wrong
    }

    /// How many were served in all, and for the one with the most.
    pub(crate) fn served_and_most(&self) -> (u64, u64) {
        let counts = self.seen.counts.lock().unwrap();
        (counts.values().sum(), counts.values().copied().max().unwrap_or(0))
    }

    pub(crate) fn free_slots(&self) -> u64 {
        let slots = self.guard.rules().limiter().get("slots");
        slots.map_or(SLOTS, |slots| slots.peek_cost("'everyone'", 0).remaining())
    }
}

async fn serve(aim: Aim, seen: Arc<Seen>, peer: Peer, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let reading = match aim {
        Aim::Client => Reading::Of(peer.ip().to_string()),
        Aim::Proxied | Aim::Forwarded => Reading::Of(true_client(&head.headers, peer.ip())),
        Aim::Path => by_path(&head),
        Aim::Header => by_header(&head.headers),
        Aim::Json if head.method == Method::POST => by_body(&whole(body).await),
        Aim::Json => Reading::Free,
    };
    match reading {
        // A browser asks before it sends: the guard may let that through for free.
        _ if is_preflight(&head) => {}
        Reading::Of(key) => *seen.counts.lock().unwrap().entry(key).or_default() += 1,
        Reading::Free => {}
        Reading::Wrong(what) => seen.wrong.lock().unwrap().push(format!("{what}: {head:?}")),
    }
    ([("x-served", "yes")], "served").into_response()
}

async fn whole(body: Body) -> Bytes {
    to_bytes(body, 1 << 20).await.unwrap_or_default()
}

fn is_preflight(head: &Parts) -> bool {
    let has = |name: &str| head.headers.contains_key(name);
    head.method == Method::OPTIONS && has("origin") && has("access-control-request-method")
}

/// The honest proxy says it once more, in a header that nobody else knows.
fn true_client(headers: &HeaderMap, peer: IpAddr) -> String {
    let told = headers.get_all(TRUE_CLIENT).iter().next_back().filter(|_| peer == PROXY);
    told.map_or(peer.to_string(), |told| told.to_str().unwrap().to_owned())
}

fn by_header(headers: &HeaderMap) -> Reading {
    let keys: Vec<&[u8]> = headers.get_all("x-api-key").iter().map(http::HeaderValue::as_bytes).collect();
    match keys[..] {
        [key] if !key.is_empty() && key.len() <= 4096 => Reading::Of(key.escape_ascii().to_string()),
        _ => Reading::Wrong("reached the service without one clear key"),
    }
}

fn by_body(body: &[u8]) -> Reading {
    let Ok(order) = serde_json::from_slice::<serde_json::Value>(body) else {
        return Reading::Wrong("reached the service with a body that is not JSON");
    };
    let goods = &order["goods"];
    let number = match goods {
        serde_json::Value::String(text) => number(text),
        serde_json::Value::Number(number) => number.as_f64().map(|number| number.to_string()),
        _ => None,
    };
    number.map_or(Reading::Wrong("reached the service without goods"), Reading::Of)
}

fn by_path(head: &Parts) -> Reading {
    if head.method != Method::POST {
        return Reading::Free;
    }
    // Two kinds of services: they differ in what `/a//../b` is.
    let readings = [merged_first(head.uri.path()), dots_first(head.uri.path())];
    let mut ids = readings.iter().filter_map(|path| match &path[..] {
        [goods, id, order] if decoded(goods) == "goods" && decoded(order) == "order" => Some(decoded(id)),
        _ => None,
    });
    let Some(id) = ids.next() else { return Reading::Free };
    number(&id).map_or(Reading::Wrong("reached the service without a number"), Reading::Of)
}

/// 7 for `7`, `07` and `+7`.
fn number(text: &str) -> Option<String> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    digits.parse::<i128>().ok().map(|number| number.to_string())
}

/// Segments without empty ones, then without dots.
fn merged_first(path: &str) -> Vec<String> {
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    let mut out: Vec<String> = Vec::new();
    for segment in segments {
        match decoded(segment).as_str() {
            "." => {}
            ".." => drop(out.pop()),
            _ => out.push(segment.to_owned()),
        }
    }
    out
}

/// Segments without dots, then without empty ones.
fn dots_first(path: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for segment in path.split('/').skip(1) {
        match decoded(segment).as_str() {
            "." => {}
            ".." => drop(out.pop()),
            _ => out.push(segment.to_owned()),
        }
    }
    out.retain(|segment| !segment.is_empty());
    out
}

/// Percent signs decoded, once; what is not text then is shown by its bytes.
fn decoded(segment: &str) -> String {
    let bytes = segment.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let code = segment.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|error| error.into_bytes().escape_ascii().to_string())
}
