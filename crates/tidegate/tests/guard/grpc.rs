//! Refusals as gRPC clients read them, with an independent protobuf decoder.

use crate::support::*;
use prost::Message;
use tidegate::Refusal;
use tidegate::http::{GrpcStatus, Headers};
use tidegate::rules::{Missing, Rule};

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

#[derive(Clone, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

fn decode(text: &str) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String =
        text.chars().map(|digit| format!("{:06b}", DIGITS.find(digit).expect("base64"))).collect();
    let bytes = bits.as_bytes().chunks_exact(8);
    bytes.map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 2).unwrap()).collect()
}

fn call(user: &str) -> http::Request<()> {
    by(user, grpc("/shop.Shop/Buy"))
}

#[test]
fn a_refusal_is_trailers_only_with_retry_info() {
    let rule = Rule::new("buy", "1 per 10s").on("POST /shop.Shop/Buy").by("user").show_keys();
    let (guard, clock) = build(|guard| guard.rule(rule).grpc());
    assert_eq!(send(&guard, call("50% \u{e4}")).body, "served");
    clock.advance(ms(8_500));
    let refused = send(&guard, call("50% \u{e4}"));
    assert_eq!((refused.status.as_u16(), refused.body.as_str()), (200, ""));
    assert_eq!(refused.header("content-type"), Some("application/grpc"));
    assert_eq!(refused.header("grpc-status"), Some("8"));
    assert_eq!(refused.header("retry-after"), None);
    let message = refused.header("grpc-message").unwrap();
    let sentence = "denied by `buy` for user:50%2525 %C3%A4: 1 per 10s, 0 left, free again in 1.5 s";
    assert_eq!(message, sentence);

    let details = decode(refused.header("grpc-status-details-bin").unwrap());
    let status = Status::decode(&details[..]).unwrap();
    assert_eq!(status.code, 8);
    assert_eq!(
        status.message,
        "denied by `buy` for user:50%25 \u{e4}: 1 per 10s, 0 left, free again in 1.5 s"
    );
    assert_eq!(status.details[0].type_url, "type.googleapis.com/google.rpc.RetryInfo");
    let info = RetryInfo::decode(&status.details[0].value[..]).unwrap();
    assert_eq!(info.retry_delay, Some(Delay { seconds: 1, nanos: 500_000_000 }));
}

fn retry_delay(refused: &WholeResponse) -> Delay {
    let details = decode(refused.header("grpc-status-details-bin").unwrap());
    let status = Status::decode(&details[..]).unwrap();
    RetryInfo::decode(&status.details[0].value[..]).unwrap().retry_delay.unwrap()
}

#[test]
fn requests_refused_together_get_different_times_to_retry() {
    let rule = Rule::new("buy", "2 per 1s").by("user").cost(2);
    let (guard, clock) =
        build(|guard| guard.rule(rule).grpc().headers(Headers::standard().retry_jitter(0.5)));
    assert_eq!(send(&guard, call("ann")).body, "served");
    clock.advance(ms(600));
    let delays: Vec<Delay> = (0..50).map(|_| retry_delay(&send(&guard, call("ann")))).collect();
    let in_time = |delay: &Delay| delay.seconds == 0 && (400_000_000..=600_000_000).contains(&delay.nanos);
    assert!(delays.iter().all(in_time), "{delays:?}");
    let mut nanos: Vec<i32> = delays.iter().map(|delay| delay.nanos).collect();
    nanos.sort_unstable();
    nanos.dedup();
    assert!(nanos.len() > 25, "{nanos:?}");

    let (exact, clock) = build(|guard| guard.rule(Rule::new("buy", "2 per 1s").by("user").cost(2)).grpc());
    send(&exact, call("ann"));
    clock.advance(ms(600));
    assert_eq!(retry_delay(&send(&exact, call("ann"))), Delay { seconds: 0, nanos: 400_000_000 });
}

#[test]
fn every_refusal_has_its_code() {
    let (guard, _) = build(|guard| {
        guard
            .rule(Rule::new("a", "1/h").by("header:x-k").missing(Missing::Refuse))
            .rule(Rule::new("b", "1/h").by("user").deny_keys(["user:eve"]).cost_with(|_| 2))
            .grpc()
    });
    let code = |request| send(&guard, request).header("grpc-status").unwrap().to_string();
    assert_eq!(code(call("ann")), "3");
    assert_eq!(code(with("x-k", "1", call("eve"))), "7");
    let never = send(&guard, with("x-k", "1", call("ann")));
    assert_eq!(never.header("grpc-status"), Some("8"));
    let details = decode(never.header("grpc-status-details-bin").unwrap());
    assert!(Status::decode(&details[..]).unwrap().details.is_empty(), "coming back does not help");
}

