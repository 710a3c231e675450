//! What answers have to be.

use http::HeaderMap;

/// True if the first answer is the service's own.
pub(crate) fn is_served(answers: &[u8]) -> bool {
    let (head, _) = split(answers);
    head.is_some_and(|head| head.headers.contains_key("x-served"))
}

/// What is wrong with these answers of HTTP/1, one after the other. Answers to `HEAD` have no
/// body, so after the first of them no more can be read: `is_alone` says that there is one.
pub(crate) fn wrong(answers: &[u8], is_alone: bool) -> Option<String> {
    let mut rest = answers;
    loop {
        let (head, behind) = split(rest);
        // Nothing, or what was cut by a reset.
        let head = head?;
        if let Some(wrong) = wrong_head(head.status, &head.headers) {
            return Some(format!("{wrong}: {}", String::from_utf8_lossy(rest)));
        }
        if head.status / 100 == 1 {
            rest = behind;
            continue;
        }
        let length = head.headers.get("content-length")?.to_str().ok()?.parse::<usize>().ok()?;
        if is_alone {
            return None;
        }
        rest = behind.get(length..)?;
    }
}

/// What is wrong with an answer.
pub(crate) fn wrong_head(status: u16, headers: &HeaderMap) -> Option<&'static str> {
    if headers.contains_key("x-served") || status / 100 == 1 {
        return None;
    }
    if status < 400 {
        return Some("neither the service's answer nor an error");
    }
    // The others are of hyper and axum, to what is no request at all. They have no such type.
    let is_guards = headers.get("content-type").is_some_and(|kind| kind == "application/problem+json");
    let lines = headers.get_all("cache-control");
    let is_no_store = lines.iter().any(|line| line.as_bytes().eq_ignore_ascii_case(b"no-store"));
    (is_guards && !is_no_store).then_some("a refusal that a cache may keep")
}

struct Head {
    status: u16,
    headers: HeaderMap,
}

/// The first head, and what is behind it. None if it is not whole.
fn split(answers: &[u8]) -> (Option<Head>, &[u8]) {
    let Some(end) = answers.windows(4).position(|four| four == b"\r\n\r\n") else { return (None, answers) };
    let (head, behind) = (&answers[..end], &answers[end + 4..]);
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let Some(status) = status else { return (None, behind) };
    let mut headers = HeaderMap::new();
    for line in lines {
        let Some((name, value)) = line.split_once(": ") else { continue };
        if let (Ok(name), Ok(value)) = (name.parse::<http::HeaderName>(), value.parse()) {
            headers.append(name, value);
        }
    }
    (Some(Head { status, headers }), behind)
}

#[test]
fn a_refusal_that_a_cache_may_keep_is_found_out() {
    let refused =
        "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\ncontent-length: 2\r\n";
    let both =
        format!("HTTP/1.1 200 OK\r\nx-served: yes\r\ncontent-length: 6\r\n\r\nserved{refused}\r\n{{}}");
    assert!(wrong(both.as_bytes(), false).unwrap().starts_with("a refusal that a cache may keep"));
    let forbidden =
        both.replace("application/problem+json", "application/problem+json\r\ncache-control: no-store");
    assert_eq!(wrong(forbidden.as_bytes(), false), None);
    let empty = b"HTTP/1.1 200 OK\r\ngrpc-status: 8\r\ncontent-length: 0\r\n\r\n";
    assert!(wrong(empty, true).unwrap().starts_with("neither the service's answer nor an error"));
}
