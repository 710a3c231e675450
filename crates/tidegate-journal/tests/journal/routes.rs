//! The router, as strangers with a guid see it.

use crate::place::{Place, call, worker};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tidegate_journal::{JobError, Journal, router};
use tower::ServiceExt as _;

on_both! {
    status_wait_and_cancel_by_guid,
}

async fn ask(journal: &Journal, method: Method, path: &str) -> (StatusCode, String, Value) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let response = router(journal.clone()).oneshot(request).await.unwrap();
    let status = response.status();
    // A status that a cache kept would never change.
    assert_eq!(response.headers()["cache-control"], "no-store", "{path}");
    let kind = response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, kind.unwrap_or_default(), serde_json::from_slice(&body).unwrap_or_default())
}

async fn status_wait_and_cancel_by_guid(place: &Place) {
    let journal = place.journal().await;
    let guid = journal.defer(call("ship", "a secret").key("another secret")).await.unwrap();
    let (status, kind, body) = ask(&journal, Method::GET, &format!("/{guid}")).await;
    assert_eq!(
        (status, kind.as_str(), &body["status"]),
        (StatusCode::OK, "application/json", &"pending".into())
    );
    assert!(!body.to_string().contains("secret"), "{body}");
    let (_, _, body) = ask(&journal, Method::GET, &format!("/{guid}/wait?seconds=0")).await;
    assert_eq!(body["status"], "pending");
    let waiting = {
        let (journal, path) = (journal.clone(), format!("/{guid}/wait"));
        tokio::spawn(async move { ask(&journal, Method::GET, &path).await })
    };
    let ship = |_: String| async { Err::<(), _>(JobError::permanent("the secret service is down")) };
    worker(&journal).on("ship", ship).run_once().await.unwrap();
    let (status, _, body) = waiting.await.unwrap();
    assert_eq!((status, &body["status"], &body["attempts"]), (StatusCode::OK, &"failed".into(), &1.into()));
    assert!(!body.to_string().contains("secret"), "{body}");
    let (status, _, _) = ask(&journal, Method::POST, &format!("/{guid}/cancel")).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let done = journal.defer(call("add", [1, 2])).await.unwrap();
    let add = |[a, b]: [u32; 2]| async move { Ok::<_, JobError>(serde_json::json!({ "sum": a + b })) };
    worker(&journal).on("add", add).run_once().await.unwrap();
    assert_eq!(ask(&journal, Method::GET, &format!("/{done}")).await.2["result"]["sum"], 3);
    let other = journal.defer(call("ship", 1)).await.unwrap();
    let (status, _, body) = ask(&journal, Method::POST, &format!("/{other}/cancel")).await;
    assert_eq!((status, &body["status"]), (StatusCode::OK, &"cancelled".into()));
    for unknown in ["0190f3a2b4c87d1e8f00112233445566", "x", "%27%3B", &"a".repeat(500)] {
        for path in [format!("/{unknown}"), format!("/{unknown}/wait")] {
            let (status, kind, _) = ask(&journal, Method::GET, &path).await;
            assert_eq!(
                (status, kind.as_str()),
                (StatusCode::NOT_FOUND, "application/problem+json"),
                "{path}"
            );
        }
        let (status, _, _) = ask(&journal, Method::POST, &format!("/{unknown}/cancel")).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
    let (status, _, _) = ask(&journal, Method::GET, &format!("/{guid}/cancel")).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
}
