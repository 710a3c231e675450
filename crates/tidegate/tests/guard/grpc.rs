//! Refusals as gRPC clients read them, by another protobuf decoder.

use crate::support::*;
use prost::Message;
use tidegate::Refusal;
use tidegate::guard::{GrpcStatus, Headers, Missing, Rule};

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
    by(user, with("content-type", "application/grpc+proto", post("/shop.Shop/Buy")))
}

#[test]
fn a_refusal_is_trailers_only_with_retry_info() {
    let (guard, clock) = guard_of(Rule::new("buy", "1 per 10s").on("POST /shop.Shop/Buy").by("user"));
    assert_eq!(ask(&guard, call("50% \u{e4}")).body, "served");
    clock.advance(ms(8_500));
    let refused = ask(&guard, call("50% \u{e4}"));
    assert_eq!((refused.status.as_u16(), refused.body.as_str()), (200, ""));
    assert_eq!(refused.header("content-type"), Some("application/grpc"));
    assert_eq!(refused.header("grpc-status"), Some("8"));
    assert_eq!(refused.header("retry-after"), None);
    let message = refused.header("grpc-message").unwrap();
    let said = "denied by `buy` for user:50%2525 %C3%A4: 1 per 10s, 0 left, free again in 1.5 s";
    assert_eq!(message, said);

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

fn retry_delay(refused: &Answer) -> Delay {
    let details = decode(refused.header("grpc-status-details-bin").unwrap());
    let status = Status::decode(&details[..]).unwrap();
    RetryInfo::decode(&status.details[0].value[..]).unwrap().retry_delay.unwrap()
}

#[test]
fn those_who_were_refused_together_are_not_told_to_come_back_together() {
    let rule = Rule::new("buy", "2 per 1s").by("user").cost(2);
    let (guard, clock) = build(|guard| guard.rule(rule).headers(Headers::standard().retry_jitter(0.5)));
    assert_eq!(ask(&guard, call("ann")).body, "served");
    clock.advance(ms(600));
    let delays: Vec<Delay> = (0..50).map(|_| retry_delay(&ask(&guard, call("ann")))).collect();
    let in_time = |delay: &Delay| delay.seconds == 0 && (400_000_000..=600_000_000).contains(&delay.nanos);
    assert!(delays.iter().all(in_time), "{delays:?}");
    let mut nanos: Vec<i32> = delays.iter().map(|delay| delay.nanos).collect();
    nanos.sort_unstable();
    nanos.dedup();
    assert!(nanos.len() > 25, "{nanos:?}");

    let (exact, clock) = guard_of(Rule::new("buy", "2 per 1s").by("user").cost(2));
    ask(&exact, call("ann"));
    clock.advance(ms(600));
    assert_eq!(retry_delay(&ask(&exact, call("ann"))), Delay { seconds: 0, nanos: 400_000_000 });
}

#[test]
fn every_refusal_has_its_code() {
    let (guard, _) = build(|guard| {
        guard
            .rule(Rule::new("a", "1/h").by("header:x-k").missing(Missing::Refuse))
            .rule(Rule::new("b", "1/h").by("user").deny_keys(["user:eve"]).cost_with(|_| 2))
    });
    let code = |request| ask(&guard, request).header("grpc-status").unwrap().to_string();
    assert_eq!(code(call("ann")), "3");
    assert_eq!(code(with("x-k", "1", call("eve"))), "7");
    let never = ask(&guard, with("x-k", "1", call("ann")));
    assert_eq!(never.header("grpc-status"), Some("8"));
    let details = decode(never.header("grpc-status-details-bin").unwrap());
    assert!(Status::decode(&details[..]).unwrap().details.is_empty(), "coming back does not help");
}

#[test]
fn a_handlers_refusal_is_said_as_the_guards_own() {
    let (limiter, clock) = limiter();
    let gate = limiter.gate("buy", "1 per 10s").unwrap();
    assert!(gate.check("user:ann").is_allowed());
    clock.advance(ms(8_500));
    let refusal = Refusal::new(&gate, "user:ann", gate.check("user:ann"));
    let grpc = GrpcStatus::new(&refusal);
    let said = "denied by `buy` for user:ann: 1 per 10s, 0 left, free again in 1.5 s";
    assert_eq!((grpc.code(), grpc.message()), (8, said));
    let status = Status::decode(grpc.details()).unwrap();
    assert_eq!((status.code, status.message.as_str()), (8, said));
    let info = RetryInfo::decode(&status.details[0].value[..]).unwrap();
    assert_eq!(info.retry_delay, Some(Delay { seconds: 1, nanos: 500_000_000 }));

    let unknown = GrpcStatus::new(&Refusal::unidentified(&gate));
    assert_eq!(unknown.code(), 3);
    assert!(Status::decode(unknown.details()).unwrap().details.is_empty());
}

#[test]
fn grpc_web_is_answered_in_its_own_type() {
    let (guard, _) = guard_of(Rule::new("a", "1/h").by("'x'").cost_with(|_| 2));
    let request = with("content-type", "application/grpc-web+proto", post("/shop.Shop/Buy"));
    assert_eq!(ask(&guard, request).header("content-type"), Some("application/grpc-web+proto"));
}
