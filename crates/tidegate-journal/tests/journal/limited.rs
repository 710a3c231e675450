//! Functions under `#[limited(..., otherwise = defer)]`: refused, recorded, replayed.

use crate::place::{Place, call, end, until, worker};
use crate::shop::{Desk, Order, Shop, ShopError, notify, notify_deferred, sweep, sweep_deferred};
use serde_json::json;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tidegate_journal::{Go, Guid, Journal, Method, Status};

on_both! {
    a_refused_call_is_recorded_by_name_and_runs_when_its_limit_lets_it,
    a_replay_runs_the_body_without_asking_its_limits_twice,
    replays_and_live_calls_share_the_places_of_a_limit,
    a_record_outlives_the_journal_that_wrote_it,
    what_cannot_be_recorded_is_refused_and_says_why,
    a_call_that_can_never_run_is_not_kept_and_does_not_stand_in_the_way,
    an_error_says_whether_its_call_is_tried_again,
    key_deadline_and_priority_are_those_of_the_record,
    a_record_of_an_older_signature_runs_or_says_what_is_missing,
    a_function_that_is_not_async_waits_on_its_thread,
    methods_of_every_kind_are_replayed_on_what_the_worker_was_given,
}

async fn ship(shop: &Shop, to: &str) -> Result<usize, ShopError> {
    let order = Order { id: 17, items: vec!["tea".to_owned(), "a \"cup\"".to_owned()] };
    let file = Path::new("/labels/17");
    shop.ship(&order, to, 2, &[3, 4], file, None, "express".into(), u128::MAX).await
}

/// As if the method's gate were open.
fn ungated(method: Method) -> Method {
    method.gate(|_| std::future::ready(Go::now()))
}

async fn result(journal: &Journal, guid: &Guid) -> String {
    let record = end(journal, guid).await;
    assert_eq!(record.status, Status::Done, "{record:?}");
    record.result.unwrap()
}

async fn a_refused_call_is_recorded_by_name_and_runs_when_its_limit_lets_it(place: &Place) {
    let shop = Shop::new(place.journal().await);
    assert_eq!(ship(&shop, "Bern").await.unwrap(), 1);
    let guid = ship(&shop, "Bern").await.unwrap_err().guid();
    assert_eq!(shop.done().len(), 1, "it did not run");
    let record = shop.journal.find(&guid).await.unwrap().unwrap();
    assert_eq!(record.method.as_deref(), Some("journal::shop::Shop::ship"));
    let expected = format!(
        r#"{{"order":{{"id":17,"items":["tea","a \"cup\""]}},"to":"Bern","copies":2,"labels":[3,4],"file":"/labels/17","note":null,"type":"express","huge":{}}}"#,
        u128::MAX
    );
    if place.is_sqlite() {
        assert_eq!(record.params, expected);
    } else {
        // PostgreSQL orders and spaces it in its own way.
        let read = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
        assert_eq!(read(&record.params), read(&expected));
    }

    let running = worker(&shop.journal).with(Shop::ship_deferred(shop.clone())).start();
    until("a worker has it", async || (place.count("lease_no > 0") == 1).then_some(())).await;
    // Others are not held up by a key that is used up.
    assert_eq!(ship(&shop, "Basel").await.unwrap(), 2);
    running.stop().await;
    assert_eq!(shop.done().len(), 2, "the limit has no room for the replay yet");

    let gate = shop.limiter.get("ship").unwrap();
    gate.reset("Bern");
    let pass = worker(&shop.journal).with(Shop::ship_deferred(shop.clone())).run_once().await.unwrap();
    assert_eq!((pass.picked, pass.done), (1, 1));
    assert_eq!(result(&shop.journal, &guid).await, "3");
    let done = shop.done();
    assert_eq!(done[2], done[0]);
    assert_eq!(done[2], format!("17 tea+a \"cup\" to Bern, 3 [3, 4] /labels/17 None express {}", u128::MAX));
    assert!(!gate.check("Bern").is_allowed(), "the replay was charged");
}

