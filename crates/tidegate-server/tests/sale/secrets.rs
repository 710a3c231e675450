//! Who knows what: the demo makes its secrets and tells them, a sale on servers is given them and
//! tells nobody.

use crate::running::{ADMIN, Running, SECRET, tidegate};
use rustix::process::Signal;
use testkit::servers::{PostgresServer, RabbitServer, RedisServer};

#[test]
fn a_sale_on_servers_prints_no_token_and_writes_no_secret() {
    let (redis, rabbit, postgres) = (RedisServer::start(), RabbitServer::start(), PostgresServer::start());
    let urls = [redis.url(), rabbit.url(), postgres.url()];
    let folder = tempfile::tempdir().unwrap();
    let sale =
        Running::start(folder.path(), &["--redis", &urls[0], "--amqp", &urls[1], "--postgres", &urls[2]]);
    let printed = sale.printed.clone() + &sale.end(Signal::TERM);
    assert!(printed.contains("/sale/demo/books") && printed.contains("as given"), "{printed}");
    for secret in [ADMIN, SECRET, "TOKEN=", "v1."] {
        assert!(!printed.contains(secret), "{secret} in {printed}");
    }
    let written: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(written.is_empty(), "{written:?}");
    let kept = postgres.sql("SELECT name FROM sale_settings ORDER BY name");
    assert!(kept.contains("version") && !kept.contains("secret"), "{kept}");
}

/// Nobody listens at these addresses: what is missing is said before anybody is asked.
const SERVERS: [&str; 6] = [
    "--redis",
    "redis://127.0.0.1:1",
    "--amqp",
    "amqp://127.0.0.1:1",
    "--postgres",
    "postgres://127.0.0.1:1",
];

#[test]
fn a_sale_on_servers_says_which_secrets_to_set() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("admin"), format!("{ADMIN}\n")).unwrap();
    let (admin, secret) = (["--admin-token-file", "admin"], ["--secret", SECRET]);
    for (more, said, unsaid) in [
        (&[][..], &["TIDEGATE_ADMIN_TOKEN", "TIDEGATE_SALE_SECRET", "openssl rand"][..], "--admin-token:"),
        (&admin, &["TIDEGATE_SALE_SECRET", "--secret-file"], "TIDEGATE_ADMIN_TOKEN"),
        (&secret, &["TIDEGATE_ADMIN_TOKEN", "--admin-token-file"], "TIDEGATE_SALE_SECRET"),
        (&[admin[0], admin[1], "--secret", "abc"], &["--secret", "64 hexadecimal"], "abc"),
        (&[admin[0], "gone", secret[0], secret[1]], &["--admin-token-file gone"], SECRET),
    ] {
        let args = [&["--listen", "127.0.0.1:0"], &SERVERS[..], more].concat();
        let ended = tidegate(folder.path(), &args).output().unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{more:?}: {error}");
        assert!(said.iter().all(|said| error.contains(said)) && !error.contains(unsaid), "{more:?}: {error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was made");
}

#[test]
fn the_demo_takes_a_secret_that_it_is_given_and_does_not_write_it() {
    let folder = tempfile::tempdir().unwrap();
    let sale = Running::start(folder.path(), &["--secret", SECRET]);
    assert!(crate::shell(&sale.buying()).contains("order demo-"));
    assert!(!sale.printed.contains(SECRET));
    assert!(!folder.path().join("tidegate-data/secret").exists());
    sale.end(Signal::TERM);
}
