//! Which requests a rule is about: a method, a pattern of the path, or both.
//!
//! The pattern is axum's (`/goods/{id}/order`, `/files/{*rest}`). Literal segments are
//! compared after percent-decoding, so that `/goods/7/%6Frder` does not slip past a rule.
//! Nothing else about the path is made uniform: `/a//b`, `/a/` and `/a` are three paths.

use super::text::{PartText, decoded};
use http::Method;
use std::fmt;

/// A method, or any, and a pattern of the path, or any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    method: Option<Method>,
    pattern: Option<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    /// As it was written: what the key part `route` says.
    text: Box<str>,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(Box<[u8]>),
    /// `{id}`: one segment that is not empty.
    One,
    /// `{*rest}`: everything that is left, at least one byte.
    Rest,
}

/// The longest pattern.
const PATTERN_MAX: usize = 1024;

impl Route {
    /// Reads `POST /goods/{id}/order`, `/goods/{id}/order` or `POST`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text.split_once(' ') {
            Some((method, pattern)) => Ok(Self {
                method: Some(method_of(method)?),
                pattern: Some(Pattern::parse(pattern.trim_start())?),
            }),
            None if !text.starts_with('/') && is_method(text) => {
                Ok(Self { method: Some(method_of(text)?), pattern: None })
            }
            None => Ok(Self { method: None, pattern: Some(Pattern::parse(text)?) }),
        }
    }

    /// The pattern of the path, as it was written.
    pub(super) fn pattern(&self) -> Option<&str> {
        self.pattern.as_ref().map(|pattern| &*pattern.text)
    }

    #[inline]
    pub(super) fn is_for(&self, method: &Method, path: &str) -> bool {
        self.method.as_ref().is_none_or(|own| own == method || is_head_of(own, method))
            && self.pattern.as_ref().is_none_or(|pattern| pattern.fits(path))
    }
}

impl Pattern {
    fn parse(pattern: &str) -> Result<Self, String> {
        let Some(path) = pattern.strip_prefix('/') else {
            return Err(format!("the path `{pattern}` must start with `/`"));
        };
        if pattern.len() > PATTERN_MAX {
            return Err(format!("the path is longer than {PATTERN_MAX} bytes"));
        }
        if pattern.contains(['?', '#', ' ']) {
            return Err(format!("the path `{pattern}` must be without query, fragment and spaces"));
        }
        let texts: Vec<&str> = path.split('/').collect();
        let last = texts.len() - 1;
        let segments = texts.iter().enumerate().map(|(at, text)| segment(text, at == last));
        Ok(Self { text: pattern.into(), segments: segments.collect::<Result<_, _>>()? })
    }

    fn fits(&self, path: &str) -> bool {
        let Some(mut rest) = path.strip_prefix('/') else { return false };
        let last = self.segments.len() - 1;
        for (at, segment) in self.segments.iter().enumerate() {
            if matches!(segment, Segment::Rest) {
                return !rest.is_empty();
            }
            let (own, after) = match rest.split_once('/') {
                Some((own, after)) => (own, Some(after)),
                None => (rest, None),
            };
            let fits = match segment {
                Segment::Literal(literal) => is_literal(literal, own.as_bytes()),
                Segment::One => !own.is_empty(),
                Segment::Rest => true,
            };
            if !fits || after.is_none() != (at == last) {
                return false;
            }
            rest = after.unwrap_or_default();
        }
        true
    }
}

/// Routers call what is there for GET, when HEAD is asked: it costs them the same.
fn is_head_of(own: &Method, method: &Method) -> bool {
    *own == Method::GET && *method == Method::HEAD
}

#[inline]
fn is_literal(literal: &[u8], own: &[u8]) -> bool {
    literal == own || (own.contains(&b'%') && *decoded(own, PartText::Path) == *literal)
}

fn method_of(text: &str) -> Result<Method, String> {
    if !is_method(text) {
        return Err(format!("`{text}` is not a method: write it in capitals, as in `POST /orders`"));
    }
    Method::from_bytes(text.as_bytes()).map_err(|_| format!("`{text}` is not a method"))
}

