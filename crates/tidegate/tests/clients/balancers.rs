//! Balancers between clients and the listener: haproxy and nginx with the PROXY protocol, nginx
//! with `X-Forwarded-For`, and curl that speaks the PROXY protocol itself.
//!
//! Clients come from several addresses of 127.0.0.0/8, or from `::1`.

use crate::curl::{curl, try_curl};
use crate::support::Server;
use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;
use testkit::servers::{Front, Haproxy, Nginx, wait_until};
use tidegate::http::{ClientIp, Guard, Peer};
use tidegate::rules::Rule;
use tidegate::{Limiter, ManualClock};

/// How long anything may take that happens at once on a machine that is not busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// Two looks for each client, and the answer says who was seen.
pub(crate) fn shop(client_ip: ClientIp) -> Router {
    let limiter = Limiter::builder().clock(ManualClock::new()).max_keys(100).build();
    let look = Rule::new("look", "2/day").by("ip");
    let guard = Guard::new(&limiter).rule(look).client_ip(client_ip).build().unwrap();
    let who = |ConnectInfo(peer): ConnectInfo<Peer>| async move { format!("seen: {}", peer.ip()) };
    Router::new().route("/", get(who)).layer(guard.layer())
}

fn behind_a_balancer() -> Server {
    Server::listening("127.0.0.1:0", shop(ClientIp::peer()), |listener| {
        listener.proxy_protocol(["loopback"]).unwrap()
    })
}

