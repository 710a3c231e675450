//! Which requests a rule applies to: a method, a pattern of the path, or both.
//!
//! The pattern is axum's (`/goods/{id}/order`, `/files/{*rest}`). It is compared with every
//! reading of the path ([`RequestPath`]), literal segments after percent-decoding, and a trailing
//! slash does not count: a rule that is evaded is worse than one that applies once too often.
//!
//! How a pattern is parsed, and which error it is if it could never match, is in
//! [`text`](crate::rules::route::text).

pub(crate) mod methods;
pub(crate) mod path;
pub(crate) mod text;

use crate::rules::text::{PartText, decoded};
use std::fmt;

/// A method, or any, and a pattern of the path, or any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) method: Option<Box<str>>,
    pub(crate) pattern: Option<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// As it was written: the value of the key part `route`.
    pub(crate) text: Box<str>,
    pub(crate) segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// Percent-decoded; empty only if it is the only one, of the pattern `/`.
    Literal(Box<[u8]>),
    /// `{id}`: one segment that is not empty.
    One,
    /// `{*rest}`: the rest of the path, at least one byte.
    Rest,
}

/// What a route determines about a segment of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentAt<'a> {
    /// It differs between requests.
    Varies,
    /// It is always this text.
    Always(&'a [u8]),
    /// The path has no such segment.
    Beyond,
}

impl Route {
    /// The pattern of the path, as it was written.
    pub(crate) fn pattern(&self) -> Option<&str> {
        self.pattern.as_ref().map(|pattern| &*pattern.text)
    }

    /// What is known about this segment of its requests, counted from 1.
    pub(crate) fn segment(&self, number: usize) -> SegmentAt<'_> {
        let Some(pattern) = &self.pattern else { return SegmentAt::Varies };
        match pattern.segments.get(number - 1) {
            Some(Segment::Literal(literal)) if literal.is_empty() => SegmentAt::Beyond,
            Some(Segment::Literal(literal)) => SegmentAt::Always(literal),
            Some(Segment::One | Segment::Rest) => SegmentAt::Varies,
            None if pattern.segments.last() == Some(&Segment::Rest) => SegmentAt::Varies,
            None => SegmentAt::Beyond,
        }
    }

    pub(crate) fn is_for_method(&self, method: Option<&str>) -> bool {
        self.method.as_deref().is_none_or(|own| method == Some(own) || is_head_of(own, method))
    }

    pub(crate) fn is_for_path(&self, path: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.fits(path))
    }
}

impl Pattern {
    fn fits(&self, path: &str) -> bool {
        let mut rest = path.strip_prefix('/');
        for segment in &self.segments {
            let Some(path) = rest else { return false };
            let (own, after) = path.split_once('/').map_or((path, None), |(own, after)| (own, Some(after)));
            let fits = match segment {
                Segment::Literal(literal) => is_literal(literal, own.as_bytes()),
                Segment::One => !own.is_empty(),
                Segment::Rest => return !path.is_empty(),
            };
            if !fits {
                return false;
            }
            rest = after;
        }
        rest.is_none_or(str::is_empty)
    }
}

/// Routers send `HEAD` to the handler of `GET`: it costs them the same.
fn is_head_of(own: &str, method: Option<&str>) -> bool {
    own == "GET" && method == Some("HEAD")
}

fn is_literal(literal: &[u8], own: &[u8]) -> bool {
    literal == own || (own.contains(&b'%') && *decoded(own, PartText::Path) == *literal)
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.method, self.pattern()) {
            (Some(method), Some(pattern)) => write!(f, "{method} {pattern}"),
            (Some(method), None) => f.write_str(method),
            (None, pattern) => f.write_str(pattern.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::route::path::RequestPath;

    fn fits(route: &str, method: &str, path: &str) -> bool {
        let route = Route::parse(route).unwrap();
        route.is_for_method(Some(method))
            && RequestPath::new(path).readings().any(|path| route.is_for_path(path))
    }

    #[test]
    fn a_pattern_fits_whole_segments() {
        assert!(fits("/goods/{id}/order", "GET", "/goods/7/order"));
        assert!(!fits("/goods/{id}/order", "GET", "/goods//order"));
        assert!(!fits("/goods/{id}/order", "GET", "/goods/7/orders"));
        assert!(!fits("/goods/{id}/order", "GET", "/goods/7"));
        assert!(!fits("/goods/{id}/order", "GET", "/goods/7/8/order"));
        assert!(fits("/", "GET", "/"));
        assert!(!fits("/", "GET", "/x"));
        assert!(!fits("/x", "OPTIONS", "*"));
    }

    #[test]
    fn a_slash_at_the_end_does_not_count() {
        for pattern in ["/goods/{id}/order", "/goods/{id}/order/"] {
            assert!(fits(pattern, "GET", "/goods/7/order"), "{pattern}");
            assert!(fits(pattern, "GET", "/goods/7/order/"), "{pattern}");
            assert!(fits(pattern, "GET", "/goods/7/order//"), "{pattern}");
            assert!(!fits(pattern, "GET", "/goods/7/order/x"), "{pattern}");
        }
        assert!(!fits("/goods/{id}", "GET", "/goods/"));
    }

    #[test]
    fn the_rest_is_anything_that_is_left() {
        assert!(fits("/files/{*rest}", "GET", "/files/a/b/c"));
        assert!(fits("/{*rest}", "GET", "/a"));
        assert!(!fits("/files/{*rest}", "GET", "/files/"));
        assert!(!fits("/files/{*rest}", "GET", "/files"));
        // For a router that takes paths as they come, a slash is left.
        assert!(fits("/files/{*rest}", "GET", "/files//"));
    }

    #[test]
    fn a_method_counts_where_it_is_said() {
        assert!(fits("POST /orders", "POST", "/orders"));
        assert!(!fits("POST /orders", "GET", "/orders"));
        assert!(fits("PURGE /orders", "PURGE", "/orders"));
        assert!(fits("extension:FETCH /orders", "FETCH", "/orders"));
        assert!(!fits("extension:FETCH /orders", "GET", "/orders"));
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
    fn no_way_to_write_a_path_slips_past() {
        for path in [
            "/goods/7/%6Frde%72",
            "//goods/7/order",
            "/goods//7/order",
            "/goods/7/./order",
            "/x/../goods/7/order",
            "/x/%2e%2E/goods/7/order",
            "/goods/7/order/.",
            "/goods/7/order/x/..",
            // One of their two readings.
            "/goods/x//../7/order",
            "/goods/7//../order",
        ] {
            assert!(fits("/goods/{id}/order", "GET", path), "{path}");
        }
        assert!(fits("/caf%C3%A9", "GET", "/caf\u{e9}"));
        assert!(fits("/caf\u{e9}", "GET", "/caf%c3%A9"));
        assert!(!fits("/goods/{id}", "GET", "/goods/7%2F8/9"));
        assert!(!fits("/goods/{id}/order", "GET", "/goods/7/x/../../order"));
    }

    #[test]
    fn what_a_segment_can_be_is_known() {
        let of = |route: &str, number| format!("{:?}", Route::parse(route).unwrap().segment(number));
        assert_eq!(of("POST", 9), "Varies");
        assert_eq!(of("/goods/{id}", 1), format!("{:?}", SegmentAt::Always(&b"goods"[..])));
        assert_eq!(of("/goods/{id}", 2), "Varies");
        assert_eq!(of("/goods/{id}/", 3), "Beyond");
        assert_eq!(of("/goods/{*rest}", 64), "Varies");
        assert_eq!(of("/", 1), "Beyond");
    }
}
