//! A start before the servers: it answers, says which one is missing, and goes on once it is there.

use crate::running::{ADMIN, PATIENCE, SECRET, shell, tidegate};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::Stdio;
use testkit::servers::{PostgresServer, RabbitServer, RedisServer, wait_until};

/// The code of an answer; none if nobody answers in time.
fn code(url: &str) -> Option<u64> {
    let curl = format!("curl -sS --max-time 3 -H 'Authorization: Bearer {ADMIN}' {url} || true");
    let told: Value = serde_json::from_str(&shell(&curl)).ok()?;
    told["code"].as_u64()
}

/// Free a moment ago.
fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Starts without a server, of which the name and the address have to be said.
fn starts_without(servers: &[String; 3], missing: &str, restart: impl FnOnce()) {
    let folder = tempfile::tempdir().unwrap();
    let listen = free_address();
    let [redis, rabbit, postgres] = servers;
    let args = ["--listen", &listen, "--redis", redis, "--amqp", rabbit, "--postgres", postgres];
    let log = folder.path().join("log");
    let file = std::fs::File::create(&log).unwrap();
    let mut command = tidegate(folder.path(), &args);
    command.envs([("TIDEGATE_ADMIN_TOKEN", ADMIN), ("TIDEGATE_SALE_SECRET", SECRET)]);
    let mut child = command.stdout(Stdio::null()).stderr(file).spawn().unwrap();
    for (path, expected) in [("readyz", 50_302), ("livez", 200)] {
        // Before it listens, nobody answers.
        wait_until("it answers", PATIENCE, || code(&format!("http://{listen}/{path}")) == Some(expected));
    }
    let told = format!("waiting: {missing}");
    wait_until("it says which server", PATIENCE, || std::fs::read_to_string(&log).unwrap().contains(&told));
    assert!(child.try_wait().unwrap().is_none(), "it goes on trying");
    restart();
    wait_until("it is ready", PATIENCE, || code(&format!("http://{listen}/readyz")) == Some(200));
    wait_until("it sells", PATIENCE, || code(&format!("http://{listen}/sale/demo/books")) == Some(200));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_start_without_redis_or_postgresql_answers_and_goes_on_once_they_are_there() {
    let (redis, rabbit, postgres) = (RedisServer::start(), RabbitServer::start(), PostgresServer::start());
    let servers = [redis.url(), rabbit.url(), postgres.url()];
    redis.kill();
    starts_without(&servers, &format!("Redis at {}", redis.addr()), || redis.restart());
    postgres.kill();
    starts_without(&servers, &format!("PostgreSQL at {}", postgres.addr()), || postgres.restart());
}
