//! An order as server-sent events.

use crate::client::{Client, status};
use crate::place::{Place, phones};
use serde_json::Value;

/// Begins to watch, and returns the connection behind the answer's head.
async fn watch(place: &Place, name: &str, sn: &str) -> Client {
    let mut client = place.client().await;
    let (auth, what) = (place.bearer(name), format!("GET /orders/{sn}"));
    client.send(&what, &[("authorization", &auth), ("accept", "text/event-stream")], "").await;
    let head = client.head().await;
    assert_eq!(status(&head), 200, "{head}");
    assert!(head.to_lowercase().contains("content-type: text/event-stream"), "{head}");
    assert!(head.to_lowercase().contains("cache-control: no-store"), "{head}");
    client
}

/// The next event's order; none at the end of the stream.
async fn next(client: &mut Client) -> Option<Value> {
    loop {
        let line = client.until(b"\n").await?;
        if line.trim() == "event: order" {
            let data = client.until(b"\n").await?;
            return Some(serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap());
        }
        if line == "0\r\n" {
            return None;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_tells_each_state_until_the_last() {
    let place = Place::open(phones(10)).await;
    let sn = place.buy("ann").await;
    let mut stream = watch(&place, "ann", &sn).await;
    let mut states = Vec::new();
    while states.last().is_none_or(|state| state != "placed") {
        let order = next(&mut stream).await.unwrap();
        assert_eq!(order["order_sn"], sn);
        states.push(order["state"].as_str().unwrap().to_owned());
    }
    place.admin(&format!("POST /orders/{sn}/pay"), "").await.expect(200);
    assert_eq!(next(&mut stream).await.unwrap()["state"], "paid");
    assert_eq!(next(&mut stream).await, None, "nothing changes it any more");
    let mut again = watch(&place, "ann", &sn).await;
    assert_eq!(next(&mut again).await.unwrap()["state"], "paid");
    assert_eq!(next(&mut again).await, None);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_so_many_watch_and_who_leaves_makes_room() {
    let place = Place::with(|builder| builder.user_limit(None), |http| http.streams(1)).await;
    place.begin(phones(10)).await;
    let sn = place.buy("ann").await;
    place.until_order("ann", &sn, "placed").await;
    let stream = watch(&place, "ann", &sn).await;
    let auth = place.bearer("ann");
    let fields = [("authorization", auth.as_str()), ("accept", "text/event-stream")];
    let what = format!("GET /orders/{sn}");
    let told = place.client().await.ask(&what, &fields, "").await.expect(50_302);
    assert_eq!(told.field("retry-after"), Some("1"));
    drop(stream);
    place
        .until("there is room", async || {
            let mut client = place.client().await;
            client.send(&what, &fields, "").await;
            status(&client.head().await) == 200
        })
        .await;
    place.end().await;
}

/// It is the user's own limit, and no fault of the service: a page that was told 503 would count
/// the sale as broken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ninth_stream_of_one_user_is_too_many_and_not_a_fault() {
    let place = Place::open(phones(10)).await;
    let sn = place.buy("ann").await;
    place.until_order("ann", &sn, "placed").await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        streams.push(watch(&place, "ann", &sn).await);
    }
    let auth = place.bearer("ann");
    let fields = [("authorization", auth.as_str()), ("accept", "text/event-stream")];
    let told = place.client().await.ask(&format!("GET /orders/{sn}"), &fields, "").await.expect(42_901);
    assert_eq!(told.field("retry-after"), Some("5"));
    drop(streams);
    place.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anothers_order_is_not_watched_and_the_end_ends_streams() {
    let place = Place::open(phones(10)).await;
    let sn = place.buy("ann").await;
    place.until_order("ann", &sn, "placed").await;
    let auth = place.bearer("bob");
    let fields = [("authorization", auth.as_str()), ("accept", "text/event-stream")];
    place.client().await.ask(&format!("GET /orders/{sn}"), &fields, "").await.expect(40_403);
    let mut stream = watch(&place, "ann", &sn).await;
    assert_eq!(next(&mut stream).await.unwrap()["state"], "placed");
    place.end().await;
    assert_eq!(next(&mut stream).await, None);
}
