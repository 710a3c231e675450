//! curl, as a process. It honours `Retry-After` with `--retry`.

use crate::support::{Log, Server};
use axum::Router;
use axum::routing::get;
use std::process::Command;
use std::time::Duration;
use tidegate::Limiter;
use tidegate::http::Guard;
use tidegate::rules::{Outcome, Rule};

/// What curl prints: the answers, one after the other.
pub(crate) fn curl(arguments: &[&str]) -> String {
    try_curl(arguments).unwrap_or_else(|error| panic!("{error}"))
}

/// The same, or what curl says is wrong.
pub(crate) fn try_curl(arguments: &[&str]) -> Result<String, String> {
    let ran = Command::new("curl")
        .args(["--silent", "--show-error", "--include", "--max-time", "20", "--noproxy", "*"])
        .args(arguments)
        .output()
        .expect("curl is not installed: run ./test, which installs it");
    match ran.status.success() {
        true => Ok(String::from_utf8(ran.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&ran.stderr).into_owned()),
    }
}

pub(crate) fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[test]
fn curl_sees_how_much_is_left_then_when_to_come_back_and_comes_back_then() {
    let log = Log::default();
    let guard = Guard::new(&Limiter::new())
        .rule(Rule::new("look", "1 per 3s").on("GET /goods/{id}").by("ip"))
        .observer(log.clone())
        .build()
        .unwrap();
    let app = Router::new().route("/goods/{id}", get(|| async { "a lamp" })).layer(guard.layer());
    let server = Server::start(app);
    let url = server.url("/goods/7");

    let passed = curl(&[&url]);
    assert!(passed.starts_with("HTTP/1.1 200 OK\r\n") && passed.ends_with("\r\n\r\na lamp"), "{passed}");
    assert_eq!(header(&passed, "ratelimit-policy"), Some("\"look\";q=1;w=3"));
    assert_eq!(header(&passed, "ratelimit"), Some("\"look\";r=0;t=3"));

    let refused = curl(&[&url]);
    let (head, body) = refused.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{head}");
    assert_eq!(header(head, "content-type"), Some("application/problem+json"));
    // Rounded up: less than three seconds are left, and more than none.
    let told: u64 = header(head, "retry-after").unwrap().parse().unwrap();
    assert!((1..=3).contains(&told), "{head}");
    assert_eq!(header(head, "ratelimit"), Some(format!("\"look\";r=0;t={told}").as_str()));
    let problem: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!((&problem["status"], &problem["violated-policies"][0]), (&429.into(), &"look".into()));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("denied by `look`: 1 per 3s, 0 left, free again in "));

    let both = curl(&["--retry", "3", &url]);
    // The second answer begins where the first one's body ends.
    let statuses: Vec<&str> = both.split("HTTP/1.1 ").skip(1).filter_map(|one| one.lines().next()).collect();
    assert_eq!(statuses, ["429 Too Many Requests", "200 OK"]);
    let told: u64 = header(&both, "retry-after").unwrap().parse().unwrap();
    log.assert_came_back_in_time(Duration::from_secs(told));
    use Outcome::{Allowed, Denied};
    assert_eq!(log.outcomes(), [Allowed, Denied, Denied, Allowed]);
}
