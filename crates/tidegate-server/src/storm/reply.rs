//! One answer of a server, read from bytes as they come.
//!
//! Only what a small JSON service sends: a length, no chunks, nothing after the body. Whatever
//! else arrives is a [`Fault`] and ends the connection, never the program.

use std::ops::Range;

/// A longer head is not read on.
pub(super) const HEAD_MAX: usize = 16 * 1024;
/// A longer body is not read at all.
pub(super) const BODY_MAX: usize = 64 * 1024;
const FIELDS_MAX: usize = 48;

/// Why a request got no answer that could be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// No connection.
    Connect,
    /// The connection ended before the answer did.
    Closed,
    /// The system says so.
    Io,
    /// No answer in time.
    Timeout,
    /// Not HTTP, or more of it than is read here.
    Malformed,
    /// Longer than the bounds.
    TooLong,
}

impl Fault {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Connect => "no connection",
            Self::Closed => "closed early",
            Self::Io => "input or output failed",
            Self::Timeout => "no answer in time",
            Self::Malformed => "answer not understood",
            Self::TooLong => "answer too long",
        }
    }
}

/// The head of an answer, and where its body is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// In seconds, where it was said so.
    pub(super) retry_after_s: Option<u64>,
    /// The server ends the connection after this.
    pub(super) closes: bool,
    pub(super) body: Range<usize>,
}

/// The answer at the start of these bytes; none as long as some of it is missing.
///
/// # Errors
/// If it can never become one.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<Reply>, Fault> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Response::new(&mut fields);
    let len = match head.parse(&bytes[..bytes.len().min(HEAD_MAX)]) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() >= HEAD_MAX => return Err(Fault::TooLong),
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Fault::Malformed),
    };
    let status = head.code.filter(|status| *status >= 200).ok_or(Fault::Malformed)?;
    let mut length = None;
    let mut reply = Reply { status, retry_after_s: None, closes: head.version == Some(0), body: len..len };
    for field in head.headers.iter() {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let told = digits(field.value).ok_or(Fault::Malformed)?;
            if length.replace(told).is_some_and(|before| before != told) {
                return Err(Fault::Malformed);
            }
        } else if is("retry-after") {
            // A date is for people who look at a calendar; the sale sends seconds.
            reply.retry_after_s = digits(field.value);
        } else if is("connection") {
            reply.closes |= field.value.eq_ignore_ascii_case(b"close");
        } else if is("transfer-encoding") {
            return Err(Fault::Malformed);
        }
    }
    let length = match (length, status) {
        (_, 204 | 304) => 0,
        (Some(length), _) => length,
        (None, _) => return Err(Fault::Malformed),
    };
    let length = usize::try_from(length).ok().filter(|length| *length <= BODY_MAX).ok_or(Fault::TooLong)?;
    reply.body.end += length;
    match bytes.len() {
        all if all < reply.body.end => Ok(None),
        all if all > reply.body.end => Err(Fault::Malformed),
        _ => Ok(Some(reply)),
    }
}

/// A number that is all digits, as the two fields above must be.
fn digits(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(value).ok()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REFUSAL: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\n\
        Retry-After: 2\r\ncontent-length: 14\r\n\r\n{\"code\":42901}";

    #[test]
    fn an_answer_is_read_once_it_is_whole() {
        for len in 0..REFUSAL.len() {
            assert_eq!(parse(&REFUSAL[..len]), Ok(None), "{len} bytes");
        }
        let reply = parse(REFUSAL).unwrap().unwrap();
        assert_eq!((reply.status, reply.retry_after_s, reply.closes), (429, Some(2), false));
        assert_eq!(&REFUSAL[reply.body], b"{\"code\":42901}");
    }

    #[test]
    fn odd_answers_are_faults() {
        let cases: &[(&str, Fault)] = &[
            ("SSH-2.0-OpenSSH_9\r\n", Fault::Malformed),
            ("HTTP/1.1 200 OK\r\n\r\n", Fault::Malformed),
            ("HTTP/1.1 100 Continue\r\n\r\n", Fault::Malformed),
            ("HTTP/1.1 099 ?\r\ncontent-length: 0\r\n\r\n", Fault::Malformed),
            ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", Fault::Malformed),
            ("HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\nx", Fault::Malformed),
            ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx", Fault::Malformed),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", Fault::Malformed),
            ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nxy", Fault::Malformed),
            ("HTTP/1.1 200 OK\r\ncontent-length: 65537\r\n\r\n", Fault::TooLong),
            ("HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n", Fault::TooLong),
            ("HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n", Fault::Malformed),
        ];
        for (text, fault) in cases {
            assert_eq!(parse(text.as_bytes()), Err(*fault), "{text:?}");
        }
        let mut long = b"HTTP/1.1 200 OK\r\na: ".to_vec();
        long.resize(HEAD_MAX, b'x');
        assert_eq!(parse(&long), Err(Fault::TooLong));
    }

    #[test]
    fn a_strange_retry_after_is_none() {
        for value in ["Fri, 31 Dec 1999 23:59:59 GMT", "-1", "1.5", "", "99999999999999999999"] {
            let text = format!("HTTP/1.1 503 Busy\r\nretry-after: {value}\r\ncontent-length: 0\r\n\r\n");
            assert_eq!(parse(text.as_bytes()).unwrap().unwrap().retry_after_s, None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_a_body_lies_within(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            check(&bytes)?;
        }

        #[test]
        fn nor_do_bytes_that_look_like_an_answer(
            status in "[0-9]{1,4}", name in "(content-length|retry-after|connection|[a-z:-]{0,9})",
            value in "\\PC{0,24}", length in "[0-9]{0,21}", rest in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut bytes =
                format!("HTTP/1.1 {status} x\r\n{name}: {value}\r\ncontent-length: {length}\r\n\r\n").into_bytes();
            bytes.extend(rest);
            check(&bytes)?;
        }

        #[test]
        fn nor_does_an_answer_with_a_byte_changed(at in 0..REFUSAL.len(), byte in any::<u8>()) {
            let mut bytes = REFUSAL.to_vec();
            bytes[at] = byte;
            check(&bytes)?;
        }
    }

    fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
        if let Ok(Some(reply)) = parse(bytes) {
            prop_assert_eq!(reply.body.end, bytes.len());
            prop_assert!(reply.body.start <= reply.body.end && (200..1000).contains(&reply.status));
        }
        Ok(())
    }
}
