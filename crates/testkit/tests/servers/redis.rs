//! One server: asked, killed, frozen, replicated, locked.

use super::{bulk, folder, is_gone, ok};
use std::io::ErrorKind;
use std::panic::catch_unwind;
use std::thread;
use testkit::servers::{Conn, RedisServer};

#[test]
fn a_server_answers() {
    let redis = RedisServer::start();
    assert_eq!(redis.url(), format!("redis://127.0.0.1:{}", redis.port()));
    assert_eq!(redis.cmd(&["SET", "key", "value"]), ok());
    assert_eq!(redis.cmd(&["GET", "key"]), bulk("value"));
    assert_eq!(redis.cmd(&["INCR", "n"]).int(), 1);
    assert!(redis.cmd(&["GET", "other"]).is_nil());
    assert_eq!(redis.cmd(&["LPUSH", "key", "x"]).error().unwrap().split(' ').next(), Some("WRONGTYPE"));
    assert_eq!(redis.cmd(&[b"SET".as_slice(), b"\xff\r\n", b"\0"]), ok());
    assert_eq!(redis.cmd(&["DEBUG", "SLEEP", "0"]), ok());
    assert!(redis.log().contains("Ready to accept connections"));
}

#[test]
fn many_start_at_once_each_on_its_own_port() {
    let servers: Vec<RedisServer> = thread::scope(|scope| {
        let each: Vec<_> = (0..8).map(|_| scope.spawn(RedisServer::start)).collect();
        each.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for (nth, server) in servers.iter().enumerate() {
        assert_eq!(server.cmd(&["INCRBY", "n", &nth.to_string()]).int(), i64::try_from(nth).unwrap());
    }
}

#[test]
fn arguments_overrule_ours_and_survive_a_restart() {
    let redis = RedisServer::with(&["--maxmemory", "3mb", "--appendonly", "yes", "--appendfsync", "always"]);
    redis.cmd(&["SET", "key", "kept"]).accepted();
    redis.restart();
    assert_eq!(redis.cmd(&["CONFIG", "GET", "maxmemory"]).items()[1], bulk("3145728"));
    assert_eq!(redis.cmd(&["GET", "key"]), bulk("kept"));
}

#[test]
#[should_panic(expected = "Bad directive or wrong number of arguments")]
fn a_server_that_does_not_start_says_why() {
    RedisServer::with(&["--no-such-option", "1"]);
}

#[test]
fn a_killed_server_is_gone_and_comes_back_empty_at_the_same_address() {
    let redis = RedisServer::start();
    let (addr, pid) = (redis.addr(), redis.pid().unwrap());
    redis.cmd(&["SET", "key", "value"]).accepted();
    redis.kill();
    assert!(is_gone(pid) && !redis.is_up() && redis.pid().is_none());
    assert_eq!(redis.try_cmd(&["PING"]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    redis.restart();
    assert_eq!(redis.addr(), addr);
    assert!(redis.cmd(&["GET", "key"]).is_nil());
    redis.restart();
    assert!(redis.is_up());
}

#[test]
fn a_frozen_server_is_silent_and_then_answers_what_it_was_asked() {
    let redis = RedisServer::start();
    let mut conn = redis.connect().unwrap();
    for _ in 0..3 {
        redis.freeze();
        conn.send(&["INCR", "n"]).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", redis.pid().unwrap())).unwrap();
        assert_eq!(stat.split(' ').nth(2), Some("T"), "stands still");
        assert!(!redis.is_up());
        redis.thaw();
        conn.receive().unwrap();
    }
    assert_eq!(redis.cmd(&["GET", "n"]).int(), 3);
}

#[test]
fn calls_and_memory_are_counted() {
    let redis = RedisServer::start();
    assert_eq!(redis.calls("evalsha"), 0);
    let sha = redis.cmd(&["SCRIPT", "LOAD", "return 1"]).text();
    for _ in 0..3 {
        redis.cmd(&["EVALSHA", &sha, "0"]).accepted();
    }
    assert_eq!((redis.calls("evalsha"), redis.calls("EVALSHA"), redis.calls("eval")), (3, 3, 0));
    let before = redis.used_memory();
    redis.cmd(&["SET", "key", &"x".repeat(1_000_000)]).accepted();
    assert!(redis.used_memory() > before + 1_000_000);
}

#[test]
fn a_password_is_asked_for_and_known() {
    let redis = RedisServer::with_password("sesame");
    assert_eq!(redis.url(), format!("redis://:sesame@{}", redis.addr()));
    assert_eq!(redis.cmd(&["SET", "key", "value"]), ok());
    let stranger = Conn::open(&redis.addr()).unwrap().cmd(&["GET", "key"]);
    assert!(stranger.error().unwrap().starts_with("NOAUTH"));
    let replica = RedisServer::replica_of(&redis);
    assert_eq!(replica.cmd(&["GET", "key"]), bulk("value"));
}

#[test]
fn a_user_may_do_what_the_rules_say() {
    let redis = RedisServer::with_acl("limiter", "secret", "~limits:* +get +set -@admin");
    assert_eq!(redis.url_as("limiter", "secret"), format!("redis://limiter:secret@{}", redis.addr()));
    assert_eq!(redis.cmd(&["ACL", "WHOAMI"]), bulk("admin"));
    redis.restart();
    let mut conn = Conn::open(&redis.addr()).unwrap();
    assert!(conn.cmd(&["SET", "limits:a", "1"]).error().unwrap().starts_with("NOAUTH"));
    assert_eq!(conn.cmd(&["AUTH", "limiter", "secret"]), ok());
    assert_eq!(conn.cmd(&["SET", "limits:a", "1"]), ok());
    assert!(conn.cmd(&["SET", "other", "1"]).error().unwrap().starts_with("NOPERM"));
    assert!(conn.cmd(&["DEL", "limits:a"]).error().unwrap().starts_with("NOPERM"));
    let replica = RedisServer::replica_of(&redis);
    assert_eq!(replica.cmd(&["GET", "limits:a"]), bulk("1"));
}

#[test]
fn a_replica_has_caught_up_and_cannot_be_written_to() {
    let master = RedisServer::start();
    master.cmd(&["SET", "key", "value"]).accepted();
    let replica = RedisServer::replica_of(&master);
    assert_eq!(replica.cmd(&["GET", "key"]), bulk("value"));
    assert!(replica.cmd(&["SET", "key", "x"]).error().unwrap().starts_with("READONLY"));
    assert_eq!(master.info("replication", "connected_slaves").as_deref(), Some("1"));
}

#[test]
fn nothing_stays_behind_not_even_of_a_frozen_server() {
    let redis = RedisServer::start();
    let (pid, folder) = (redis.pid().unwrap(), folder(&redis));
    assert!(folder.exists() && !is_gone(pid));
    redis.freeze();
    drop(redis);
    assert!(is_gone(pid) && !folder.exists());
}

#[test]
fn nothing_stays_behind_when_the_test_panics() {
    let panic = catch_unwind(|| {
        let redis = RedisServer::start();
        std::panic::panic_any((redis.pid().unwrap(), folder(&redis)));
    });
    let (pid, folder) = *panic.unwrap_err().downcast::<(u32, std::path::PathBuf)>().unwrap();
    assert!(is_gone(pid) && !folder.exists());
}
