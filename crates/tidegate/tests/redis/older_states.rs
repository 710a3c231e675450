//! States in Redis as earlier programs wrote them, most with two units used: they are read right, and
//! nothing that a key may hold breaks the calls of others.

use std::time::Duration;
use testkit::servers::RedisServer;
use tidegate::{Gate, Limiter, Redis};

const HOUR_US: u64 = 3_600_000_000;

struct Fixture {
    server: RedisServer,
    limiter: Limiter,
}

impl Fixture {
    fn start() -> Self {
        let server = RedisServer::start();
        let redis = Redis::at(&server.url()).unwrap().deadline(Duration::from_secs(5));
        Self { server, limiter: Limiter::builder().redis(redis).build() }
    }

    /// A gate, and the name of its key `a` in Redis.
    fn gate(&self, nth: usize, limit: &str) -> (Gate, String) {
        let gate = self.limiter.gate(&format!("limit-{nth}"), limit).unwrap();
        (gate, format!("tg:1:limit-{nth}:{{a}}"))
    }
}

#[test]
fn texts_of_earlier_programs_are_read_right() {
    let fixture = Fixture::start();
    let now = fixture.server.micros();
    let day = now / (24 * HOUR_US);
    let hour = now / HOUR_US;
    let (end, later) = (now + 720_000_000, now + HOUR_US);
    let cases = [
        // The time when it was written, then the state.
        ("10 per 1h", format!("{now}+720000000b5yc1s0/a"), 8),
        ("7 per 1d", format!("{now}+24685714285:5b13owbuo0/7/7"), 5),
        // A limit that came into force after the last grant starts from the most that any counts.
        ("10 per 1h", format!("{now}+360000000b5yc1s0/a;{later}+720000000b5yc1s0/5"), 8),
        ("leaky 10/h capacity 4", format!("{now}+720000000b5yc1s0/4"), 2),
        ("5 per 1d fixed-window", format!("{now}+2t5/13owbuo0/5"), 3),
        ("5 every 1h cap 10", format!("{now}+2t5/1njchs0/a"), 8),
        ("10 per 1h warmup 10m", format!("{now}+0:240000000w5yc1s0/1/9x82yo/0"), 0),
        // The state alone, and perhaps what another limit had counted.
        ("10 per 1h", format!("{end}b5yc1s0/a"), 8),
        ("7 per 1d", format!("{}:5b13owbuo0/7/7", now + 24_685_714_285), 5),
        ("10 per 1h", format!("{end}b5yc1s0/a+3@{now}~{later}"), 7),
        ("5 per 1d fixed-window", format!("{day}:2t5/13owbuo0/5"), 3),
        ("5 every 1h cap 10", format!("{hour}:2t5/1njchs0/a"), 8),
        ("10 per 1h warmup 10m", format!("{now}:0:240000000w5yc1s0/1/9x82yo/0"), 0),
    ];
    for (nth, (limit, text, left)) in cases.iter().enumerate() {
        let (gate, key) = fixture.gate(nth, limit);
        fixture.server.cmd(&["SET", &key, text]);
        let peeked = gate.peek("a");
        assert!(!peeked.is_degraded(), "`{limit}`, {text}");
        assert_eq!(peeked.remaining(), *left, "`{limit}`, {text}");
        let decision = gate.check("a");
        assert!(!decision.is_degraded(), "`{limit}`, {text}");
        assert_eq!(decision.is_allowed(), *left > 0, "`{limit}`, {text}");
        assert_eq!(gate.peek("a").remaining(), left.saturating_sub(1), "`{limit}`, {text}, after a check");
    }
}

#[test]
fn lists_and_sets_of_earlier_programs_are_read_right() {
    let fixture = Fixture::start();
    let now = fixture.server.micros();
    let [at, before] = [now, now - 1].map(|us| us.to_string());
    let slice = (now / (HOUR_US / 10)).to_string();
    let written = format!("2@{now}/5");
    let lists: [(&str, &[&str]); 4] = [
        ("5 per 1h sliding-log", &["l1/1njchrz/0", &written, &before, "1", &at, "1"]),
        ("5 per 1h sliding-window", &["l5yc1s0/a/0", &written, &slice, "2"]),
        ("5 per 1h sliding-log", &["l1/1njchrz/0", "2", &before, "1", &at, "1"]),
        ("5 per 1h sliding-window", &["l5yc1s0/a/0", "2", &slice, "2"]),
    ];
    for (nth, (limit, entries)) in lists.iter().enumerate() {
        let (gate, key) = fixture.gate(nth, limit);
        fixture.server.cmd(&[&["RPUSH", &key], *entries].concat());
        let peeked = gate.peek("a");
        assert_eq!((peeked.remaining(), peeked.is_degraded()), (3, false), "`{limit}`, {entries:?}");
        assert!(
            gate.check_cost("a", 3).is_allowed() && !gate.check("a").is_allowed(),
            "`{limit}`, {entries:?}"
        );
    }

    let (gate, key) = fixture.gate(lists.len(), "3 concurrent");
    let ends = (now + 10_000_000).to_string();
    let last = format!("-{now}");
    let set = [
        "ZADD",
        &key,
        &last,
        "@",
        "-2",
        "#",
        &ends,
        "9deefe94de70c0c9.1~10000:1",
        &ends,
        "9deefe94de70c0c9.2~10000:1",
    ];
    fixture.server.cmd(&set);
    assert_eq!(gate.peek("a").remaining(), 1);
    let held = gate.reserve("a");
    assert!(held.is_allowed() && !held.is_degraded() && !gate.reserve("a").is_allowed());
}

#[test]
fn what_only_looks_like_a_packed_state_is_refused() {
    let fixture = Fixture::start();
    let (gate, key) = fixture.gate(0, "10 per 1h");
    let now = fixture.server.micros() as f64;
    let tag = "b5yc1s0/a";
    let packed = |written: f64, level: f64, tag: &str| {
        [&written.to_be_bytes()[..], &level.to_be_bytes(), tag.as_bytes()].concat()
    };
    let fits = |bytes: &[u8]| {
        fixture.server.cmd(&[b"SET", key.as_bytes(), bytes]);
        let decision = gate.check("a");
        (decision.is_allowed(), decision.is_degraded())
    };
    assert_eq!(fits(&packed(now, 720_000_000.0, tag)), (true, false));
    assert_eq!(gate.peek("a").remaining(), 7);
    for (written, level, tag) in [
        (f64::NAN, 0.0, tag),
        (now, f64::NAN, tag),
        (now, f64::INFINITY, tag),
        (now, -1.0, "b5yc1s0/b"),
        (now + 0.5, 1.0, "b5yc1s0/b"),
        (now, 1.0, "t5/1njchs0/a"),
        (now, 1.0, "nonsense"),
        (now, 1.0, ""),
    ] {
        assert!(fits(&packed(written, level, tag)).1, "{written}, {level}, {tag}");
    }
}