async fn a_replay_runs_the_body_without_asking_its_limits_twice(place: &Place) {
    let shop = Shop::new(place.journal().await);
    ship(&shop, "Bern").await.unwrap();
    let guid = ship(&shop, "Bern").await.unwrap_err().guid();
    let method = ungated(Shop::ship_deferred(shop.clone()));
    assert_eq!(method.name(), "journal::shop::Shop::ship");
    worker(&shop.journal).with(method).run_once().await.unwrap();
    assert_eq!(result(&shop.journal, &guid).await, "2");
    assert_eq!(place.count("1 = 1"), 1, "nothing was deferred again");
}

async fn replays_and_live_calls_share_the_places_of_a_limit(place: &Place) {
    let shop = Shop::new(place.journal().await);
    let live = tokio::spawn({
        let shop = shop.clone();
        async move { shop.pack(0).await }
    });
    until("the live call has its place", async || (shop.most.load(SeqCst) == 1).then_some(())).await;
    let mut guids = Vec::new();
    for nth in 1..=5 {
        guids.push(shop.pack(nth).await.unwrap_err().guid());
    }
    let running = worker(&shop.journal).with(Shop::pack_deferred(shop.clone())).start();
    until("a worker has them", async || (place.count("lease_no > 0") == 5).then_some(())).await;
    shop.open.add_permits(6);
    for (guid, nth) in guids.iter().zip(1..) {
        assert_eq!(result(&shop.journal, guid).await, nth.to_string());
    }
    assert_eq!(live.await.unwrap().unwrap(), 0);
    assert_eq!(shop.most.load(SeqCst), 1, "never two at once");
    running.stop().await;
}

async fn a_record_outlives_the_journal_that_wrote_it(place: &Place) {
    let shop = Shop::new(place.journal().await);
    ship(&shop, "Bern").await.unwrap();
    let guid = ship(&shop, "Bern").await.unwrap_err().guid();
    drop(shop);
    let shop = Shop::new(place.journal().await);
    worker(&shop.journal).with(Shop::ship_deferred(shop.clone())).run_once().await.unwrap();
    assert_eq!(result(&shop.journal, &guid).await, "1");
}

async fn what_cannot_be_recorded_is_refused_and_says_why(place: &Place) {
    let shop = Shop::new(place.open(Journal::builder().pending_max(1)).await.unwrap());
    ship(&shop, "Bern").await.unwrap();
    ship(&shop, "Bern").await.unwrap_err().guid();
    let reason = ship(&shop, "Bern").await.unwrap_err().reason();
    assert_eq!(
        reason,
        "the journal is full: 1 records are pending in all; refuse the call, or raise the bound"
    );
    let order = Order { id: 1, items: vec!["x".repeat(tidegate_journal::PARAMS_MAX)] };
    let large = shop.ship(&order, "Bern", 1, &[], Path::new(""), None, "".into(), 0).await;
    let reason = large.unwrap_err().reason();
    assert!(reason.contains("record a reference to them instead"), "{reason}");
    assert_eq!(shop.done().len(), 1);
}

async fn a_call_that_can_never_run_is_not_kept_and_does_not_stand_in_the_way(place: &Place) {
    let shop = Shop::new(place.journal().await);
    let ShopError::Refused(refusal) = shop.cancel(5, 2).await.unwrap_err() else { panic!("not refused") };
    assert!(std::error::Error::source(&refusal).is_none());
    assert_eq!(place.count("1 = 1"), 0);
    // Recorded under a larger limit: it fails, and the next one has its turn.
    let never = shop.journal.defer(call("cancel", json!({ "order_id": 6, "units": 2 }))).await.unwrap();
    let next = shop.journal.defer(call("cancel", json!({ "order_id": 7, "units": 1 }))).await.unwrap();
    worker(&shop.journal).with(Shop::cancel_deferred(shop.clone())).run_once().await.unwrap();
    let record = end(&shop.journal, &never).await;
    assert_eq!((record.status, record.attempts), (Status::Failed, 0));
    let reason = record.last_error.unwrap();
    assert!(reason.starts_with("denied by `cancel`"), "{reason}");
    assert_eq!(result(&shop.journal, &next).await, "null");
    assert_eq!(shop.done(), ["cancelled 7 of 1"]);
}

