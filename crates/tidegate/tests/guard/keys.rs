//! Keys, as the store has them and as they are written.

use crate::support::*;
use http::Request;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use tidegate::http::Guard;
use tidegate::rules::{KeyExpr, Missing, Observer, Record, Rule};

#[derive(Clone, Default)]
struct Keys(Arc<Mutex<Vec<Option<Vec<u8>>>>>);

impl Observer for Keys {
    fn verdict(&self, record: &Record<'_>) {
        self.0.lock().unwrap().push(record.key().map(|key| key.as_bytes().to_vec()));
    }
}

/// The key of each request; none where a part is missing.
fn keys<B>(rule: Rule, requests: impl IntoIterator<Item = Request<B>>) -> Vec<Option<Vec<u8>>> {
    let (limiter, _) = limiter();
    let seen = Keys::default();
    let guard =
        Guard::new(&limiter).rule(rule.missing(Missing::Skip)).observer(seen.clone()).build().unwrap();
    for request in requests {
        send(&guard, request);
    }
    let keys = seen.0.lock().unwrap();
    keys.clone()
}

fn key_by(by: impl Into<String>, request: Request<()>) -> Option<String> {
    let key = keys(Rule::new("x", "1000/s").by(by.into()).show_keys(), [request]).remove(0);
    key.map(|key| String::from_utf8(key).unwrap())
}

/// The key is the same with and without an observer, which gets it as text.
#[test]
fn a_client_has_one_allowance_with_and_without_an_observer() {
    for ip in ["203.0.113.9", "1.2.3.4", "255.255.255.255", "::ffff:198.51.100.7", "2001:db8::1"] {
        let (limiter, _) = limiter();
        let plain = Guard::new(&limiter).rule(Rule::new("clients", "3/min").by("ip")).build().unwrap();
        let watched = Guard::new(&limiter).rule(Rule::new("clients", "3/min").by("ip"));
        let watched = watched.observer(Keys::default()).build().unwrap();
        let request = || from(ip, Request::get("/").body(()).unwrap());
        assert_eq!(send(&plain, from("192.0.2.200", get("/"))).status, 200);
        assert_eq!(send(&plain, request()).status, 200);
        let client = tidegate::Client::new(ip.parse().unwrap());
        let gate = limiter.get("clients").unwrap();
        assert_eq!(gate.peek(&format!("ip:{client}")).remaining(), 2, "{ip}");
        assert_eq!(send(&watched, request()).status, 200);
        assert_eq!(send(&plain, request()).status, 200);
        assert_eq!(send(&plain, request()).status, 429, "{ip}");
        assert_eq!(send(&watched, request()).status, 429, "{ip}");
    }
}

#[test]
fn a_key_is_written_as_documented() {
    let request = || {
        let request = Request::post("/goods/a%2Fb/order?goodsId=7%2B1&x=1+2")
            .header("x-api-key", "k1")
            .header("cookie", "a=b; session=s1");
        from("203.0.113.9", by("42", request.body(()).unwrap()))
    };
    for (expr, key) in [
        ("ip", "ip:203.0.113.9"),
        ("user", "user:42"),
        ("header:X-Api-Key", "header:x-api-key=k1"),
        ("path:1", "path:1=goods"),
        ("path:2", "path:2=a/b"),
        ("query:goodsId", "query:goodsId=7%2B1"),
        ("query:x", "query:x=1 2"),
        ("cookie:session", "cookie:session=s1"),
        ("method", "method:POST"),
        ("secret(path:1)", "secret(path:1)=goods"),
        ("'everyone'", "'everyone'"),
        ("'goods' + path:1 + user", "'goods'+path:1=goods+user:42"),
        ("header:x-none else user", "user:42"),
        ("user + header:x-none else ip", "ip:203.0.113.9"),
    ] {
        assert_eq!(key_by(expr, request()).as_deref(), Some(key), "{expr}");
    }
    for missing in ["header:x-none", "path:4", "query:none", "cookie:none", "route"] {
        assert_eq!(key_by(missing, request()), None, "{missing}");
    }
    let route = Rule::new("x", "1/s").on("GET /x").on("/goods/{id}/{*rest}").by("route");
    assert_eq!(keys(route, [request()])[0].as_deref(), Some(&b"route:POST /goods/{id}/{*rest}"[..]));
}

#[test]
fn methods_that_anybody_can_make_up_share_a_key() {
    for method in ["FOO", "BAR"] {
        let request = Request::builder().method(method).uri("/").body(()).unwrap();
        assert_eq!(key_by("method", request).as_deref(), Some("method:OTHER"));
    }
}

#[test]
fn a_long_value_is_written_by_its_beginning_and_its_digest() {
    let key = |value: &str| key_by("query:q", get(&format!("/?q={value}")));
    let long = key(&"x".repeat(1000)).unwrap();
    assert!(long.starts_with("query:q=xxxxxxxxxxxxxxxx%#"), "{long}");
    assert_eq!(long.len(), "query:q=".len() + 16 + 2 + 32);
    assert_ne!(key(&format!("{}y", "x".repeat(999))), Some(long));
}

