//! A path as the programs behind a front end may read it.
//!
//! `//goods/7`, `/goods/./7`, `/x/../goods/7` and `/goods/%37` are `/goods/7` for many routers
//! and proxies, and another path for others. A rule that knew only one of these readings could be
//! evaded by the others, so patterns are compared with the path as received and with the
//! normalised one: RFC 3986 §6.2.2 (percent-encoded unreserved characters decoded, dot
//! segments removed), and doubled slashes as one.
//!
//! It does not normalise case, `%2F` (which is no slash), and `;parameters`.

use crate::rules::text::decoded_byte;
use std::cell::OnceCell;

/// The path of a request as received, and its other readings, which are computed when they are
/// needed.
#[derive(Debug)]
pub struct RequestPath<'a> {
    raw: &'a str,
    /// None if there is no other reading, as of nearly every path.
    others: OnceCell<Option<Box<Others>>>,
}

/// The readings of a path that is not normal.
#[derive(Debug, PartialEq, Eq)]
struct Others {
    /// Doubled slashes merged, then dot segments removed.
    normal: String,
    /// The same in the other order, where that makes a difference: `/a//../b` is `/b` for one
    /// program, and `/a/b` for another.
    swapped: Option<String>,
}

impl Others {
    fn readings(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.normal).chain(self.swapped.as_deref())
    }
}

impl<'a> RequestPath<'a> {
    /// A path as received.
    pub fn new(raw: &'a str) -> Self {
        Self { raw, others: OnceCell::new() }
    }

    /// The path as received. A path can be written in many ways; [`normalized`](Self::normalized) is
    /// the same for all of them.
    pub fn raw(&self) -> &'a str {
        self.raw
    }

    /// The path normalised as in RFC 3986 §6.2.2 (percent-encoded letters, digits and `-._~`
    /// decoded, dot segments removed), with doubled slashes as one: `/goods/7` for
    /// `//goods/x/../%37`. Where the order of both makes a difference, slashes are merged first.
    pub fn normalized(&self) -> &str {
        self.others().map_or(self.raw, |others| &others.normal)
    }

    /// True if there is only one reading.
    pub(crate) fn is_normal(&self) -> bool {
        self.others().is_none()
    }

    /// All readings, the path as received first, which most routers use.
    pub(crate) fn readings(&self) -> impl Iterator<Item = &str> {
        let others = || self.others().into_iter().flat_map(Others::readings);
        std::iter::once(self.raw).chain(std::iter::once_with(others).flatten())
    }

    fn others(&self) -> Option<&Others> {
        self.others
            .get_or_init(|| if is_normal(self.raw.as_bytes()) { None } else { others(self.raw) })
            .as_deref()
    }
}

fn is_normal(path: &[u8]) -> bool {
    path.iter().enumerate().all(|(at, byte)| match byte {
        b'/' => !matches!(
            &path[at + 1..],
            [b'/', ..] | [b'.'] | [b'.', b'/', ..] | [b'.', b'.'] | [b'.', b'.', b'/', ..]
        ),
        b'%' => unreserved(&path[at..]).is_none(),
        _ => true,
    })
}

#[cold]
fn others(raw: &str) -> Option<Box<Others>> {
    // `*` and an empty path have no segments.
    raw.strip_prefix('/')?;
    let decoded = without_escapes(raw);
    let normal = without_dots(&merged(&decoded));
    let swapped = merged(&without_dots(&decoded));
    let swapped = (swapped != normal).then_some(swapped);
    Some(Box::new(Others { normal, swapped }))
}

/// The unreserved character that a percent sign and two digits stand for, if they do.
fn unreserved(text: &[u8]) -> Option<char> {
    let is_unreserved = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~');
    decoded_byte(text).map(char::from).filter(is_unreserved)
}

/// Percent-encoded unreserved characters decoded, once.
fn without_escapes(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let (character, length) = match unreserved(rest.as_bytes()) {
            Some(character) => (character, 3),
            None => (first, first.len_utf8()),
        };
        out.push(character);
        rest = &rest[length..];
    }
    out
}

/// Dot segments removed, as in RFC 3986 §5.2.4. Linear: each byte is written and removed once.
fn without_dots(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut is_open = false;
    for segment in path.split('/').skip(1) {
        is_open = matches!(segment, "." | "..");
        match segment {
            "." => {}
            ".." => out.truncate(out.rfind('/').unwrap_or(0)),
            segment => {
                out.push('/');
                out.push_str(segment);
            }
        }
    }
    if is_open || out.is_empty() {
        out.push('/');
    }
    out
}

/// Doubled slashes as one.
fn merged(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for character in path.chars() {
        if character != '/' || !out.ends_with('/') {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normal_path_is_read_as_it_came() {
        for path in [
            "/",
            "/goods/7/order",
            "/goods/7/",
            "/.well-known/security.txt",
            "/..a/.../a..b/.a.",
            "/caf%C3%A9/%2F/%25/%20",
            "/caf\u{e9}",
            "/%",
            "/%4",
            "/%zz",
            "/%\u{e9}x",
            "*",
            "",
        ] {
            let paths = RequestPath::new(path);
            assert!(is_normal(path.as_bytes()), "{path}");
            assert!(paths.is_normal() && paths.normalized() == path, "{path}");
        }
    }

    #[test]
    fn all_ways_to_write_a_path_are_one() {
        for path in [
            "//goods/7/order",
            "/goods//7///order",
            "/./goods/7/order",
            "/goods/x/../7/order",
            "/goods/x/y/../../7/./order",
            "/../../goods/7/order",
            "/goods/%2e/7/order",
            "/goods/x/%2E%2e/7/order",
            "/goods/x/.%2e/7/order",
            "/%67oods/%37/%6frde%72",
            "/x/..//goods/7/order",
        ] {
            let paths = RequestPath::new(path);
            assert_eq!(paths.readings().collect::<Vec<_>>(), [path, "/goods/7/order"], "{path}");
        }
        for (path, normal) in [
            ("//", "/"),
            ("/.", "/"),
            ("/..", "/"),
            ("/a/.", "/a/"),
            ("/a/b/..", "/a/"),
            ("/a//", "/a/"),
            ("/%252e", "/%252e"),
            ("/a%2Fb/%7E", "/a%2Fb/~"),
            ("/caf%C3%A9//x", "/caf%C3%A9/x"),
        ] {
            assert_eq!(RequestPath::new(path).normalized(), normal, "{path}");
        }
    }

    #[test]
    fn where_programs_differ_both_readings_are_known() {
        let paths = RequestPath::new("/a//../b");
        assert_eq!(paths.readings().collect::<Vec<_>>(), ["/a//../b", "/b", "/a/b"]);
        let mut seen = Vec::new();
        let all = std::cell::RefCell::new(&mut seen);
        assert!(!paths.readings().any(|path| {
            all.borrow_mut().push(path.to_string());
            false
        }));
        assert_eq!(seen, ["/a//../b", "/b", "/a/b"]);
    }

    #[test]
    fn a_long_path_is_walked_a_few_times_only() {
        let path = format!("{}/goods", "/a/..//./%2e".repeat(20_000));
        assert_eq!(RequestPath::new(&path).normalized(), "/goods");
    }
}
