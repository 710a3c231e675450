//! Extractors for axum.
//!
//! [`Decided`] has what the layer decided. [`Admitted`] decides itself, with a guard from the app's
//! state, for handlers that are guarded one by one. A [`Refusal`] that a handler returns becomes the
//! same response as the guard's.

use crate::http::extension::Decided;
use crate::http::facts::RequestFacts;
use crate::http::future::Admission;
use crate::http::guard::Guard;
use crate::http::response::headers::retry_after_seconds;
use crate::http::response::{forbid_caching, problem_of};
use crate::refusal::Refusal;
use crate::rules::Outcome;
use axum_core::body::Body;
use axum_core::extract::{FromRef, FromRequestParts, OptionalFromRequestParts};
use axum_core::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use http::HeaderValue;
use http::header::RETRY_AFTER;
use http::request::Parts;
use std::convert::Infallible;

/// A handler has the extractor [`Decided`], but no guard has put it into the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no `Decided` in the request's extensions: add `.layer(guard.layer())` to the route, and \
     `.decided_extension()` to the guard"
)]
#[non_exhaustive]
pub struct NotGuarded;

impl IntoResponse for NotGuarded {
    fn into_response(self) -> Response {
        // A fault of the program: for its log, not for its clients.
        tracing::error!(target: "tidegate::rules", "{self}");
        http::StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for Decided {
    type Rejection = NotGuarded;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NotGuarded> {
        parts.extensions.get().cloned().ok_or(NotGuarded)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Decided {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

/// A request that a guard from the app's state has let through. A refused request gets the guard's
/// response, and the handler does not run.
///
/// ```
/// use axum::{Router, extract::FromRef, routing::get};
/// use tidegate::http::{Admitted, Guard};
/// use tidegate::rules::Rule;
///
/// #[derive(Clone)]
/// struct App {
///     guard: Guard,
/// }
///
/// impl FromRef<App> for Guard {
///     fn from_ref(app: &App) -> Guard {
///         app.guard.clone()
///     }
/// }
///
/// async fn search(admitted: Admitted) -> (Admitted, &'static str) {
///     (admitted, "found") // with the RateLimit fields
/// }
///
/// let limiter = tidegate::Limiter::new();
/// let guard = Guard::new(&limiter).rule(Rule::new("search", "5/s").by("ip")).build()?;
/// let app: Router = Router::new().route("/search", get(search)).with_state(App { guard });
/// # Ok::<(), tidegate::rules::RulesError>(())
/// ```
///
/// It holds the slots of concurrency limits until it is dropped or returned: where they have to be
/// held until the body has ended, use the layer. Rules with `json:` parts and
/// the caller's scope need the layers, too.
#[derive(Debug)]
#[must_use = "slots of a concurrency limit are given back as soon as it is dropped"]
pub struct Admitted {
    admission: Admission,
}

impl Admitted {
    /// What was decided; `None` without `decided_extension`.
    pub fn decided(&self) -> Option<&Decided> {
        self.admission.decided.as_deref()
    }
}

impl<S> FromRequestParts<S> for Admitted
where
    S: Send + Sync,
    Guard: FromRef<S>,
{
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let guard = Guard::from_ref(state);
        // The facts must not be held across the await.
        let decided = guard.decide(&RequestFacts::of_parts(parts, &guard.options.sources));
        decided.await.map(|admission| Self { admission }).map_err(|response| response.map(Body::from))
    }
}

/// Adds the `RateLimit` fields to the response.
impl IntoResponseParts for Admitted {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        if let Some(fields) = self.admission.fields {
            fields.add_to(parts.headers_mut());
        }
        Ok(parts)
    }
}

/// For handlers, and functions below them, that are limited one by one (`#[limited]`): 429
/// as `application/problem+json` with `Retry-After`, 503 if the store does not respond or is full,
/// 400 if the caller is not known but has to be. No cache may store it, and its sentence is
/// [`Refusal::for_client`].
///
/// ```
/// # #[cfg(feature = "macros")] {
/// use axum::{Router, routing::get};
/// use tidegate::{Refusal, limited};
///
/// #[limited("5/min", by = ip)]
/// async fn export() -> Result<String, Refusal> {
///     Ok("id;name".into())
/// }
///
/// let app: Router = Router::new().route("/export", get(export));
/// # }
/// ```
impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let outcome = Outcome::of_denied(self.decision());
        let mut response = problem_of(outcome, &self.for_client().to_string(), std::iter::once(self.gate()));
        if let Some(after) = self.retry_after() {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after_seconds(after)));
        }
        forbid_caching(response.headers_mut());
        response.map(Body::from)
    }
}
