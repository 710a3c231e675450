//! Parses a route, with an error for one that could match no request.
//!
//! A pattern in another router's grammar is a valid path (`/goods/:id` has a segment of two letters
//! and a colon), but no request has it. The rule would build, and let every request through. So a
//! pattern that cannot be meant is an error, which states what to write.

use crate::rules::route::methods;
use crate::rules::route::{Pattern, Route, Segment};
use crate::rules::text::{PartText, decoded};

/// The longest pattern.
const PATTERN_MAX: usize = 1024;

impl Route {
    /// Reads `POST /goods/{id}/order`, `/goods/{id}/order` or `POST`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (method, pattern) = match text.split_once(char::is_whitespace) {
            Some((method, pattern)) if !method.starts_with('/') => (Some(method), Some(pattern.trim_start())),
            None if methods::is_meant(text) => (Some(text), None),
            _ => (None, Some(text)),
        };
        match (method, pattern) {
            (None, Some("*")) | (Some("ANY" | "ALL"), None) => {
                return Err(
                    "it would mean every request: leave `.on` out, as a rule without it applies to all"
                        .into(),
                );
            }
            (Some(method), Some("*")) => {
                methods::parse(method)?;
                return Err(format!("leave the path out to mean any: write `{method}`"));
            }
            _ => {}
        }
        Ok(Self {
            method: method.map(methods::parse).transpose()?,
            pattern: pattern.map(Pattern::parse).transpose()?,
        })
    }
}

impl Pattern {
    fn parse(pattern: &str) -> Result<Self, String> {
        let Some(path) = pattern.strip_prefix('/') else { return Err(not_a_path(pattern)) };
        if pattern.len() > PATTERN_MAX {
            return Err(format!("the path is longer than {PATTERN_MAX} bytes"));
        }
        let is_no_part = |c: char| matches!(c, '?' | '#') || c.is_whitespace() || c.is_control();
        if pattern.contains(is_no_part) {
            let what = "must be without query, fragment and spaces (`%20` is one in a path)";
            return Err(format!("the path `{}` {what}", crate::Key::new(pattern)));
        }
        if pattern.contains("//") {
            let whole: Vec<&str> = path.split('/').filter(|text| !text.is_empty()).collect();
            return Err(format!(
                "the path `{pattern}` has an empty segment: write `/{}`, which also matches paths with doubled slashes",
                whole.join("/")
            ));
        }
        // A trailing slash does not count.
        let path = path.strip_suffix('/').unwrap_or(path);
        let texts: Vec<&str> = path.split('/').collect();
        let last = texts.len() - 1;
        let segments = texts.iter().enumerate().map(|(at, text)| segment(text, at == last));
        Ok(Self { text: pattern.into(), segments: segments.collect::<Result<_, _>>()? })
    }
}

fn not_a_path(text: &str) -> String {
    let instead = match text {
        text if text.contains("://") => "write it without scheme and host, as in `/orders`".into(),
        text => format!("write `/{text}`"),
    };
    format!("the path `{}` must start with `/`: {instead}", crate::Key::new(text))
}

fn segment(text: &str, is_last: bool) -> Result<Segment, String> {
    if let Some(name) = text.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
        return match name.strip_prefix('*') {
            Some(rest) if is_name(rest) && is_last => Ok(Segment::Rest),
            Some(rest) if is_name(rest) => Err(format!("`{text}` must be the last segment")),
            None if is_name(name) => Ok(Segment::One),
            _ => Err(foreign(text).unwrap_or_else(|| {
                format!("the name in `{text}` must be letters, digits or `_`, as in `{{id}}`")
            })),
        };
    }
    if let Some(what) = foreign(text) {
        return Err(what);
    }
    if text.contains(['{', '}', '*']) {
        return Err(format!(
            "the segment `{text}` must be literal, `{{name}}` or `{{*rest}}`: write `{{name}}` for all of it \
             (in a literal, `%7B`, `%7D` and `%2A` stand for `{{`, `}}` and `*`)"
        ));
    }
    let literal = decoded(text.as_bytes(), PartText::Path);
    if matches!(&*literal, b"." | b"..") {
        return Err(format!(
            "`{text}` is resolved before a path is compared: write the path without it, as in `/orders`"
        ));
    }
    Ok(Segment::Literal(literal.as_ref().into()))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// What to write instead of a segment that means "any" to another router: `:id` and `*rest` (axum