fn is_method(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
}

fn segment(text: &str, is_last: bool) -> Result<Segment, String> {
    let Some(name) = text.strip_prefix('{').and_then(|name| name.strip_suffix('}')) else {
        if text.contains(['{', '}', '*']) {
            return Err(format!("the segment `{text}` must be literal, `{{name}}` or `{{*rest}}`"));
        }
        return Ok(Segment::Literal(decoded(text.as_bytes(), PartText::Path).as_ref().into()));
    };
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    match name.strip_prefix('*') {
        Some(rest) if is_name(rest) && is_last => Ok(Segment::Rest),
        Some(rest) if is_name(rest) => Err(format!("`{text}` must be the last segment")),
        None if is_name(name) => Ok(Segment::One),
        _ => Err(format!("the name in `{text}` must be letters, digits or `_`")),
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.method, self.pattern()) {
            (Some(method), Some(pattern)) => write!(f, "{method} {pattern}"),
            (Some(method), None) => method.fmt(f),
            (None, pattern) => f.write_str(pattern.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(route: &str, method: &str, path: &str) -> bool {
        Route::parse(route).unwrap().is_for(&Method::from_bytes(method.as_bytes()).unwrap(), path)
    }

    #[test]
    fn a_pattern_fits_whole_segments() {
        assert!(fits("/goods/{id}/order", "GET", "/goods/7/order"));
        assert!(!fits("/goods/{id}/order", "GET", "/goods//order"));
        assert!(!fits("/goods/{id}/order", "GET", "/goods/7/order/"));
        assert!(!fits("/goods/{id}/order", "GET", "/goods/7/orders"));
        assert!(!fits("/goods/{id}/order", "GET", "/goods/7"));
        assert!(!fits("/goods/{id}/order", "GET", "/goods/7/8/order"));
        assert!(fits("/", "GET", "/"));
        assert!(!fits("/", "GET", "/x"));
        assert!(!fits("/x", "OPTIONS", "*"));
    }

    #[test]
    fn the_rest_is_anything_that_is_left() {
        assert!(fits("/files/{*rest}", "GET", "/files/a/b/c"));
        assert!(fits("/{*rest}", "GET", "/a"));
        assert!(!fits("/files/{*rest}", "GET", "/files/"));
        assert!(!fits("/files/{*rest}", "GET", "/files"));
    }

    #[test]
    fn a_method_counts_where_it_is_said() {
        assert!(fits("POST /orders", "POST", "/orders"));
        assert!(!fits("POST /orders", "GET", "/orders"));
        assert!(fits("PURGE /orders", "PURGE", "/orders"));
    }

    #[test]
    fn a_method_alone_means_any_path() {
        for path in ["/", "/orders", "/goods/7/order", "*"] {
            assert!(fits("POST", "POST", path), "{path}");
            assert!(!fits("POST", "GET", path), "{path}");
        }
        assert!(fits("GET", "HEAD", "/"));
        assert!(!fits("POST /", "POST", "/orders"));
    }

    #[test]
    fn an_encoded_letter_does_not_slip_past() {
        assert!(fits("/goods/{id}/order", "GET", "/goods/7/%6Frde%72"));
        assert!(fits("/caf%C3%A9", "GET", "/caf\u{e9}"));
        assert!(!fits("/goods/{id}", "GET", "/goods/7%2F8/9"));
    }

    #[test]
    fn what_is_not_a_pattern_is_told() {
        for (text, says) in [
            ("goods", "must start with `/`"),
            ("post /x", "not a method"),
            ("/a/{*rest}/b", "must be the last segment"),
            ("/a/{b c}", "not a method"),
            ("GET /a b", "without query, fragment and spaces"),
            ("/a/x{b}", "must be literal"),
            ("/a/{}", "the name in `{}`"),
            ("/a?b=c", "without query"),
        ] {
            let error = Route::parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
