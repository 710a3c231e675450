//! A process that hangs: it is stopped, and says nothing.

use crate::running::{PATIENCE, Running, shell};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use testkit::servers::{PostgresServer, RabbitServer, RedisServer, wait_until};

/// It kept the queues to itself for up to 30 s: two heartbeats of ten seconds, and a little.
const TAKEN_OVER: Duration = Duration::from_secs(15);

#[test]
#[expect(clippy::disallowed_methods, reason = "a deadline of another process")]
fn what_another_process_sells_is_placed_soon() {
    let (redis, rabbit, postgres) = (RedisServer::start(), RabbitServer::start(), PostgresServer::start());
    let urls = [redis.url(), rabbit.url(), postgres.url()];
    let servers = ["--redis", &urls[0], "--amqp", &urls[1], "--postgres", &urls[2], "--stock", "9"];
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // The first has the queues.
    let one = Running::start(here.path(), &servers);
    let script = one.buying();
    wait_until("it sells", PATIENCE, || shell(&script).contains("order demo-"));
    wait_until("it is placed", PATIENCE, || one.books()["placed"] == 1);
    let other = Running::start(there.path(), &servers);
    one.signal(Signal::STOP);
    let begun = Instant::now();
    let script = other.buying();
    wait_until("it sells", PATIENCE, || shell(&script).contains("order demo-"));
    wait_until("it is placed", PATIENCE, || other.books_now().is_some_and(|books| books["placed"] == 2));
    assert!(begun.elapsed() < TAKEN_OVER, "{:?}", begun.elapsed());
    one.signal(Signal::CONT);
    other.end(Signal::TERM);
    one.end(Signal::TERM);
}
