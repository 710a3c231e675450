//! A router for those who hold a guid: its status, a wait for its end, a wish to cancel it.
//!
//! Mount it behind whatever decides who may ask: a guid cannot be guessed, but whoever has it
//! may cancel. Parameters, idempotency keys and reasons of failures are never shown.

use crate::{Cancelled, Guid, Journal, JournalError, Record, Status};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

/// Nobody is kept waiting for longer than this in one request.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// `GET /{guid}`, `GET /{guid}/wait?seconds=10` (at most 30), `POST /{guid}/cancel`. Every
/// answer is `Cache-Control: no-store`: a status that a cache kept would never change.
///
/// ```
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate_journal::{Journal, router};
///
/// let journal = Journal::sqlite("calls.db").await?;
/// let app: axum::Router = axum::Router::new().nest("/deferred", router(journal));
/// # Ok(()) }
/// ```
pub fn router(journal: Journal) -> Router {
    Router::new()
        .route("/{guid}", get(status))
        .route("/{guid}/wait", get(wait))
        .route("/{guid}/cancel", post(cancel))
        .layer(map_response(forbid_caching))
        .with_state(journal)
}

async fn forbid_caching(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn status(State(journal): State<Journal>, Path(guid): Path<String>) -> Result<Json<Shown>, Problem> {
    let guid = known(&guid)?;
    Ok(Json(Shown::of(journal.find(&guid).await?.ok_or(Problem::Unknown)?)))
}

#[derive(Deserialize)]
struct Wait {
    seconds: Option<u64>,
}

async fn wait(
    State(journal): State<Journal>,
    Path(guid): Path<String>,
    Query(wait): Query<Wait>,
) -> Result<Json<Shown>, Problem> {
    let guid = known(&guid)?;
    let at_most = wait.seconds.map_or(WAIT_MAX, Duration::from_secs).min(WAIT_MAX);
    Ok(Json(Shown::of(journal.wait(&guid, at_most).await?.ok_or(Problem::Unknown)?)))
}

async fn cancel(State(journal): State<Journal>, Path(guid): Path<String>) -> Result<Response, Problem> {
    let guid = known(&guid)?;
    let status = match journal.cancel(&guid).await? {
        Cancelled::Pending | Cancelled::Running => StatusCode::OK,
        Cancelled::AlreadyEnded(_) => StatusCode::CONFLICT,
        Cancelled::Unknown => return Err(Problem::Unknown),
    };
    let record = journal.find(&guid).await?.ok_or(Problem::Unknown)?;
    Ok((status, Json(Shown::of(record))).into_response())
}

/// What cannot be a guid is not known either.
fn known(text: &str) -> Result<Guid, Problem> {
    text.parse().map_err(|_| Problem::Unknown)
}

/// What strangers may see of a record.
#[derive(Serialize)]
struct Shown {
    guid: Guid,
    status: Status,
    attempts: u32,
    /// Seconds since 1970.
    create_time: f64,
    update_time: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<serde_json::Value>,
}

impl Shown {
    fn of(record: Record) -> Self {
        let seconds =
            |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Self {
            create_time: seconds(record.create_time),
            update_time: seconds(record.update_time),
            result: record.result.and_then(|json| serde_json::from_str(&json).ok()),
            guid: record.guid,
            status: record.status,
            attempts: record.attempts,
        }
    }
}

enum Problem {
    Unknown,
    Database(JournalError),
}

impl From<JournalError> for Problem {
    fn from(error: JournalError) -> Self {
        Self::Database(error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, title) = match self {
            Self::Unknown => (StatusCode::NOT_FOUND, "no such record, or no longer"),
            Self::Database(error) => {
                // What the database said is for its operators.
                tracing::error!("a record cannot be looked up: {error}");
                (StatusCode::SERVICE_UNAVAILABLE, "the journal cannot be asked now")
            }
        };
        let body = serde_json::json!({ "status": status.as_u16(), "title": title });
        (status, [(header::CONTENT_TYPE, "application/problem+json")], Json(body).0.to_string())
            .into_response()
    }
}
