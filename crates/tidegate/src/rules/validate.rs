//! Finds mistakes in rules that could never match: parts of a key that no path of the rule has, and
//! keys in lists in a form that no key of the rule has.
//!
//! Such a rule would otherwise build, and silently count all clients as one, or let through a client
//! that it should refuse.

use crate::Key;
use crate::key::is_cut;
use crate::rules::key::value::{is_pattern, is_plain_of, is_value, method, route_method, write_route};
use crate::rules::key::{ClientValue, Form, KeyBytes, KeyExpr, Part, Source};
use crate::rules::list::List;
use crate::rules::route::methods::is_token;
use crate::rules::route::{Route, SegmentAt};
use crate::rules::rule::Listed;
use crate::rules::rule_set::{CompiledRule, RuleSet};
use crate::rules::text::shortest_number;

/// # Errors
/// If a part of the key is a segment that no path of the routes has, or the key is the same
/// for all of them.
pub(crate) fn check_segments(key: &KeyExpr, routes: &[Route]) -> Result<(), String> {
    if routes.is_empty() {
        return Ok(());
    }
    for alternative in &key.alternatives {
        for part in alternative {
            let Some(ClientValue { source: Source::Path(number), form, .. }) = part.value() else { continue };
            if routes.iter().all(|route| route.segment(*number) == SegmentAt::Beyond) {
                let what = "no path of the rule has so many segments, which count from 1";
                return Err(format!("`{part}` is never there: {what}; {}", instead(routes)));
            }
            if let (Form::Number, Some(literal)) = (form, always(routes, *number))
                && shortest_number(literal).is_none()
            {
                let literal = Key::new(literal);
                return Err(format!(
                    "`{part}` is never a number, but always `{literal}`; {}",
                    instead(routes)
                ));
            }
        }
        let literal = |part: &Part| match part.value()? {
            ClientValue { source: Source::Path(number), form: Form::Plain, .. } => always(routes, *number),
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

/// Whether a client's key is written like this.
pub(crate) type ClientText = dyn Fn(&str) -> bool + Send + Sync;

/// # Errors
/// If a key of a list can be a key of none of these rules, with what to write. Not with the key
/// itself, which may be a secret.
pub(crate) fn check_lists(
    allow: &Listed,
    deny: &Listed,
    rules: &[&CompiledRule],
    client_text: &ClientText,
) -> Result<(), String> {
    for (name, list) in [("allow_keys", allow), ("deny_keys", deny)] {
        let is_idle = |key: &Vec<u8>| !rules.iter().any(|rule| rule.can_have(key, client_text));
        // Rules may come later.
        let idle = list.keys.iter().position(is_idle).filter(|_| !rules.is_empty());
        let Some(at) = idle else { continue };
        let number = at + 1;
        if is_cut(&list.keys[at]) {
            return Err(format!(
                "number {number} of `{name}` is a key that the log has cut: write all of it"
            ));
        }
        let forms: Vec<String> = rules.iter().flat_map(|rule| rule.key_forms()).collect();
        return Err(format!(
            "no key is written as number {number} of `{name}`: write {} (in a value `%2B` and `%25` for `+` and \
             `%`; for addresses there is `{}`)",
            forms.join(" or "),
            name.replace("keys", "networks"),
        ));
    }
    Ok(())
}

impl RuleSet {
    /// Warns that keys of one of the lists of all rules can be no key of these rules.
    pub(crate) fn warn_of_idle_keys(&self, name: &str, list: &List, client_text: &ClientText) {
        let is_idle = |key: &&[u8]| !self.rules.iter().any(|rule| rule.can_have(key, client_text));
        let idle = list.keys().filter(is_idle).count();
        if idle > 0 && !self.rules.is_empty() {
            tracing::warn!(
                target: "tidegate::rules",
                idle,
                "keys of `{name}` have no effect: no key of the rules in force is written like them"
            );
        }
    }
}

impl CompiledRule {
    /// Whether a key in a list can be one of the rule's: each part with its tag, and its value as it
    /// is written there.
    fn can_have(&self, key: &[u8], client_text: &ClientText) -> bool {
        let is_of = |parts: &Vec<Part>| {
            let mut texts = key.split(|byte| *byte == b'+');
            let mut fits =
                |part: &Part| texts.next().is_some_and(|text| self.can_have_part(part, text, client_text));
            parts.iter().all(&mut fits) && texts.next().is_none()
        };
        !is_cut(key) && self.key.alternatives.iter().any(is_of)
    }

    fn can_have_part(&self, part: &Part, text: &[u8], client_text: &ClientText) -> bool {
        let Some(value) = text.strip_prefix(part.tag().as_bytes()) else { return false };
        match part {
            Part::Constant(_) => value.is_empty(),
            Part::Ip => std::str::from_utf8(value).is_ok_and(client_text),
            Part::Method => std::str::from_utf8(value).is_ok_and(|own| is_token(own) && method(own) == own),
            Part::Route => self.can_have_route(value),
            part => is_value(part, value),
        }
    }

    /// Whether a request of the rule can have this method and pattern. Where the rule names no
    /// pattern, it is the router's.
    fn can_have_route(&self, text: &[u8]) -> bool {
        let Some(space) = text.iter().position(|byte| *byte == b' ') else { return false };
        let (method, pattern) = (&text[..space], &text[space + 1..]);
        let Ok(method) = std::str::from_utf8(method) else { return false };
        let is_method = is_token(method) && route_method(method) == method;
        let fits = |route: &Route| {
            route.method.as_deref().is_none_or(|own| route_method(own) == method)
                && route.pattern().map_or_else(|| is_pattern(pattern), |own| is_plain_of(own, pattern))
        };
        is_method && if self.routes.is_empty() { is_pattern(pattern) } else { self.routes.iter().any(fits) }
    }

    /// The forms of its keys: `user:…+path:2=…`.
    fn key_forms(&self) -> impl Iterator<Item = String> {
        let form = |part: &Part| match part {
            Part::Constant(text) => text.to_string(),
            Part::Route => match self.routes.first() {
                Some(route) if route.pattern.is_some() => {
                    let mut key = KeyBytes::new();
                    let method = route.method.as_deref().unwrap_or("GET");
                    write_route(&mut key, method, route.pattern().unwrap_or_default());
                    format!("route:{}", Key::new(&key))
                }
                _ => "route:GET /…".into(),
            },
            part => format!("{}…", part.tag()),
        };
        let join = move |parts: &Vec<Part>| {
            let forms: Vec<String> = parts.iter().map(form).collect();
            format!("`{}`", forms.join("+"))
        };
        self.key.alternatives.iter().map(join)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Rule, compile};

    #[test]
    fn a_key_in_a_list_is_written_as_keys_are() {
        let is_client = |text: &str| matches!(text, "203.0.113.9" | "2001:db8::/64");
        let client_text: &ClientText = &is_client;
        let can = |expr: &str, key: &str| {
            let rule = Rule::new("x", "1/s").by(expr);
            let drafts = compile::parse(vec![rule], client_text).unwrap();
            drafts[0].rule.can_have(key.as_bytes(), client_text)
        };
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
            ("user", "user:xxxxxxxxxxxxxxxx%#00112233445566778899aabbccddeeff"),
            ("number(header:x)", "header:x=7"),
            ("number(header:x)", "header:x=#6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2"),
            ("header:x", "header:x=%23abc"),
            ("header:x", "header:x=#abc"),
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
            ("route", "route:GET goods"),
            ("route", "route:HEAD /goods/{id}"),
            ("route", "route:PSOT /goods/{id}"),
            // The log never has this form: a secret is digested whole.
            ("header:x", "header:x=xxxxxxxxxxxxxxxx%#00112233445566778899aabbccddeeff"),
            ("user", "user:x%#00112233445566778899aabbccddeeff"),
            ("user", "user:%23abc"),
            ("number(header:x)", "header:x=07"),
            ("number(path:2)", "path:2=#6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2"),
        ] {
            assert!(!can(expr, key), "{expr}: {key}");
        }
        assert!(!can("user", &format!("user:{}", "x".repeat(129))));
        let route = |bytes: usize| format!("route:GET /{}", "x".repeat(bytes - 1));
        assert!(can("route", &route(128)) && !can("route", &route(129)), "a longer one is digested");
        assert!(
            !can("user", &Key::new(&format!("user:{}", "x".repeat(120))).to_string()),
            "the log has cut it"
        );
        assert!(can("header:x", &format!("header:x={}", "x".repeat(129))), "it is digested");
    }

    #[test]
    fn a_segment_that_says_nothing_is_reported_with_the_one_that_does() {
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
