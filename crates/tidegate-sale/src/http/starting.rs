//! Answers while a sale starts: the port is bound, and what the sale runs on does not answer yet.

use super::answer;
use super::lang::Lang;
use crate::refusal::Refusal;
use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use std::sync::{Arc, OnceLock};
use tower_service::Service as _;

/// Routes that begin later. Until then everybody is told to come back (50302), `/readyz` too;
/// `/livez` says that the process answers.
#[derive(Clone, Debug, Default)]
pub struct Starting {
    routes: Arc<OnceLock<Router>>,
}

impl Starting {
    /// What to serve from the beginning.
    pub fn router(&self) -> Router {
        let routes = Arc::clone(&self.routes);
        Router::new().fallback(move |request| respond(Arc::clone(&routes), request))
    }

    /// From now on these answer. Only the first call counts.
    pub fn begin(&self, routes: Router) {
        let _ = self.routes.set(routes);
    }
}

async fn respond(routes: Arc<OnceLock<Router>>, request: Request) -> Response {
    let lang = Lang::of(request.headers());
    match routes.get() {
        Some(routes) => routes.clone().call(request).await.unwrap_or_else(|never| match never {}),
        None if request.uri().path() == "/livez" => answer::ok((), lang),
        None => answer::refused(&Refusal::Busy, lang),
    }
}