/// In the same form as without `show_keys`, so that a list has one form of it.
#[test]
fn a_long_secret_is_written_by_its_digest() {
    let key = |value: &str| key_by("header:x-k", with("x-k", value, get("/"))).unwrap();
    assert_eq!(key(&"k".repeat(200)), "header:x-k=#6de3c288691037361962041f2273f381658187e4");
    assert_eq!(key(&"k".repeat(128)), format!("header:x-k={}", "k".repeat(128)));
}

#[test]
fn a_key_can_be_found_by_a_function() {
    let tenant = KeyExpr::from_fn("tenant", |facts| {
        facts.path()?.raw().split('/').nth(1).filter(|first| first.len() > 1).map(str::to_string)
    });
    let rule = || Rule::new("x", "1/s").by(tenant.clone().unwrap().and("'v1'".parse().unwrap()));
    let found = keys(rule(), [get("/acme/x"), get("/a/x")]);
    assert_eq!(found, [Some(b"tenant:acme+'v1'".to_vec()), None]);
    for wrong in ["a b", "", "user"] {
        assert!(KeyExpr::from_fn(wrong, |_| None).is_err(), "{wrong}");
    }
}

#[test]
fn a_million_addresses_of_one_network_share_one_allowance() {
    let (guard, _) = guard_of(Rule::new("x", "3/h").by("ip"));
    let mut shop = shop(&guard);
    let mut allowed = 0;
    for host in 0..1_000_000u128 {
        // Spread over all 64 bits, which a client chooses freely.
        let host = host.wrapping_mul(0x9e37_79b9_7f4a_7c15) & u128::from(u64::MAX);
        let ip = std::net::Ipv6Addr::from_bits((0x2001_0db8_0001_0002 << 64) | host);
        let mut request = Request::new(());
        request.extensions_mut().insert(tidegate::http::Peer::new((ip, 1).into()));
        allowed += u32::from(now(tower::Service::call(&mut shop, request)).unwrap().status() == 200);
    }
    assert_eq!(allowed, 3);
    assert_eq!(send(&guard, from("2001:db8:1:3::1", get("/"))).status, 200);
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    user: Option<String>,
    header: Option<Vec<u8>>,
    query: Option<String>,
}

impl Sent {
    fn request(&self) -> Request<()> {
        let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let uri = match &self.query {
            Some(query) => format!("/?q={}", encode(query)),
            None => "/".into(),
        };
        let mut request = get(&uri);
        if let Some(user) = &self.user {
            request = by(user, request);
        }
        if let Some(header) = &self.header {
            let value = http::HeaderValue::from_bytes(header).unwrap();
            request.headers_mut().insert("x-k", value);
        }
        request
    }

    /// The facts for the expression `user + header:x-k else header:x-k + query:q else user`.
    fn parts(&self) -> Option<Vec<(u8, Vec<u8>)>> {
        let some =
            |text: &Option<String>| text.clone().filter(|text| !text.is_empty()).map(String::into_bytes);
        let header = self.header.clone().filter(|value| !value.is_empty());
        match (some(&self.user), header, some(&self.query)) {
            (Some(user), Some(header), _) => Some(vec![(0, user), (1, header)]),
            (None, Some(header), Some(query)) => Some(vec![(1, header), (2, query)]),
            (Some(user), None, _) => Some(vec![(0, user)]),
            _ => None,
        }
    }
}

fn sent_request() -> impl Strategy<Value = Sent> {
    // Made of what separates parts, tags, and escapes.
    let nasty = || {
        prop::collection::vec(
            prop::sample::select(vec![
                "a",
                "+",
                "%",
                "=",
                "2B",
                "25",
                "#",
                ":",
                "'",
                "user:",
                "header:x-k=",
                "query:q=",
            ]),
            0..5,
        )
        .prop_map(|parts| parts.concat())
    };
    (prop::option::of(nasty()), prop::option::of(nasty()), prop::option::of(nasty()))
        .prop_map(|(user, header, query)| Sent { user, header: header.map(String::into_bytes), query })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn two_requests_have_the_same_key_only_if_their_facts_are_the_same(all in prop::collection::vec(sent_request(), 2..12)) {
        let rule = Rule::new("x", "1000/s").by("user + header:x-k else header:x-k + query:q else user");
        for rule in [rule.clone(), rule.show_keys()] {
            let keys = keys(rule, all.iter().map(Sent::request));
            for (one, one_key) in all.iter().zip(&keys) {
                prop_assert_eq!(one.parts().is_some(), one_key.is_some());
                for (other, other_key) in all.iter().zip(&keys) {
                    prop_assert_eq!(one.parts() == other.parts(), one_key == other_key, "{:?} {:?}", one, other);
                }
            }
        }
    }
}
