//! What a rule says that could never be so: parts of its key that its paths do not have, and
//! keys in lists that are written as none of its keys is.
//!
//! Each of them would build, and quietly count everybody as one, or let through whom it
//! was to refuse.

use super::client_ip::ClientIp;
use super::error::GuardError;
use super::key::{KeyExpr, Part};
use super::key_write::{WHOLE_MAX, method};
use super::list::List;
use super::route::{Route, SegmentAt};
use super::rule::{Listed, Rule};
use super::rules::RuleSet;
use super::text::{PartText, decoded, shortest_number};
use crate::Key;
use http::Method;

/// # Errors
/// If a part of the key is a segment that no path of the routes has, or the key is the same
/// for all of them.
pub(super) fn check_segments(key: &KeyExpr, routes: &[Route]) -> Result<(), String> {
    if routes.is_empty() {
        return Ok(());
    }
    for alternative in &key.alternatives {
        for part in alternative {
            let Part::Path(number) = part.said() else { continue };
            if routes.iter().all(|route| route.segment(*number) == SegmentAt::Beyond) {
                let what = "no path of the rule has so many segments, which count from 1";
                return Err(format!("`{part}` is never there: {what}; {}", instead(routes)));
            }
            if let (Part::Number(_), Some(literal)) = (part, always(routes, *number))
                && shortest_number(literal).is_none()
            {
                let literal = Key::new(literal);
                return Err(format!(
                    "`{part}` is never a number, but always `{literal}`; {}",
                    instead(routes)
                ));
            }
        }
        let literal = |part: &Part| match part {
            Part::Path(number) => always(routes, *number),
            _ => None,
        };
        let literals: Option<Vec<&[u8]>> = alternative.iter().map(literal).collect();
        if let (Some(literals), Some(part)) = (literals, alternative.first()) {
            let always = Key::new(literals.first().copied().unwrap_or_default());
            let what = "segments count from 1, and one allowance for all is `'everyone'`";
            return Err(format!("`{part}` is always `{always}`: {what}; {}", instead(routes)));
        }
    }
    Ok(())
}

/// The text that a segment is in all of these routes, if there is one.
fn always(routes: &[Route], number: usize) -> Option<&[u8]> {
    let first = routes.first()?.segment(number);
    let SegmentAt::Always(literal) = first else { return None };
    routes.iter().all(|route| route.segment(number) == first).then_some(literal)
}

/// The first segment that differs from request to request.
fn instead(routes: &[Route]) -> String {
    let varies = |number: &usize| routes.iter().any(|route| route.segment(*number) == SegmentAt::Varies);
    match (1..=64).find(varies) {
        Some(number) => format!("write `path:{number}`"),
        None => "write what tells its requests apart, as in `user else ip`".into(),
    }
}

/// # Errors
/// If a key of the guard's own lists can be a key of none of its rules.
pub(super) fn check_lists(
    rules: &[Rule],
    allow: &Listed,
    deny: &Listed,
    client_ip: &ClientIp,
) -> Result<(), GuardError> {
    let exprs = || rules.iter().filter_map(|rule| rule.key.as_ref()?.as_ref().ok());
    // Rules may come later; and of those that are wrong something else is told.
    if rules.is_empty() || exprs().count() < rules.len() {
        return Ok(());
    }
    for (name, list) in [("allow_keys", allow), ("deny_keys", deny)] {
        let is_any = |key: &Vec<u8>| exprs().any(|expr| can_be(expr, key, client_ip));
        if let Some(at) = list.keys.iter().position(|key| !is_any(key)) {
            return Err(GuardError::new(not_a_key(name, at, exprs())));
        }
    }
    Ok(())
}

impl RuleSet {
    /// Says that keys of one of the guard's own lists can be no key of these rules.
    pub(super) fn warn_of_idle_keys(&self, name: &str, list: &List, client_ip: &ClientIp) {
        let is_any = |key: &[u8]| self.rules.iter().any(|rule| can_be(&rule.key, key, client_ip));
        let idle = list.keys().filter(|key| !is_any(key)).count();
        if idle > 0 && !self.rules.is_empty() {
            tracing::warn!(
                target: "tidegate::guard",
                idle,
                "keys of the guard's `{name}` do nothing: they are written as no key of the rules in force is"
            );
        }
    }
}

/// Whether a key in a list can be one of the keys of an expression: each part with its tag, and
/// its value as it is written there.
pub(super) fn can_be(expr: &KeyExpr, key: &[u8], client_ip: &ClientIp) -> bool {
    expr.alternatives.iter().any(|parts| {
        let mut texts = key.split(|byte| *byte == b'+');
        let mut fits = |part: &Part| texts.next().is_some_and(|text| is_of(part, text, client_ip));
        parts.iter().all(&mut fits) && texts.next().is_none()
    })
}

fn is_of(part: &Part, text: &[u8], client_ip: &ClientIp) -> bool {
    if let Part::Constant(_) = part {
        return part.to_string().as_bytes() == text;
    }
    let Some(value) = text.strip_prefix(tag(part).as_bytes()) else { return false };
    match part {
        Part::Ip => std::str::from_utf8(value).is_ok_and(|value| client_ip.is_client(value)),
        Part::Method => Method::from_bytes(value).is_ok_and(|own| *method(&own) == *value),
        Part::Route => is_value(value) && value.contains(&b' '),
        Part::Number(_) => {
            shortest_number(value).is_some_and(|(sign, digits)| [sign, digits].concat() == value)
        }
        // A list may have a secret whole, however long it is.
        part if part.is_secret() => is_escaped(value) || is_value(value),
        _ => is_value(value),
    }
}

