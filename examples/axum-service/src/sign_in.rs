//! A STAND-IN for authentication: two tokens in the source. Put your own here.
//!
//! What matters to the guard is the last step: a [`User`] in the request's extensions, and
//! only after it is known who that is.

use axum::extract::Request;
use axum::http::{StatusCode, header::AUTHORIZATION};
use axum::middleware::Next;
use axum::response::Response;
use tidegate::User;

const TOKENS: [(&str, &str); 2] = [("Bearer ann-secret", "ann"), ("Bearer bob-secret", "bob")];

/// Whoever shows a token is its user. Whoever shows none goes on as nobody, and whoever
/// shows a wrong one goes no further.
pub(crate) async fn sign_in(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    if let Some(shown) = request.headers().get(AUTHORIZATION) {
        let known = TOKENS.iter().find(|(token, _)| shown == token);
        let (_, user) = known.ok_or(StatusCode::UNAUTHORIZED)?;
        request.extensions_mut().insert(User::new(*user));
    }
    Ok(next.run(request).await)
}
