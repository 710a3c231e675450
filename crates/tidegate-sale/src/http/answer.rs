//! Answers: `{code, message, data}`, never stored.

use super::lang::Lang;
use crate::refusal::Refusal;
use crate::time::now_ms;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;
use std::borrow::Cow;
use std::sync::LazyLock;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

#[derive(Serialize)]
struct Told<'a, T> {
    code: u32,
    message: &'a str,
    data: T,
}

/// What was asked for.
pub(super) fn ok(data: impl Serialize, lang: Lang) -> Response {
    let message = if lang == Lang::Zh { "成功" } else { "ok" };
    answer(StatusCode::OK, body(&Told { code: 200, message, data }))
}

/// Nearly every answer of a sale, once it is sold out.
static SOLD_OUT: LazyLock<[Bytes; 2]> =
    LazyLock::new(|| [Lang::En, Lang::Zh].map(|lang| refused_body(&Refusal::SoldOut, lang, 0)));

/// Why not.
pub(super) fn refused(refusal: &Refusal, lang: Lang) -> Response {
    let now = now_ms();
    let body = match refusal {
        Refusal::SoldOut => SOLD_OUT[usize::from(lang == Lang::Zh)].clone(),
        _ => refused_body(refusal, lang, now),
    };
    let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = answer(status, body);
    if let Some(after) = refusal.retry_after(now) {
        // Rounded up: who comes back by it is not too early.
        let seconds = after.as_micros().div_ceil(1_000_000);
        let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

fn refused_body(refusal: &Refusal, lang: Lang, now: u64) -> Bytes {
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Data {
        Opens { opens_at: Option<u64>, now: u64 },
        Limited { retry_after_ms: u64, ahead: Option<u64> },
        Nothing,
    }
    let data = match refusal {
        Refusal::NotOpenYet { opens_at } => Data::Opens { opens_at: *opens_at, now },
        Refusal::Limited { retry_after, ahead } => {
            let ms = retry_after.as_micros().div_ceil(1000);
            Data::Limited { retry_after_ms: u64::try_from(ms).unwrap_or(u64::MAX), ahead: *ahead }
        }
        _ => Data::Nothing,
    };
    body(&Told { code: refusal.code(), message: &message(refusal, lang), data })
}

/// What is particular to this one stands behind what is the same for all, where that is
/// needed to know what it is about.
fn message(refusal: &Refusal, lang: Lang) -> Cow<'static, str> {
    let text = refusal.text();
    match (lang, refusal) {
        (Lang::En, Refusal::BadRequest(what) | Refusal::WrongState(what)) => what.clone(),
        (Lang::En, Refusal::Paused { reason }) => format!("{}: {reason}", text.en).into(),
        (
            Lang::Zh,
            Refusal::BadRequest(what) | Refusal::WrongState(what) | Refusal::Paused { reason: what },
        ) => format!("{}：{what}", text.zh).into(),
        (Lang::En, _) => text.en.into(),
        (Lang::Zh, _) => text.zh.into(),
    }
}

fn body(told: &Told<'_, impl Serialize>) -> Bytes {
    serde_json::to_vec(told).map_or_else(
        |error| {
            tracing::error!(target: "tidegate::sale", %error, "an answer cannot be written");
            Bytes::from_static(br#"{"code":50302,"message":"busy, try again","data":null}"#)
        },
        Bytes::from,
    )
}

fn answer(status: StatusCode, body: Bytes) -> Response {
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(CACHE_CONTROL, NO_STORE);
    answer
}

/// Nothing is there. Not one of the sale's refusals: no buyer's program asks for it.
pub(super) async fn no_such_route(request: Request) -> Response {
    let message = match Lang::of(request.headers()) {
        Lang::En => "no such address; see docs/sale.md",
        Lang::Zh => "地址不存在",
    };
    answer(StatusCode::NOT_FOUND, body(&Told { code: 40_400, message, data: () }))
}

/// Something is there, for other methods: axum says which in `Allow`.
pub(super) async fn no_such_method(request: Request) -> Response {
    method_not_allowed(Lang::of(request.headers()))
}

/// The same where a handler knows which.
pub(super) fn only_for(methods: &'static str, lang: Lang) -> Response {
    let mut answer = method_not_allowed(lang);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    answer
}

fn method_not_allowed(lang: Lang) -> Response {
    let message = match lang {
        Lang::En => "another method; the field `allow` says which",
        Lang::Zh => "请求方法不支持",
    };
    answer(StatusCode::METHOD_NOT_ALLOWED, body(&Told { code: 40_500, message, data: () }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn told(refusal: &Refusal, lang: Lang) -> (Response, serde_json::Value) {
        let body = refused_body(refusal, lang, 1_000);
        (refused(refusal, lang), serde_json::from_slice(&body).unwrap())
    }

    #[test]
    fn times_to_come_back_are_rounded_up() {
        let limited = |us| Refusal::Limited { retry_after: Duration::from_micros(us), ahead: Some(7) };
        for (us, seconds, ms) in
            [(1, "1", 1), (1_000, "1", 1), (1_000_000, "1", 1_000), (1_000_001, "2", 1_001)]
        {
            let (answer, told) = told(&limited(us), Lang::En);
            assert_eq!(
                (answer.headers()["retry-after"].to_str().unwrap(), &told["data"]),
                (seconds, &serde_json::json!({ "retry_after_ms": ms, "ahead": 7 }))
            );
        }
    }

    #[test]
    fn the_particular_is_said_in_both_languages() {
        let bad = Refusal::BadRequest("`goodsId`: missing".into());
        assert_eq!(told(&bad, Lang::En).1["message"], "`goodsId`: missing");
        assert_eq!(told(&bad, Lang::Zh).1["message"], "请求参数错误：`goodsId`: missing");
        let paused = Refusal::Paused { reason: "a \"look\"\u{1}".into() };
        assert_eq!(told(&paused, Lang::En).1["message"], "paused: a \"look\"\u{1}");
        assert_eq!(told(&Refusal::SoldOut, Lang::Zh).1["message"], "已售罄");
        let early = Refusal::NotOpenYet { opens_at: Some(5_000) };
        assert_eq!(told(&early, Lang::En).1["data"], serde_json::json!({"opens_at": 5_000, "now": 1_000}));
    }
}
