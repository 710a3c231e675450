//! The response to a refused request, which no cache may store.

pub(crate) mod base64;
pub(crate) mod fields;
pub(crate) mod grpc;
pub(crate) mod headers;

use crate::decision::Decision;
use crate::http::guard::HttpOptions;
use crate::http::response::fields::Fields;
use crate::http::response::headers::{Headers, retry_after_seconds};
use crate::key::Key;
use crate::rules::{Outcome, Record, Ruling};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use smallvec::SmallVec;
use std::fmt;
use std::time::Duration;

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// A refused request, for a renderer. Its text is the sentence for the client: without the
/// key, and without saying that there is a deny list, unless the rule
/// [shows its keys](crate::rules::Rule::show_keys).
#[derive(Debug)]
pub struct Refused<'a> {
    records: Vec<Record<'a>>,
    binding: Record<'a>,
    /// The time until a retry as the response states it, with jitter.
    pub(crate) stated_after: Option<Duration>,
}

impl<'a> Refused<'a> {
    fn new(ruling: &'a Ruling, headers: &Headers) -> Self {
        // Of rules in force: those whose limits were decided, or that refused without.
        let counts = |record: &Record<'a>| {
            !record.is_shadow() && (record.decision().is_some() || record.outcome().is_refusal())
        };
        let records: Vec<Record<'a>> = ruling.records().filter(counts).collect();
        let binding = ruling.binding().expect("a refused request has a record that refuses it");
        let retry_after = binding.decision().and_then(Decision::retry_after);
        Self { records, binding, stated_after: retry_after.map(|after| headers.stated_after(after)) }
    }

    /// The record that binds: of several refusals the one that lasts longest, as far as that is
    /// known.
    pub fn record(&self) -> &Record<'a> {
        &self.binding
    }

    /// The verdicts of all rules that apply, in their order.
    pub fn records(&self) -> &[Record<'a>] {
        &self.records
    }

    /// The rule that refused; empty if it was the guard's own deny list.
    pub fn rule(&self) -> &'a str {
        self.binding.rule()
    }

    /// The key, if the rule found one, as in [`Record::key`]. It is in no response unless the
    /// renderer puts it there.
    pub fn key(&self) -> Option<Key<'a>> {
        self.binding.key()
    }

    /// Why the request was refused.
    pub fn outcome(&self) -> Outcome {
        self.binding.outcome()
    }

    /// The time after which the request would fit, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.binding.decision().and_then(Decision::retry_after)
    }

    /// The value of `Retry-After`: whole seconds, rounded up, with jitter.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.stated_after.map(retry_after_seconds)
    }

    /// True if the store did not respond, or has no room for another key: a fault of the service,
    /// not of the client.
    pub fn is_unavailable(&self) -> bool {
        self.outcome() == Outcome::Unavailable
    }

    /// The names of the policies that refused.
    pub fn violated(&self) -> impl Iterator<Item = &'a str> {
        let refuses = |record: &&Record<'a>| record.outcome().is_refusal() && !record.policy().is_empty();
        self.records.iter().filter(refuses).map(Record::policy)
    }

    /// The status for the outcome: 429 for a limit, 503 if the store does not respond or is full, 403
    /// for a deny list, 400 if the key is missing or ambiguous, 408 if the body is too slow.
    pub fn status(&self) -> StatusCode {
        status(self.outcome())
    }
}

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.record().for_client().fmt(f)
    }
}

/// Makes the response to a refused request. Any function from `&Refused` to a response
/// implements it.
///
/// `Retry-After` and the `RateLimit` fields are added afterwards, unless it has set them, and
/// `Cache-Control: no-store` replaces any other `Cache-Control`: a cached refusal would refuse all
/// clients. With [`GuardBuilder::grpc`](crate::http::GuardBuilder::grpc), gRPC requests are not
/// rendered here: they have responses of their own.
///
/// ```
/// use tidegate::http::{Guard, Refused};
/// use tidegate::rules::Rule;
///
/// fn in_house(refused: &Refused<'_>) -> http::Response<bytes::Bytes> {
///     let status = refused.status();
///     let message = refused.to_string();
///     let body = serde_json::json!({"code": status.as_u16(), "message": message, "data": null});
///     let mut response = http::Response::new(body.to_string().into());
///     *response.status_mut() = status;
///     response
/// }
///
/// let limiter = tidegate::Limiter::new();
/// let guard = Guard::new(&limiter).rule(Rule::new("all", "1000/s").by("ip")).render(in_house).build()?;
/// # Ok::<(), tidegate::rules::RulesError>(())
/// ```
pub trait Render: Send + Sync + 'static {
    /// The response.
    fn render(&self, refused: &Refused<'_>) -> Response<Bytes>;
}

