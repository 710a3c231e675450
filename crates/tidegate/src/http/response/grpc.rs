//! Which requests are gRPC, and a refusal in gRPC: trailers only, with a status and the time until
//! a retry.
//!
//! The messages (`google.rpc.Status`, `google.rpc.RetryInfo` and their parts) are encoded by hand:
//! a few bytes are no reason for a protobuf library.

use crate::http::facts::RequestFacts;
use crate::http::response::Refused;
use crate::http::response::base64;
use crate::http::text;
use crate::refusal::Refusal;
use crate::rules::{Fact, Facts, Outcome};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Response, Version};
use std::time::Duration;

const INVALID_ARGUMENT: u8 = 3;
const PERMISSION_DENIED: u8 = 7;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNAVAILABLE: u8 = 14;

const GRPC: &str = "application/grpc";

/// Content types of responses. For gRPC-Web it is the type of the request, because its clients
/// decode the body by the type of the response.
const TYPES: [&str; 7] = [
    GRPC,
    "application/grpc-web",
    "application/grpc-web+proto",
    "application/grpc-web+json",
    "application/grpc-web-text",
    "application/grpc-web-text+proto",
    "application/grpc-web-text+json",
];

/// The content type of the response to a gRPC request; none if the request is not one.
///
/// gRPC is POST over HTTP/2, gRPC-Web is POST over any version. A type that only begins like
/// one of theirs (`application/grpcfoo`) is another type, and two types count as none.
pub(crate) fn response_type(facts: &RequestFacts<'_>) -> Option<&'static str> {
    let Fact::Found(kind) = text::header(facts.headers(), CONTENT_TYPE) else { return None };
    if facts.method() != Some(Method::POST.as_str()) {
        return None;
    }
    let known = |kind: &[u8]| TYPES.into_iter().find(|known| kind.eq_ignore_ascii_case(known.as_bytes()));
    let kind = kind.split(|byte| *byte == b';').next()?.trim_ascii();
    let without_format = kind.split(|byte| *byte == b'+').next()?;
    match known(without_format)? {
        GRPC => (facts.version() == Version::HTTP_2).then_some(GRPC),
        web => Some(known(kind).unwrap_or(web)),
    }
}

/// A refusal in gRPC: a code, a sentence, and as details a `google.rpc.Status` with a
/// `RetryInfo`. For handlers whose refusals are not the guard's own, such as those under
/// `#[limited]`; it fits `tonic::Status::with_details` without a dependency on tonic.
///
/// ```
/// # mod tonic {
/// #     pub struct Status(i32);
/// #     impl Status {
/// #         pub fn with_details(code: i32, _: impl Into<String>, _: bytes::Bytes) -> Self { Self(code) }
/// #     }
/// # }
/// use tidegate::Refusal;
/// use tidegate::http::GrpcStatus;
///
/// fn refused(refusal: &Refusal) -> tonic::Status {
///     let status = GrpcStatus::new(refusal);
///     tonic::Status::with_details(status.code().into(), status.message(), status.details())
/// }
/// # let limiter = tidegate::Limiter::new();
/// # let gate = limiter.gate("export", "1/day")?;
/// # gate.reserve("ann").into_permit()?;
/// # let _ = refused(&gate.reserve("ann").into_permit().unwrap_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcStatus {
    code: u8,
    message: String,
    details: Bytes,
}

impl GrpcStatus {
    /// The status of this refusal. Its message is [`Refusal::for_client`]: without the key.
    pub fn new(refusal: &Refusal) -> Self {
        let message = refusal.for_client().to_string();
        Self::of(Outcome::of_denied(refusal.decision()), message, refusal.retry_after())
    }

    fn of(outcome: Outcome, message: String, retry_after: Option<Duration>) -> Self {
        let code = match outcome {
            Outcome::Unavailable => UNAVAILABLE,
            Outcome::Listed => PERMISSION_DENIED,
            Outcome::Incomplete | Outcome::Ambiguous => INVALID_ARGUMENT,
            _ => RESOURCE_EXHAUSTED,
        };
        let details = status(code, &message, retry_after).into();
        Self { code, message, details }
    }

    /// 8 (`RESOURCE_EXHAUSTED`) for a limit, 14 (`UNAVAILABLE`) if the store does not respond or is
    /// full, 3 (`INVALID_ARGUMENT`) if the caller is not known but has to be.
    pub fn code(&self) -> i32 {
        i32::from(self.code)
    }

    /// The sentence that explains it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The bytes of `grpc-status-details-bin`, before base64.
    pub fn details(&self) -> Bytes {
        self.details.clone()
    }
}

/// 200 without a body, as gRPC requires; the status is in the header fields.
pub(crate) fn render(refused: &Refused<'_>, kind: &'static str) -> Response<Bytes> {
    let status = GrpcStatus::of(refused.outcome(), refused.to_string(), refused.stated_after);
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert("grpc-status", HeaderValue::from(u16::from(status.code)));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(&status.message)) {
        headers.insert("grpc-message", message);
    }
    if let Ok(details) = HeaderValue::try_from(base64::encode(&status.details, false)) {
        headers.insert("grpc-status-details-bin", details);
    }
    response
}

/// Encodes a `grpc-message`: printable ASCII without `%` as it is, all else percent-encoded.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// `google.rpc.Status` with one detail, `google.rpc.RetryInfo`, where there is one.
fn status(code: u8, message: &str, retry_after: Option<Duration>) -> Vec<u8> {
    let details = retry_after.map(|after| {
        let duration = [number(1, after.as_secs()), number(2, after.subsec_nanos().into())].concat();
        let retry_info = bytes(1, &duration);
        bytes(3, &[bytes(1, b"type.googleapis.com/google.rpc.RetryInfo"), bytes(2, &retry_info)].concat())
    });
    [number(1, code.into()), bytes(2, message.as_bytes()), details.unwrap_or_default()].concat()
}

fn number(field: u8, number: u64) -> Vec<u8> {
    // In protobuf, a zero is not written.
    if number == 0 { Vec::new() } else { [vec![field << 3], varint(number)].concat() }
}

fn bytes(field: u8, bytes: &[u8]) -> Vec<u8> {
    [&[field << 3 | 2][..], &varint(bytes.len() as u64), bytes].concat()
}

fn varint(mut rest: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while rest > 0x7f {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out
}
