//! A broker: asked, frozen, killed, started again, and gone with its folder and its epmd.

use super::{SOON, is_gone};
use lapin::message::{BasicReturnMessage, Delivery};
use lapin::options::{
    BasicAckOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, thread};
use testkit::servers::{RabbitServer, wait_until};
use tokio::time::timeout;

const QUEUE: &str = "calls";

#[tokio::test]
async fn a_quorum_queue_keeps_what_was_confirmed_through_a_kill_and_a_stop() {
    let rabbit = RabbitServer::start();
    let (_conn, channel) = open(&rabbit).await;
    declare(&channel).await;
    rabbit.sync();
    assert_eq!(publish(&channel, QUEUE, b"kept").await, None);
    let returned = publish(&channel, "nowhere", b"lost").await.unwrap();
    assert_eq!((returned.reply_code, returned.reply_text.as_str()), (312, "NO_ROUTE"));

    let first = rabbit.pid().unwrap();
    rabbit.kill();
    assert!(is_gone(first) && !rabbit.is_up());
    assert!(TcpStream::connect(rabbit.addr()).is_err());
    rabbit.restart();
    assert!(rabbit.is_up() && rabbit.pid() != Some(first));
    assert_eq!(rabbit.ctl(&["list_queues", "name", "type"]), "calls\tquorum");
    let (_conn, channel) = open(&rabbit).await;
    assert_eq!(get(&channel).await.unwrap().data, b"kept");

    rabbit.stop();
    assert!(!rabbit.is_up());
    assert!(rabbit.try_ctl(&["status"]).is_err());
    rabbit.restart();
    let (_conn, channel) = open(&rabbit).await;
    let kept = get(&channel).await.unwrap();
    assert_eq!(
        (kept.data.as_slice(), kept.redelivered),
        (b"kept".as_slice(), true),
        "nobody acknowledged it"
    );
    kept.ack(BasicAckOptions::default()).await.unwrap();
    assert_eq!(get(&channel).await, None);
}

#[test]
fn a_frozen_broker_is_silent_and_then_greets() {
    let rabbit = RabbitServer::start();
    rabbit.freeze();
    assert!(!rabbit.is_up());
    let mut stream = TcpStream::connect(rabbit.addr()).unwrap();
    stream.write_all(b"AMQP\x00\x00\x09\x01").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut kind = [0];
    assert_eq!(stream.read_exact(&mut kind).unwrap_err().kind(), ErrorKind::WouldBlock);
    rabbit.thaw();
    assert!(rabbit.is_up());
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.read_exact(&mut kind).unwrap();
    assert_eq!(kind, [1], "a method's frame");

    rabbit.freeze();
    let (pid, folder) = (rabbit.pid().unwrap(), home(&rabbit));
    assert!(those_at_home(&folder).len() >= 2, "the broker and epmd at least");
    drop(rabbit);
    assert!(is_gone(pid) && !folder.exists());
    wait_until("its helpers are gone too", SOON, || those_at_home(&folder).is_empty());
}

#[tokio::test]
async fn two_at_once_know_nothing_of_each_other() {
    let (one, other) = thread::scope(|scope| {
        let one = scope.spawn(RabbitServer::start);
        let other = scope.spawn(|| RabbitServer::with(&["heartbeat = 7"]));
        (one.join().unwrap(), other.join().unwrap())
    });
    let (_conn, channel) = open(&one).await;
    declare(&channel).await;
    publish(&channel, QUEUE, b"here").await;
    let (conn, channel) = open(&other).await;
    assert_eq!(publish(&channel, QUEUE, b"there").await.unwrap().reply_code, 312);
    assert_eq!(conn.configuration().heartbeat(), 7);
    let nodes = "[node() | nodes(hidden)].";
    assert_ne!(one.ctl(&["eval", "erlang:get_cookie()."]), other.ctl(&["eval", "erlang:get_cookie()."]));
    assert_ne!(one.ctl(&["eval", nodes]), other.ctl(&["eval", nodes]));
    one.kill();
    assert_eq!(other.ctl(&["list_queues"]), "");
}

#[test]
#[should_panic(expected = "hartbeat")]
fn a_broker_that_does_not_start_says_why() {
    RabbitServer::with(&["hartbeat = 7"]);
}

async fn open(rabbit: &RabbitServer) -> (Connection, Channel) {
    let url = rabbit.url();
    let conn = Connection::connect(&url, ConnectionProperties::default());
    let conn = timeout(SOON, conn).await.expect("a broker that is up lets in").unwrap();
    let channel = conn.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    (conn, channel)
}

async fn declare(channel: &Channel) {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(QUEUE.into(), options, arguments).await.unwrap();
}

/// Confirmed by the broker; tells whether the message came back.
async fn publish(channel: &Channel, queue: &str, payload: &[u8]) -> Option<BasicReturnMessage> {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let properties = BasicProperties::default().with_delivery_mode(2);
    let sent = channel.basic_publish("".into(), queue.into(), options, payload, properties).await.unwrap();
    let confirmed = timeout(SOON, sent).await.expect("the broker confirms").unwrap();
    let Confirmation::Ack(returned) = confirmed else { panic!("expected an ack, got {confirmed:?}") };
    returned
}

async fn get(channel: &Channel) -> Option<Delivery> {
    let message = channel.basic_get(QUEUE.into(), BasicGetOptions::default());
    let message = timeout(SOON, message).await.expect("the queue has a leader").unwrap();
    message.map(|message| message.delivery)
}

fn home(rabbit: &RabbitServer) -> PathBuf {
    let environ = fs::read_to_string(format!("/proc/{}/environ", rabbit.pid().unwrap())).unwrap();
    environ.split('\0').find_map(|line| line.strip_prefix("HOME=")).unwrap().trim_end_matches('/').into()
}

/// Processes that were started with this folder as their home.
fn those_at_home(folder: &Path) -> Vec<PathBuf> {
    let is_at_home = |process: &PathBuf| {
        let environ = fs::read(process.join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environ).contains(&format!("HOME={}", folder.display()))
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes.filter(is_at_home).collect()
}
