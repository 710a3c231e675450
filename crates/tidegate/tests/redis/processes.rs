//! Several processes on one Redis: together they start no more than one would, whatever
//! their clocks say.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use testkit::servers::RedisServer;
use tidegate::{Limit, Limiter, Redis};

/// Limits, and whether callers wait for their start.
const LIMITS: [(&str, bool); 6] = [
    ("200/s burst 20", false),
    ("100/s burst 5 wait 100ms", true),
    ("50 per 500ms sliding-log", false),
    ("50 per 500ms sliding-window", false),
    ("20 every 100ms cap 40", false),
    ("leaky 100/s queue 10", true),
];
const RUN: Duration = Duration::from_millis(2_000);

/// When a call that was allowed surely started: not before, and not after.
#[derive(Clone, Copy, Debug)]
struct Start {
    after_us: u64,
    before_us: u64,
}

#[test]
fn several_processes_start_no_more_than_the_limit_and_skewed_clocks_change_nothing() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let library = skewing_library(folder.path());
    // One process an hour behind, one right, one a day ahead.
    let skews_s: [i64; 3] = [-3_600, 0, 86_400];
    let children = skews_s.map(|skew| client(&server, &library, skew));
    let outputs = children.map(|child| child.wait_with_output().unwrap());
    let mut by_limit = vec![Vec::new(); LIMITS.len()];
    for (output, skew) in outputs.iter().zip(skews_s) {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        let mut starts = 0;
        for line in text.lines().filter_map(|line| line.strip_prefix("start ")) {
            let numbers: Vec<i64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
            let [limit, after, before] = numbers[..] else { panic!("{line}") };
            let true_us = |us: i64| u64::try_from(us - skew * 1_000_000).unwrap();
            let start = Start { after_us: true_us(after), before_us: true_us(before) };
            by_limit[usize::try_from(limit).unwrap()].push(start);
            starts += 1;
        }
        assert!(starts > 0, "a process {skew} s off got nothing at all");
    }
    for ((text, _), starts) in LIMITS.iter().zip(&by_limit) {
        let limit: Limit = text.parse().unwrap();
        assert!(too_many(&limit, starts).is_none(), "`{text}`: {:?}", too_many(&limit, starts));
        // And it is a limit, not a wall.
        let (least, most) = (limit.worst_case(RUN, 1) / 3, limit.worst_case(RUN + RUN, 1));
        assert!(starts.len() as u64 >= least, "`{text}`: only {} of {least} to {most}", starts.len());
    }
}

/// A window with more starts in it than the limit's worst case: its beginning, its
/// length, and how many.
fn too_many(limit: &Limit, starts: &[Start]) -> Option<(u64, Duration, u64)> {
    let mut starts = starts.to_vec();
    starts.sort_by_key(|start| start.after_us);
    for length_ms in [0, 1, 5, 10, 50, 99, 100, 250, 499, 500, 1_000, 2_000] {
        let length = Duration::from_millis(length_ms);
        // In windows and logs a window is open at its end.
        let length_us = length_ms * 1_000 - u64::from(length_ms > 0);
        let most = limit.worst_case(length, 1);
        for (nth, first) in starts.iter().enumerate() {
            let until_us = first.after_us + length_us;
            let inside = starts[nth..].iter().take_while(|start| start.after_us <= until_us);
            let count = inside.filter(|start| start.before_us <= until_us).count() as u64;
            if count > most {
                return Some((first.after_us, length, count));
            }
        }
    }
    None
}

#[test]
fn the_checker_finds_one_start_too_many() {
    let limit: Limit = "100/s burst 5".parse().unwrap();
    let at = |us: u64| Start { after_us: us, before_us: us };
    let right: Vec<Start> = (0..5).map(|_| at(0)).chain((1..50).map(|nth| at(nth * 10_000))).collect();
    assert_eq!(too_many(&limit, &right), None);
    let mut wrong = right.clone();
    wrong.push(at(250_000));
    assert!(too_many(&limit, &wrong).is_some());
}

/// A process that starts as much as it can, and says when.
fn client(server: &RedisServer, library: &Path, skew_s: i64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::starts_as_much_as_it_can", "--ignored", "--nocapture"])
        .env("TIDEGATE_URL", server.url())
        .env("TIDEGATE_SKEW", skew_s.to_string())
        .env("LD_PRELOAD", library)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "a child of another test"]
fn starts_as_much_as_it_can() {
    let Ok(url) = std::env::var("TIDEGATE_URL") else { return };
    let redis = Redis::at(&url).unwrap().deadline(Duration::from_secs(5));
    let limiter = Limiter::builder().redis(redis).build();
    let until_us = wall_us() + u64::try_from(RUN.as_micros()).unwrap();
    std::thread::scope(|scope| {
        for (nth, (text, waits)) in LIMITS.iter().enumerate() {
            let gate = limiter.gate(&format!("limit-{nth}"), *text).unwrap();
            for _ in 0..3 {
                let gate = gate.clone();
                scope.spawn(move || {
                    while wall_us() < until_us {
                        let after_us = wall_us();
                        let is_allowed = if *waits {
                            gate.acquire("everyone").blocking().is_allowed()
                        } else {
                            let decision = gate.check("everyone");
                            assert!(!decision.is_degraded(), "{decision:?}");
                            decision.is_allowed()
                        };
                        let before_us = wall_us();
                        if is_allowed {
                            writeln!(std::io::stdout(), "start {nth} {after_us} {before_us}").unwrap();
                        } else {
                            testkit::servers::pause(Duration::from_micros(200));
                        }
                    }
                });
            }
        }
    });
}

/// The wall clock, as wrong as this process has it.
fn wall_us() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the clock that is skewed")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

/// Makes the wall clock of a process wrong by `TIDEGATE_SKEW` seconds.
fn skewing_library(folder: &Path) -> PathBuf {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdlib.h>
        #include <time.h>
        int clock_gettime(clockid_t id, struct timespec *ts) {
            static int (*real)(clockid_t, struct timespec *);
            if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
            int result = real(id, ts);
            const char *skew = getenv("TIDEGATE_SKEW");
            if (result == 0 && id == CLOCK_REALTIME && skew) ts->tv_sec += atol(skew);
            return result;
        }
    "#;
    let (source, library) = (folder.join("skew.c"), folder.join("skew.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let made =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").status();
    assert!(made.expect("a C compiler is needed for this test").success());
    library
}