async fn an_error_says_whether_its_call_is_tried_again(place: &Place) {
    let shop = Shop::new(place.journal().await);
    shop.cancel(9, 1).await.unwrap();
    let permanent = shop.cancel(0, 1).await.unwrap_err().guid();
    let passing = shop.cancel(1, 1).await.unwrap_err().guid();
    assert_eq!(shop.plain("first".to_owned()).await.unwrap_err().0, "first");
    let plain: Guid = shop.plain("by its text".to_owned()).await.unwrap_err().0.parse().unwrap();
    let running = worker(&shop.journal)
        .max_attempts(2)
        .with(ungated(Shop::cancel_deferred(shop.clone())))
        .with(ungated(Shop::plain_deferred(shop.clone())))
        .start();
    let ended = async |guid: &Guid| {
        let record = end(&shop.journal, guid).await;
        (record.status, record.attempts, record.last_error.unwrap())
    };
    assert_eq!(ended(&permanent).await, (Status::Failed, 1, "there is no such order".to_owned()));
    let gave_up = |why: &str| (Status::Failed, 2, format!("gave up after 2 attempts: {why}"));
    assert_eq!(ended(&passing).await, gave_up("no courier today"));
    assert_eq!(ended(&plain).await, gave_up("by its text"));
    running.stop().await;
}

async fn key_deadline_and_priority_are_those_of_the_record(place: &Place) {
    let shop = Shop::new(place.journal().await);
    shop.cancel(9, 1).await.unwrap();
    let guid = shop.cancel(5, 1).await.unwrap_err().guid();
    let again = shop.cancel(5, 1).await.unwrap_err().guid();
    assert_eq!(guid, again, "the same key is the same record");
    let record = shop.journal.find(&guid).await.unwrap().unwrap();
    assert_eq!(record.method.as_deref(), Some("cancel"));
    assert_eq!((record.key.as_deref(), record.priority), (Some("cancel 5"), 8));
    let deadline = record.deadline.unwrap().duration_since(record.create_time).unwrap();
    assert_eq!(deadline, Duration::from_secs(5_400));
}

async fn a_record_of_an_older_signature_runs_or_says_what_is_missing(place: &Place) {
    let shop = Shop::new(place.journal().await);
    let mut params = json!({
        "order": { "id": 1, "items": [] }, "to": "Bern", "copies": 0, "labels": [], "file": "f",
        "type": "", "huge": 0, "dropped": true,
    });
    let older = shop.journal.defer(call("journal::shop::Shop::ship", &params)).await.unwrap();
    params["copies"] = json!("two");
    let wrong = shop.journal.defer(call("journal::shop::Shop::ship", &params)).await.unwrap();
    params.as_object_mut().unwrap().remove("copies");
    let missing = shop.journal.defer(call("journal::shop::Shop::ship", &params)).await.unwrap();
    let none = shop.journal.defer(call("journal::shop::Shop::ship", 7)).await.unwrap();
    worker(&shop.journal).with(Shop::ship_deferred(shop.clone())).run_once().await.unwrap();
    assert_eq!(result(&shop.journal, &older).await, "1");
    for (guid, why) in [
        (wrong, "`copies`: invalid type: string \"two\", expected u8"),
        (missing, "there is no `copies`"),
        (none, "invalid type: integer `7`, expected a map"),
    ] {
        let record = end(&shop.journal, &guid).await;
        assert_eq!(record.status, Status::Failed);
        let reason = record.last_error.unwrap();
        let expected = format!("the parameters do not fit `journal::shop::Shop::ship`: {why}");
        assert!(reason.starts_with(&expected), "{reason}");
    }
}

