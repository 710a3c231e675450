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
    let mut all = request.headers().get_all(AUTHORIZATION).iter();
    if let Some(shown) = all.next() {
        let known = TOKENS.iter().find(|(token, _)| shown == token);
        // Of two tokens a proxy in front may have checked the other one.
        let (_, user) = known.filter(|_| all.next().is_none()).ok_or(StatusCode::UNAUTHORIZED)?;
        request.extensions_mut().insert(User::new(*user));
    }
    Ok(next.run(request).await)
}