impl<F: Fn(&Refused<'_>) -> Response<Bytes> + Send + Sync + 'static> Render for F {
    fn render(&self, refused: &Refused<'_>) -> Response<Bytes> {
        self(refused)
    }
}

fn status(outcome: Outcome) -> StatusCode {
    match outcome {
        Outcome::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Outcome::Listed => StatusCode::FORBIDDEN,
        Outcome::Incomplete | Outcome::Ambiguous => StatusCode::BAD_REQUEST,
        Outcome::SlowBody => StatusCode::REQUEST_TIMEOUT,
        _ => StatusCode::TOO_MANY_REQUESTS,
    }
}

/// RFC 9457 `application/problem+json`: the default.
pub(crate) fn problem(refused: &Refused<'_>) -> Response<Bytes> {
    problem_of(refused.outcome(), &refused.to_string(), refused.violated())
}

/// The same from its parts: the outcome, the sentence, and the policies that refused.
pub(crate) fn problem_of<'a>(
    outcome: Outcome,
    detail: &str,
    violated: impl Iterator<Item = &'a str>,
) -> Response<Bytes> {
    let status = status(outcome);
    let (kind, title) = match status {
        StatusCode::TOO_MANY_REQUESTS => {
            (QUOTA_EXCEEDED, "Request cannot be satisfied as assigned quota has been exceeded")
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            (REDUCED_CAPACITY, "Request cannot be satisfied due to temporary server capacity constraints")
        }
        other => ("about:blank", other.canonical_reason().unwrap_or_default()),
    };
    let mut problem = serde_json::json!({
        "type": kind,
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    });
    if kind == QUOTA_EXCEEDED {
        problem["violated-policies"] = violated.collect();
    }
    let mut response = Response::new(Bytes::from(problem.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

/// Forbids caches to store a response, also if it has another `Cache-Control`.
pub(crate) fn forbid_caching(headers: &mut HeaderMap) {
    let is_no_store = |directive: &[u8]| directive.trim_ascii().eq_ignore_ascii_case(b"no-store");
    let forbids = |line: &HeaderValue| line.as_bytes().split(|byte| *byte == b',').any(is_no_store);
    if !headers.get_all(CACHE_CONTROL).iter().any(forbids) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

/// The form of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseForm {
    Http,
    /// The same, for a CORS preflight.
    Preflight,
    /// gRPC with this content type.
    Grpc(&'static str),
}

/// The whole response to a refused request: rendered, with its header fields.
pub(crate) fn whole(options: &HttpOptions, ruling: &Ruling, form: ResponseForm) -> Response<Bytes> {
    let refused = Refused::new(ruling, &options.headers);
    let mut response = match form {
        ResponseForm::Grpc(content_type) => grpc::render(&refused, content_type),
        ResponseForm::Http | ResponseForm::Preflight => {
            let mut response = options.render.render(&refused);
            if let Some(seconds) = refused.retry_after_seconds() {
                response.headers_mut().entry(RETRY_AFTER).or_insert(HeaderValue::from(seconds));
            }
            response
        }
    };
    // Policies that would have let it through were not charged, so they have more left than they
    // decided.
    let refusals = refused.records.iter().filter(|record| record.outcome().is_refusal());
    let refusals: SmallVec<[Record<'_>; 2]> = refusals.copied().collect();
    if let Some(fields) = Fields::of(&options.headers, &refusals) {
        fields.add_to(response.headers_mut());
    }
    forbid_caching(response.headers_mut());
    response
}