async fn a_function_that_is_not_async_waits_on_its_thread(place: &Place) {
    let shop = Shop::new(place.journal().await);
    assert_eq!(shop.print("first").unwrap(), "FIRST");
    // In a runtime of several threads, on all of them at once.
    let calls = (0..8).map(|nth| {
        let shop = shop.clone();
        tokio::spawn(async move { shop.print(&format!("in a task {nth}")).unwrap_err().guid() })
    });
    let mut guids = Vec::new();
    for call in futures_util::future::join_all(calls.collect::<Vec<_>>()).await {
        guids.push(call.unwrap());
    }
    // On a thread that knows no runtime.
    let thread = std::thread::spawn({
        let shop = shop.clone();
        move || shop.print("a bug").unwrap_err().guid()
    });
    let bug = tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
    // On the only thread of one. A file has a thread of its own; a server may need this one.
    let alone = tokio::task::spawn_blocking({
        let shop = shop.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async { shop.print("alone").unwrap_err() })
        }
    });
    match alone.await.unwrap() {
        alone if place.is_sqlite() => guids.push(alone.guid()),
        alone => assert!(alone.reason().starts_with("a runtime of one thread cannot wait")),
    }
    let running =
        worker(&shop.journal).max_attempts(2).with(ungated(Shop::print_deferred(shop.clone()))).start();
    for guid in &guids {
        let printed = result(&shop.journal, guid).await;
        assert!(printed.starts_with("\"IN A TASK") || printed == "\"ALONE\"", "{printed}");
    }
    let record = end(&shop.journal, &bug).await;
    assert_eq!((record.status, record.attempts), (Status::Failed, 2));
    assert!(record.last_error.unwrap().contains("the handler panicked: assertion"));
    running.stop().await;
}

async fn methods_of_every_kind_are_replayed_on_what_the_worker_was_given(place: &Place) {
    let shop = Shop::new(place.journal().await);
    shop.clone().in_an_arc(1).await.unwrap();
    let arc = shop.clone().in_an_arc(2).await.unwrap_err().guid();
    // Two types of one generic block do not run each other's calls.
    let numbers = Desk::new(&shop.limiter, &shop.journal, 7_u8);
    let words = Desk::new(&shop.limiter, &shop.journal, "till");
    numbers.sell("tea".to_owned()).await.unwrap();
    let first = numbers.sell("tea".to_owned()).await.unwrap_err().guid();
    let second = words.sell("tea".to_owned()).await.unwrap_err().guid();
    worker(&shop.journal)
        .with(ungated(Shop::in_an_arc_deferred(shop.clone())))
        .with(ungated(Desk::sell_deferred(numbers)))
        .with(ungated(Desk::sell_deferred(words)))
        .run_once()
        .await
        .unwrap();
    assert_eq!(result(&shop.journal, &arc).await, "2");
    assert_eq!(result(&shop.journal, &first).await, r#""tea at 7""#);
    assert_eq!(result(&shop.journal, &second).await, r#""tea at \"till\"""#);
}

/// One test, as a process has one of each.
#[test]
fn functions_use_the_journal_and_the_limiter_of_the_process() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        notify("ann", 1).await.unwrap();
        sweep().unwrap();
        let reason = notify("ann", 2).await.unwrap_err().reason();
        assert_eq!(
            reason,
            "there is no journal to record it: call `Journal::set_global` first, or write `defer(journal = ...)`"
        );
        let journal = place.journal().await;
        assert!(Journal::global().is_none());
        Journal::set_global(journal.clone()).unwrap();
        assert!(Journal::set_global(journal.clone()).is_err(), "once");
        let deferred = notify("ann", 2).await.unwrap_err();
        let told = deferred.to_string();
        let guid = deferred.guid();
        assert_eq!(told, format!("deferred as {guid}"));
        let record = journal.find(&guid).await.unwrap().unwrap();
        assert_eq!(record.method.as_deref(), Some("journal::shop::notify"));
        assert_eq!(record.params, r#"{"user":"ann","times":2}"#);
        let swept = sweep().unwrap_err().guid();
        assert_eq!(journal.find(&swept).await.unwrap().unwrap().params, "{}");
        let running =
            worker(&journal).with(ungated(notify_deferred())).with(ungated(sweep_deferred())).start();
        assert_eq!(result(&journal, &guid).await, r#""ann 2""#);
        assert_eq!(result(&journal, &swept).await, "null");
        running.stop().await;
    });
}
