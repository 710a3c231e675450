//! Who is let in: no more than the rate in any window, all limits or none, and only so many
//! who wait.

use crate::client::Client;
use crate::place::{Place, goods, phones, user};
use std::time::Duration;
use testkit::windows::{Edge, busiest};
use tidegate::http::ClientIp;
use tidegate::{Clock as _, Limit, MonotonicClock};
use tidegate_sale::{Change, Refusal, Sale};

fn at(rate: &str) -> Sale {
    let mut sale = phones(1_000_000);
    sale.rate = rate.parse().unwrap();
    sale
}

/// A start is noted after it is told, so a busy machine may note it later than it was: by no
/// more than this, and the longest time that the test itself did not get to run.
const SLACK: Duration = Duration::from_millis(250);

/// The first window that holds more than the limit lets start.
fn overrun(limit: &Limit, starts: &[(u64, u64)], slack: Duration) -> Option<String> {
    [1, 10, 100, 500, 1_000, 2_000].into_iter().find_map(|ms| {
        let window = Duration::from_millis(ms);
        let (most, found) =
            (limit.worst_case(window + slack, 1), busiest(starts, ms * 1_000, Edge::Closed).units);
        (found > most).then(|| format!("{found} in {window:?}, at most {most}"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_holds_more_paths_than_the_rate_lets_start() {
    let rate = "200/s burst 20 wait 300ms";
    let place = Place::open(at(rate)).await;
    let clock = MonotonicClock::new();
    let buyer = async |nth: u32| {
        let (mut starts, mut asked) = (Vec::new(), Vec::new());
        let name = user(&format!("user-{nth}"));
        while clock.now().as_micros() < 2_500_000 {
            asked.push((clock.now().as_micros(), 1));
            match place.service.random_path(&name, None, &goods()).await {
                Ok(_) => starts.push((clock.now().as_micros(), 1)),
                Err(Refusal::Limited { retry_after, .. }) => assert!(!retry_after.is_zero()),
                Err(refusal) => panic!("{refusal}"),
            }
            tokio::task::yield_now().await;
        }
        (starts, asked)
    };
    let all = futures_util::future::join_all((0..200).map(buyer)).await;
    let (starts, asked): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let (starts, mut asked) = (starts.concat(), asked.concat());
    asked.sort_unstable();
    let longest = asked.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap();
    let slack = SLACK + Duration::from_micros(longest);
    let limit: Limit = rate.parse().unwrap();
    assert_eq!(overrun(&limit, &starts, slack), None);
    // More than the burst; how many more depends on what else the machine does.
    assert!(starts.len() > 20, "the rate is used: {}", starts.len());
    // The same look at what was asked for finds too much: it can fail.
    assert!(overrun(&limit, &asked, slack).is_some());
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_user_stands_in_line_once_however_often_they_ask() {
    let place = Place::with(|builder| builder.user_limit(None).ip_limit(None), |http| http).await;
    place.begin(at("1/10s burst 1")).await;
    place.path("ann").await.expect(200);
    let ahead = async |name: &str| {
        let told = place.path(name).await.expect(42_901);
        (told.data["ahead"].as_u64().unwrap(), told.data["retry_after_ms"].as_u64().unwrap())
    };
    for _ in 0..50 {
        let (ahead, ms) = ahead("bob").await;
        assert!(ahead == 0 && ms <= 10_000, "bob makes it no longer: {ahead}, {ms} ms");
    }
    let (ahead, ms) = ahead("cem").await;
    assert!(ahead <= 1 && (10_000..=20_000).contains(&ms), "one more does: {ahead}, {ms} ms");
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limited_says_when_to_come_back() {
    let place = Place::open(at("1/h burst 1")).await;
    place.path("ann").await.expect(200);
    let told = place.path("bob").await.expect(42_901);
    let ms = told.data["retry_after_ms"].as_u64().unwrap();
    let seconds: u64 = told.field("retry-after").unwrap().parse().unwrap();
    assert!((3_500_000..=3_600_000).contains(&ms) && seconds == ms.div_ceil(1_000), "{told:?}");
    // From the next request on.
    place.change(&goods(), Change::Rate { limit: "1000/s".parse().unwrap() }).await;
    place.path("bob").await.expect(200);
    place.change(&goods(), Change::Rate { limit: "1/h burst 1".parse().unwrap() }).await;
    // What was used drained at the rate of before: one more at most.
    place.path("cem").await;
    place.path("cem").await.expect(42_901);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_beyond_their_limit_takes_nothing_from_the_others() {
    let hourly = |limit: &str| Some(limit.parse().unwrap());
    let place =
        Place::with(|builder| builder.user_limit(hourly("1/h burst 1")).ip_limit(None), |http| http).await;
    place.begin(at("2/h burst 2")).await;
    place.path("ann").await.expect(200);
    for _ in 0..5 {
        place.path("ann").await.expect(42_901);
    }
    place.path("bob").await.expect(200);
    place.path("cem").await.expect(42_901);
    // Refused by the goods, cem has spent nothing of their own.
    place.change(&goods(), Change::Rate { limit: "1000/s".parse().unwrap() }).await;
    place.path("cem").await.expect(200);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_is_limited_whoever_signs_in_there_and_cannot_be_made_up() {
    let place = Place::with(
        |builder| builder.user_limit(None).ip_limit(Some("2/h burst 2".parse().unwrap())),
        |http| http.client_ip(ClientIp::behind(["127.0.0.1"]).unwrap()),
    )
    .await;
    place.begin(phones(10)).await;
    let from = async |name: &str, hops: &str| {
        let auth = place.bearer(name);
        let fields = [("authorization", auth.as_str()), ("x-forwarded-for", hops)];
        place.client().await.ask("GET /randomPath?goodsId=phone", &fields, "").await.code
    };
    assert_eq!(from("ann", "203.0.113.9").await, 200);
    assert_eq!(from("bob", "198.51.100.7, 203.0.113.9").await, 200);
    assert_eq!(from("cem", "198.51.100.8, 203.0.113.9").await, 42_901);
    assert_eq!(from("cem", "203.0.113.10").await, 200);
    assert_eq!(from("cem", "2001:db8::1").await, 200);
    assert_eq!(from("cem", "2001:db8::2").await, 200);
    assert_eq!(from("cem", "2001:db8::3").await, 42_901, "one /64 is one client");
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn this_machine_is_spared_where_that_is_said() {
    for (spare, code) in [(false, 42_901), (true, 200)] {
        let limit = Some("1/h burst 1".parse().unwrap());
        let place = Place::with(
            |builder| builder.user_limit(None).ip_limit(limit).spare_loopback(spare),
            |http| http,
        )
        .await;
        place.begin(phones(10)).await;
        place.path("ann").await.expect(200);
        place.path("bob").await.expect(code);
        place.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_so_many_wait_and_who_leaves_makes_room() {
    let place = Place::with(|builder| builder.user_limit(None).ip_limit(None).waiters(2), |http| http).await;
    place.begin(at("1/h burst 1 wait 10h")).await;
    place.path("ann").await.expect(200);
    let mut waiters = Vec::new();
    for (nth, name) in ["bob", "cem"].into_iter().enumerate() {
        let mut client = Client::connect(place.at).await;
        client.send("GET /randomPath?goodsId=phone", &[("authorization", &place.bearer(name))], "").await;
        place.until("one more waits", async || place.service.waiting() == nth + 1).await;
        waiters.push(client);
    }
    let told = place.path("dan").await.expect(42_901);
    assert!(told.data["retry_after_ms"].as_u64().unwrap() > 0, "{told:?}");
    assert_eq!(place.service.waiting(), 2);
    // Who goes away is no longer waited for; the last one gives back what was reserved.
    waiters.pop();
    place.until("one has left", async || place.service.waiting() == 1).await;
    waiters.pop();
    place.until("nobody waits", async || place.service.waiting() == 0).await;
    let waits = tokio::spawn({
        let service = place.service.clone();
        async move { service.random_path(&user("eve"), None, &goods()).await }
    });
    place.until("eve waits", async || place.service.waiting() == 1).await;
    waits.abort();
    place.until("eve has left", async || place.service.waiting() == 0).await;
    place.end().await;
}

/// The answer to `HEAD` has no path in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_spends_no_admission() {
    let mut sale = phones(10);
    sale.rate = "1/h burst 1".parse().unwrap();
    let place = Place::open(sale).await;
    let auth = place.bearer("ann");
    let mut client = place.client().await;
    client.send("HEAD /randomPath?goodsId=phone", &[("authorization", &auth)], "").await;
    let head = client.head().await;
    assert_eq!(crate::client::status(&head), 405, "{head}");
    assert!(head.contains("allow: GET,POST"), "{head}");
    place.path("ann").await.expect(200);
    place.end().await;
}