/// Clients of two addresses have two looks each, and the server knows them.
#[track_caller]
pub(crate) fn assert_each_has_its_own(url: &str, options: &[&str]) {
    for client in ["127.0.0.2", "127.0.0.3"] {
        let ask = || curl(&[&["--interface", client], options, &[url]].concat());
        for _ in 0..2 {
            let answer = ask();
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{client}: {answer}");
            assert!(answer.ends_with(&format!("\r\n\r\nseen: {client}")), "{client}: {answer}");
        }
        let refused = ask();
        assert!(refused.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{client}: {refused}");
    }
}

fn has_ipv6() -> bool {
    let has = TcpListener::bind("[::1]:0").is_ok();
    if !has {
        eprintln!("this machine has no IPv6, so it is not tried");
    }
    has
}

#[test]
fn haproxy_names_its_clients_in_either_version() {
    for option in ["send-proxy", "send-proxy-v2"] {
        let server = behind_a_balancer();
        let haproxy = Haproxy::start(Front::Ipv4, server.address, option);
        assert_each_has_its_own(&format!("http://{}/", haproxy.addr()), &[]);
        assert_eq!((server.stats.accepted(), server.stats.bad_headers()), (6, 0), "{option}");
    }
}

#[test]
fn haproxy_names_ipv6_clients_too() {
    if !has_ipv6() {
        return;
    }
    for option in ["send-proxy", "send-proxy-v2"] {
        let server = behind_a_balancer();
        let haproxy = Haproxy::start(Front::Ipv6, server.address, option);
        let url = format!("http://{}/", haproxy.addr());
        for _ in 0..2 {
            let answer = curl(&["-6", &url]);
            assert!(answer.ends_with("\r\n\r\nseen: ::1"), "{option}: {answer}");
        }
        assert!(curl(&["-6", &url]).starts_with("HTTP/1.1 429 "), "{option}");
    }
}

#[test]
fn haproxy_may_end_tls_and_the_client_is_known_all_the_same() {
    let server = behind_a_balancer();
    let haproxy = Haproxy::start(Front::Tls, server.address, "send-proxy-v2-ssl");
    assert_each_has_its_own(&format!("https://{}/", haproxy.addr()), &["--insecure"]);
    assert_eq!(server.stats.bad_headers(), 0);
}

#[test]
fn haproxys_health_checks_are_its_own_connections() {
    for option in ["send-proxy check inter 50ms", "send-proxy-v2 check inter 50ms"] {
        let server = behind_a_balancer();
        let haproxy = Haproxy::start(Front::Ipv4, server.address, option);
        wait_until("haproxy has checked the server", PATIENCE, || server.stats.accepted() >= 3);
        assert_eq!(server.stats.bad_headers(), 0, "{option}: {:?}", server.stats.last_bad_header());
        // They spend nobody's allowance.
        assert_each_has_its_own(&format!("http://{}/", haproxy.addr()), &[]);
    }
}

#[test]
fn a_balancer_that_is_not_trusted_names_nobody() {
    let server = Server::listening("127.0.0.1:0", shop(ClientIp::peer()), |listener| {
        listener.proxy_protocol(["10.0.0.0/8"]).unwrap()
    });
    let haproxy = Haproxy::start(Front::Ipv4, server.address, "send-proxy-v2");
    let answer = try_curl(&[&format!("http://{}/", haproxy.addr())]);
    assert!(answer.is_err(), "{answer:?}");
    // It tries again a few times.
    assert!(server.stats.untrusted() >= 1);
    assert_eq!(server.stats.accepted(), 0);
}

#[test]
fn nginx_names_its_clients_by_the_proxy_protocol() {
    // Part of the program, or a module of its own.
    let module = "/usr/lib/nginx/modules/ngx_stream_module.so";
    let load = if Path::new(module).exists() { format!("load_module {module};") } else { String::new() };
    let server = behind_a_balancer();
    let nginx = Nginx::with(|port| {
        format!(
            "{load}\nstream {{ server {{ listen 127.0.0.1:{port}; proxy_pass {}; proxy_protocol on; }} }}",
            server.address
        )
    });
    assert_each_has_its_own(&nginx.url("/"), &[]);
    assert_eq!((server.stats.accepted(), server.stats.bad_headers()), (6, 0));
}

#[test]
fn nginx_names_its_clients_by_a_header_and_not_whom_they_name() {
    let client_ip = ClientIp::behind(["127.0.0.1"]).unwrap();
    let server = Server::start(shop(client_ip));
    let nginx = Nginx::http(|port| {
        format!(
            "server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://{}; \
             proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }} }}",
            server.address
        )
    });
    for client in ["127.0.0.2", "127.0.0.3"] {
        let ask = |spoofed: &str| {
            let header = format!("x-forwarded-for: {spoofed}");
            curl(&["--interface", client, "--header", &header, &nginx.url("/")])
        };
        assert!(ask("203.0.113.1").starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(ask("203.0.113.2, 127.0.0.1").starts_with("HTTP/1.1 200 OK\r\n"));
        for spoofed in ["203.0.113.3", "127.0.0.9, 127.0.0.1", "::1", "unknown", ""] {
            assert!(ask(spoofed).starts_with("HTTP/1.1 429 "), "{client} as {spoofed:?}");
        }
    }
}

#[test]
fn curl_speaks_the_proxy_protocol_itself() {
    let server = behind_a_balancer();
    assert_each_has_its_own(&server.url("/"), &["--haproxy-protocol"]);
    // Who forgets it is not served.
    assert!(try_curl(&[&server.url("/")]).is_err());
    // The connection is closed before it is counted.
    wait_until("it is counted", PATIENCE, || server.stats.bad_headers() == 1);
    if has_ipv6() {
        let server = Server::listening("[::1]:0", shop(ClientIp::peer()), |listener| {
            listener.proxy_protocol(["loopback"]).unwrap()
        });
        let answer = curl(&["-6", "--haproxy-protocol", &server.url("/")]);
        assert!(answer.ends_with("\r\n\r\nseen: ::1"), "{answer}");
    }
}

#[test]
fn a_listener_for_both_families_counts_each_client_once() {
    if !has_ipv6() {
        return;
    }
    let server = Server::listening("[::]:0", shop(ClientIp::peer()), |listener| listener);
    let port = server.address.port();
    assert_each_has_its_own(&format!("http://127.0.0.1:{port}/"), &[]);
    for _ in 0..2 {
        let answer = curl(&["-6", &format!("http://[::1]:{port}/")]);
        assert!(answer.ends_with("\r\n\r\nseen: ::1"), "{answer}");
    }
    assert!(curl(&["-6", &format!("http://[::1]:{port}/")]).starts_with("HTTP/1.1 429 "));
}
