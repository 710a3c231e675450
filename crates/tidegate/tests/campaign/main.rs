//! A campaign of hostile requests over raw sockets, through an axum service with the guard.
//!
//! Requests come from a grammar of addresses, paths, methods, headers and bodies, some of them
//! malformed byte by byte, cut in pieces, or left in the middle. The service counts for itself who
//! reaches it, by a reading of its own that is as lenient as services are. What has to hold:
//!
//! - nobody reaches the service more often than the limit says;
//! - nothing panics, no slot and no connection stays behind, and a plain request is served
//!   afterwards;
//! - whatever is not the service's answer is an error, and no cache may keep the guard's.
//!
//! The seed of a request is its number, so a failure repeats. `TIDEGATE_CASES=10` sends ten times
//! as many.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod answer;
mod grammar;
mod http2;
mod requests;
mod service;
mod target;
mod wire;

use grammar::Aim;
use service::{LIMIT, Service, Setup};
use target::Target;
use tidegate::http::ClientIp;

/// Connections of each campaign over HTTP/1, and over HTTP/2 where there are a few requests each.
const CONNECTIONS: u64 = 400;
const CONNECTIONS_H2: u64 = 40;

/// Attacks a service, and gives what did not hold.
fn attack(setup: Setup) -> Vec<String> {
    let cases = testkit::suite::cases();
    let aim = setup.aim;
    let target = Target::start(Service::new(setup));
    let mut wrong = wire::attack(&target, aim, 0..cases * CONNECTIONS);
    wrong.extend(http2::attack(&target, aim, 0..cases * CONNECTIONS_H2));
    wrong.extend(target.finish());
    wrong
}

#[track_caller]
fn assert_holds(setup: Setup) {
    let aim = setup.aim;
    let wrong = attack(setup);
    assert!(wrong.is_empty(), "{aim:?}: {} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// A guard that is wrong has to be found out, or the campaign shows nothing.
#[track_caller]
fn assert_found_out(setup: Setup, what: &str) {
    let wrong = attack(setup);
    assert!(wrong.iter().any(|line| line.contains(what)), "{wrong:#?}");
}

#[test]
fn no_header_gives_a_client_another_address() {
    assert_holds(Setup::new(Aim::Client));
}

#[test]
fn no_header_gives_a_client_of_a_trusted_proxy_another_address() {
    assert_holds(Setup::new(Aim::Proxied));
    assert_holds(Setup::new(Aim::Forwarded));
}

#[test]
fn no_way_to_write_a_path_evades_a_rule() {
    assert_holds(Setup::new(Aim::Path));
}

#[test]
fn no_way_to_write_a_header_evades_a_key() {
    assert_holds(Setup::new(Aim::Header));
}

#[test]
fn no_way_to_write_a_body_evades_a_key() {
    assert_holds(Setup::new(Aim::Json));
}

#[test]
fn a_guard_that_trusts_its_clients_is_found_out() {
    let everybody = ClientIp::behind(["loopback"]).unwrap();
    let more = format!("reached the service more than {LIMIT} times");
    assert_found_out(Setup { client_ip: everybody, ..Setup::new(Aim::Client) }, &more);
}

#[test]
fn a_key_by_the_text_of_a_number_is_found_out() {
    let more = format!("reached the service more than {LIMIT} times");
    assert_found_out(Setup { key: "path:2", ..Setup::new(Aim::Path) }, &more);
}

#[test]
fn a_rule_that_skips_what_is_ambiguous_is_found_out() {
    let setup = Setup { key: "header:x-api-key else 'none'", ..Setup::new(Aim::Header) };
    assert_found_out(setup, "reached the service without one clear key");
}