/// What stands before a part's value.
fn tag(part: &Part) -> String {
    match part {
        Part::Ip | Part::User | Part::Method | Part::Route => format!("{part}:"),
        Part::Custom { name, .. } => format!("{name}:"),
        Part::Constant(_) => part.to_string(),
        // A number is written under the name of what it is read from.
        Part::Number(part) => format!("{part}="),
        part => format!("{part}="),
    }
}

/// True if a value is written like this: not empty, `%` only where it escapes, and short or by
/// its digest.
fn is_value(value: &[u8]) -> bool {
    let is_long_digest = value.windows(2).any(|pair| pair == b"%#");
    is_long_digest || (is_escaped(value) && decoded(value, PartText::Path).len() <= WHOLE_MAX)
}

fn is_escaped(value: &[u8]) -> bool {
    let escapes = |after: &[u8]| after.starts_with(b"25") || after.starts_with(b"2B");
    !value.is_empty() && value.split(|byte| *byte == b'%').skip(1).all(escapes)
}

/// What is told of a key that cannot be one. Not the key itself, which may be a secret.
pub(super) fn not_a_key<'a>(list: &str, at: usize, exprs: impl Iterator<Item = &'a KeyExpr>) -> String {
    let forms: Vec<String> = exprs.flat_map(|expr| &expr.alternatives).map(|parts| form(parts)).collect();
    format!(
        "no key is written as number {} of `{list}`: write {} (in a value `%2B` and `%25` for `+` and `%`; for addresses \
         there is `{}`)",
        at + 1,
        forms.join(" or "),
        list.replace("keys", "networks"),
    )
}

/// How keys of these parts look: `user:…+path:2=…`.
fn form(parts: &[Part]) -> String {
    let forms: Vec<String> = parts
        .iter()
        .map(|part| if matches!(part, Part::Constant(_)) { tag(part) } else { format!("{}…", tag(part)) })
        .collect();
    format!("`{}`", forms.join("+"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_a_list_is_written_as_keys_are() {
        let client_ip = ClientIp::peer();
        let can = |expr: &str, key: &str| can_be(&expr.parse().unwrap(), key.as_bytes(), &client_ip);
        for (expr, key) in [
            ("user", "user:42"),
            ("user else ip", "ip:203.0.113.9"),
            ("ip", "ip:2001:db8::/64"),
            ("header:x-api-key", "header:x-api-key=k1"),
            ("'v1' + user + path:2", "'v1'+user:42+path:2=a=b:c"),
            ("number(path:2)", "path:2=7"),
            ("query:q", "query:q=50%25%2B1"),
            ("secret(query:q)", "secret(query:q)=k1"),
            ("header:x", "header:x=#6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2"),
            ("json:/a/b", "json:/a/b=x"),
            ("method", "method:OTHER"),
            ("route", "route:GET /goods/{id}"),
            ("header:x", "header:x=xxxxxxxxxxxxxxxx%#00112233445566778899aabbccddeeff"),
        ] {
            assert!(can(expr, key), "{expr}: {key}");
        }
        for (expr, key) in [
            ("user", "42"),
            ("user", "user:"),
            ("user", "ip:203.0.113.9"),
            ("user", "user:a+b"),
            ("user", "user:50%"),
            ("user + path:2", "user:42"),
            ("user", "user:42+path:2=7"),
            ("ip", "ip:2001:db8::1"),
            ("ip", "ip:203.0.113.0/24"),
            ("ip", "203.0.113.9"),
            ("ip", "ip:office"),
            ("header:x-api-key", "header:X-Api-Key=k1"),
            ("header:x-api-key", "x-api-key=k1"),
            ("number(path:2)", "path:2=07"),
            ("number(path:2)", "number(path:2)=7"),
            ("secret(query:q)", "query:q=k1"),
            ("'everyone'", "everyone"),
            ("method", "method:FETCH"),
            ("route", "route:/goods/{id}"),
        ] {
            assert!(!can(expr, key), "{expr}: {key}");
        }
        assert!(!can("user", &format!("user:{}", "x".repeat(129))));
        assert!(can("header:x", &format!("header:x={}", "x".repeat(129))), "it is digested");
    }

    #[test]
    fn a_segment_that_says_nothing_is_told_with_the_one_that_does() {
        let check = |key: &str, on: &[&str]| {
            let routes: Vec<Route> = on.iter().map(|text| Route::parse(text).unwrap()).collect();
            check_segments(&key.parse().unwrap(), &routes)
        };
        for (key, on, says) in [
            ("path:3", &["/goods/{id}"][..], "`path:3` is never there: no path of the rule has so many"),
            ("user else path:9", &["/goods/{id}", "/a/{b}/c"], "`path:9` is never there"),
            ("path:1", &["/goods/{id}"], "`path:1` is always `goods`: segments count from 1"),
            ("path:1", &["GET /goods/{id}", "POST /goods/{id}/order"], "`path:1` is always `goods`"),
            ("number(path:1)", &["/goods/{id}"], "`number(path:1)` is never a number, but always `goods`"),
        ] {
            let error = check(key, on).unwrap_err();
            assert!(error.starts_with(says) && error.ends_with("; write `path:2`"), "{key}: {error}");
        }
        assert!(check("path:1", &["/login"]).unwrap_err().ends_with("as in `user else ip`"));
        for (key, on) in [
            ("path:1", &[][..]),
            ("path:2", &["/goods/{id}"]),
            ("path:1", &["/goods/{id}", "/orders/{id}"]),
            ("path:1 + path:2", &["/goods/{id}"]),
            ("user + path:1", &["/goods/{id}"]),
            ("path:3", &["/goods/{id}", "/files/{*rest}"]),
            ("path:9", &["POST"]),
            ("number(path:1)", &["/2024/{id}", "/goods/{id}"]),
        ] {
            assert_eq!(check(key, on), Ok(()), "{key}");
        }
    }
}