/// up to 0.7, Express, Rails), `<id>` (Rocket, Flask), `{id:[0-9]+}` (actix, gorilla), `{rest...}`
/// (Go), `[id]` (Next.js).
fn foreign(text: &str) -> Option<String> {
    let between = |open: char, close: char| text.strip_prefix(open)?.strip_suffix(close);
    let (named, is_rest, encoded) = if let Some(name) = text.strip_prefix(':') {
        (name, name.ends_with(['*', '+']), "%3A")
    } else if let Some(name) = text.strip_prefix('*') {
        (name.trim_start_matches('*'), true, "%2A")
    } else if let Some(inside) = between('<', '>') {
        let (kind, name) = inside.rsplit_once(':').unwrap_or(("", inside));
        (name, kind == "path" || name.ends_with(".."), "%3C")
    } else if let Some(inside) = between('[', ']') {
        (inside, inside.contains("..."), "%5B")
    } else {
        let inside = between('{', '}')?;
        let (name, pattern) = inside.split_once(':').unwrap_or((inside, ""));
        (
            name,
            name.ends_with(['.', '*', '+']) || pattern.starts_with(".*") || pattern.starts_with(".+"),
            "%7B",
        )
    };
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let start = named.find(is_letter)?;
    let end = named[start..].find(|c| !is_letter(c)).map_or(named.len(), |length| start + length);
    let (name, star) = (&named[start..end], if is_rest { "*" } else { "" });
    Some(format!(
        "`{text}` would match only these letters: write `{{{star}{name}}}` for any (a literal one begins with `{encoded}`)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_of_another_router_is_reported_with_ours() {
        for (text, write) in [
            ("POST /goods/:id", "write `{id}` for any (a literal one begins with `%3A`)"),
            ("/goods/:id(\\d+)", "write `{id}`"),
            ("/files/*rest", "write `{*rest}`"),
            ("/files/:rest*", "write `{*rest}`"),
            ("/files/<path:rest>", "write `{*rest}`"),
            ("/files/<rest..>", "write `{*rest}`"),
            ("/goods/<id>", "write `{id}`"),
            ("/goods/<int:id>", "write `{id}`"),
            ("/goods/{id:[0-9]+}", "write `{id}`"),
            ("/files/{rest:.*}", "write `{*rest}`"),
            ("/files/{rest...}", "write `{*rest}`"),
            ("/goods/[id]", "write `{id}`"),
            ("/files/[...rest]", "write `{*rest}`"),
        ] {
            let error = Route::parse(text).unwrap_err();
            assert!(error.contains(write), "{text}: {error}");
        }
        for literal in
            ["/v1:batch", "/a%3Ab/%3Aid", "/goods/%2A", "/a<b", "/it's", "/a,b;c=d", "/.well-known/x"]
        {
            assert!(Route::parse(literal).is_ok(), "{literal}");
        }
    }

    #[test]
    fn what_is_not_a_pattern_is_reported() {
        for (text, says) in [
            ("", "must start with `/`"),
            ("goods", "must start with `/`: write `/goods`"),
            ("GET goods", "must start with `/`: write `/goods`"),
            ("OPTIONS *", "leave the path out to mean any: write `OPTIONS`"),
            ("GET *", "leave the path out to mean any: write `GET`"),
            ("*", "leave `.on` out"),
            ("ANY", "leave `.on` out"),
            ("* *", "leave it out to mean any"),
            ("https://shop.example/goods", "without scheme and host"),
            ("post /x", "in capitals: write `POST`"),
            ("post", "in capitals: write `POST`"),
            ("PSOT /b", "`PSOT` is not a registered method: write `POST`"),
            ("PSOT", "write `POST`"),
            ("* /b", "leave it out to mean any"),
            ("/a/{*rest}/b", "must be the last segment"),
            ("/a/{b c}", "without query, fragment and spaces"),
            ("GET /a b", "without query, fragment and spaces"),
            ("/a\u{7}", "without query, fragment and spaces"),
            ("/a/x{b}", "must be literal"),
            ("/a/{b", "must be literal"),
            ("/a/b}", "must be literal"),
            ("/a/x*", "must be literal"),
            ("/a/*", "must be literal"),
            ("/a/{}", "the name in `{}`"),
            ("/a/{{b}}", "write `{b}`"),
            ("/a?b=c", "without query"),
            ("/a//b", "has an empty segment: write `/a/b`"),
            ("//a", "has an empty segment: write `/a`"),
            ("//", "has an empty segment"),
            ("/a/./b", "`.` is resolved"),
            ("/a/../b", "`..` is resolved"),
            ("/a/%2e%2E", "`%2e%2E` is resolved"),
        ] {
            let error = Route::parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
