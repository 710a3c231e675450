//! The Redis store decides as the model does: the suite of the memory store, unchanged.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::library::{Clocked, Gates, Library, Way};
use testkit::limits::{CHANGES, FIXED, HELD, LEAKY, LOGS, SMOOTH, TICKED, TOGETHER, WARM, WINDOWS};
use testkit::model::Store;
use testkit::servers::{Cluster, RedisServer};
use testkit::suite::conforms;
use testkit::together;
use testkit::trace::{Traffic, YEAR_US};
use tidegate::{Limit, Redis};

/// Where the suite is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// One server.
    Alone,
    /// Three masters with a replica each.
    Cluster,
}

fn redis(place: Where) -> Redis {
    static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);
    static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let redis = match place {
        Where::Alone => Redis::at(&SERVER.url()),
        Where::Cluster => Redis::cluster(CLUSTER.urls()),
    };
    let nth = MADE.fetch_add(1, Ordering::Relaxed);
    redis.unwrap().prefix(&format!("suite-{nth}")).unwrap()
}

fn assert_conforms(place: Where, texts: &[&str], traffic: &Traffic, way: Way, traces: u64) {
    let clocked = Clocked::in_redis(redis(place));
    for text in texts {
        let limit: Limit = text.parse().unwrap();
        let make = |limit: &Limit| Box::new(Library::on(&clocked, limit, way)) as Box<dyn testkit::Subject>;
        if let Err(mismatch) = conforms(&limit, traffic, 1, traces, &make) {
            panic!("{mismatch}");
        }
    }
    let stats = clocked.limiter.redis_stats().unwrap();
    assert_eq!(stats.disagreements, 0, "{stats:?}");
    assert_eq!(stats.degraded, 0, "{stats:?}");
}

macro_rules! every_algorithm {
    ($place:expr => $($name:ident: $texts:ident),* $(,)?) => {
        use super::*;

        $(mod $name {
            use super::*;

            #[test]
            fn decides_as_the_model() {
                let traces = if $place == Where::Alone { 2 } else { 1 };
                for begins_us in [0, 1, 123_456_789, 2 * YEAR_US + 7] {
                    let traffic = Traffic { begins_us, ..Traffic::plain() };
                    assert_conforms($place, &$texts, &traffic, Way::Key, traces);
                }
            }

            #[test]
            fn gives_back_as_the_model() {
                for (begins_us, steps) in [(YEAR_US, 120), (YEAR_US + 123_456_789, 15)] {
                    let traffic = Traffic { gives_back: true, begins_us, steps, ..Traffic::plain() };
                    assert_conforms($place, &$texts, &traffic, Way::Both, 2);
                }
            }

            #[test]
            fn survives_a_jumping_clock_as_the_model() {
                for begins_us in [0, 3 * YEAR_US] {
                    let traffic = Traffic { jumps: true, begins_us, ..Traffic::plain() };
                    assert_conforms($place, &$texts, &traffic, Way::Key, 2);
                }
            }
        })*

        #[test]
        fn concurrency_without_a_queue_decides_as_the_model() {
            assert_conforms($place, &HELD, &Traffic::plain(), Way::Both, 4);
        }

        #[test]
        fn a_changed_limit_takes_over_as_the_model() {
            let changes: Vec<Limit> = CHANGES.iter().map(|text| text.parse().unwrap()).collect();
            for begins_us in [0, 123_456_789] {
                let traffic =
                    Traffic { changes: changes.clone(), begins_us, store: Store::Redis, ..Traffic::plain() };
                assert_conforms($place, &CHANGES, &traffic, Way::Key, 2);
            }
        }
    };
}

macro_rules! everywhere {
    ($($place:ident: $where:expr),* $(,)?) => {$(
        mod $place {
            testkit::for_every_algorithm!(every_algorithm, $where);
        }
    )*};
}

everywhere! {
    on_one_server: Where::Alone,
    on_a_cluster: Where::Cluster,
}

#[test]
fn several_limits_are_charged_all_or_none_as_the_models() {
    let limits: Vec<Limit> = TOGETHER.iter().map(|text| text.parse().unwrap()).collect();
    let clocked = Clocked::in_redis(redis(Where::Alone));
    if let Err(split) = together::conforms(&limits, 1, 100, &|limits| Box::new(Gates::on(&clocked, limits))) {
        panic!("{split}");
    }
}