#[test]
fn a_handlers_refusal_has_the_form_of_the_guards_own() {
    let (limiter, clock) = limiter();
    let gate = limiter.gate("buy", "1 per 10s").unwrap();
    assert!(gate.check("user:ann").is_allowed());
    clock.advance(ms(8_500));
    let refusal = Refusal::new(&gate, "user:ann", gate.check("user:ann"));
    let grpc = GrpcStatus::new(&refusal);
    let sentence = "denied by `buy`: 1 per 10s, 0 left, free again in 1.5 s";
    assert_eq!((grpc.code(), grpc.message()), (8, sentence));
    let status = Status::decode(grpc.details()).unwrap();
    assert_eq!((status.code, status.message.as_str()), (8, sentence));
    let info = RetryInfo::decode(&status.details[0].value[..]).unwrap();
    assert_eq!(info.retry_delay, Some(Delay { seconds: 1, nanos: 500_000_000 }));

    let unknown = GrpcStatus::new(&Refusal::unidentified(&gate));
    assert_eq!(unknown.code(), 3);
    assert!(Status::decode(unknown.details()).unwrap().details.is_empty());
}

/// POST with these content types.
fn typed(kinds: &[&str]) -> http::Request<()> {
    kinds.iter().fold(post("/shop.Shop/Buy"), |request, kind| with("content-type", kind, request))
}

fn over_http2<B>(mut request: http::Request<B>) -> http::Request<B> {
    *request.version_mut() = http::Version::HTTP_2;
    request
}

fn refusing() -> Rule {
    Rule::new("a", "1/h").by("'x'").cost_with(|_| 2)
}

#[track_caller]
fn assert_plain_http(refused: &WholeResponse, what: &str) {
    assert_eq!((refused.status.as_u16(), refused.header("grpc-status")), (429, None), "{what}");
    assert_eq!(refused.header("content-type"), Some("application/problem+json"), "{what}");
}

#[test]
fn a_content_type_alone_gets_no_grpc_response() {
    let (guard, _) = guard_of(refusing());
    for kind in ["application/grpc", "application/grpc+proto", "application/grpc-web", "application/grpcfoo"]
    {
        assert_plain_http(&send(&guard, with("content-type", kind, get("/"))), kind);
        assert_plain_http(&send(&guard, typed(&[kind])), kind);
        assert_plain_http(&send(&guard, over_http2(typed(&[kind]))), kind);
    }
}

#[test]
fn with_grpc_only_grpc_requests_get_a_grpc_response() {
    let (guard, _) = build(|guard| guard.rule(refusing()).grpc());
    for kind in [
        "application/grpc",
        "Application/GRPC+Proto",
        "application/grpc+json",
        "application/grpc ; charset=utf-8",
        " application/grpc;x",
    ] {
        let refused = send(&guard, over_http2(typed(&[kind])));
        assert_eq!((refused.status.as_u16(), refused.header("grpc-status")), (200, Some("8")), "{kind}");
        assert_eq!(refused.header("content-type"), Some("application/grpc"), "{kind}");
        assert_eq!(refused.header("cache-control"), Some("no-store"), "{kind}");
        assert_plain_http(&send(&guard, typed(&[kind])), kind);
        assert_plain_http(&send(&guard, over_http2(with("content-type", kind, get("/")))), kind);
    }
    for kind in [
        "application/grpcfoo",
        "application/grpc-foo",
        "application/grpc/proto",
        "application/grpc +proto",
        "application/grpc, application/json",
        "application/grpc-web-",
        "application/grpc-web-texts",
        "text/html;application/grpc",
        "application/json",
        "",
    ] {
        assert_plain_http(&send(&guard, over_http2(typed(&[kind]))), kind);
    }
    assert_plain_http(&send(&guard, over_http2(typed(&["application/grpc", "text/html"]))), "two types");
    assert_plain_http(&send(&guard, over_http2(typed(&[]))), "no type");
}

#[test]
fn a_grpc_web_response_has_the_content_type_of_the_request_over_any_version() {
    let (guard, _) = build(|guard| guard.rule(refusing()).grpc());
    for (sent, expected) in [
        ("application/grpc-web", "application/grpc-web"),
        ("application/grpc-web+proto", "application/grpc-web+proto"),
        ("application/grpc-web+json; charset=utf-8", "application/grpc-web+json"),
        ("application/grpc-web+own", "application/grpc-web"),
        ("application/grpc-web-text", "application/grpc-web-text"),
        ("Application/Grpc-Web-Text+Proto", "application/grpc-web-text+proto"),
    ] {
        for request in [typed(&[sent]), over_http2(typed(&[sent]))] {
            let refused = send(&guard, request);
            assert_eq!(refused.header("content-type"), Some(expected), "{sent}");
            assert_eq!((refused.status.as_u16(), refused.header("grpc-status")), (200, Some("8")), "{sent}");
            assert_eq!(refused.header("cache-control"), Some("no-store"), "{sent}");
        }
        assert_plain_http(&send(&guard, with("content-type", sent, get("/"))), sent);
    }
}
