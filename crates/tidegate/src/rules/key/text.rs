//! The grammar of keys: `part + part else part`.
//!
//! One grammar for code and config files. Names cannot contain what separates the parts of a written
//! key (`+`, `=`, `'`, spaces), so that written keys are unambiguous.

use crate::Key;
use crate::rules::key::{ClientValue, Form, KeyError, KeyExpr, Part, Source};

const TEXT_MAX: usize = 1024;
const PARTS_MAX: usize = 16;
const NAME_MAX: usize = 64;
const SEGMENT_MAX: usize = 64;
const POINTER_DEPTH_MAX: usize = 16;
const EXAMPLE: &str = "user else ip";

/// The kinds of parts, which are also how keys begin. No other kind is read, and no function has the
/// name of one.
pub(crate) const KINDS: [&str; 10] =
    ["ip", "user", "header", "path", "query", "cookie", "method", "route", "json", "entry"];

pub(crate) fn parse(text: &str) -> Result<KeyExpr, KeyError> {
    if text.len() > TEXT_MAX {
        return error(format!("a key is at most {TEXT_MAX} bytes, this one has {}", text.len()), EXAMPLE);
    }
    let (mut alternatives, mut current) = (Vec::new(), Vec::new());
    // True after a part: what comes next is `+` or `else`.
    let mut is_whole = false;
    for token in tokens(text)? {
        match token {
            "+" | "else" if !is_whole => break,
            "+" => {}
            "else" => alternatives.push(std::mem::take(&mut current)),
            token if is_whole => {
                let what = format!("`+` or `else` is missing before `{}`", Key::new(token));
                return error(what, "'goods' + path:2 else ip");
            }
            token => current.push(part(token)?),
        }
        is_whole = !is_whole;
    }
    if !is_whole {
        return error(format!("a part is missing in `{}`", Key::new(text)), EXAMPLE);
    }
    alternatives.push(current);
    if alternatives.iter().map(Vec::len).sum::<usize>() > PARTS_MAX {
        return error(format!("a key has at most {PARTS_MAX} parts"), EXAMPLE);
    }
    Ok(KeyExpr { alternatives })
}

/// Words, `+`, and constants in their quotes.
fn tokens(text: &str) -> Result<Vec<&str>, KeyError> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '+' => 1,
            '\'' => match rest[1..].find('\'') {
                Some(constant) => constant + 2,
                None => return error("the second `'` of a constant is missing", "'everyone'"),
            },
            _ => rest.find(|c: char| c.is_whitespace() || c == '+' || c == '\'').unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    Ok(tokens)
}

fn part(word: &str) -> Result<Part, KeyError> {
    match (word, word.split_once('(')) {
        ("ip", _) => Ok(Part::Ip),
        ("user", _) => Ok(Part::User),
        ("method", _) => Ok(Part::Method),
        ("route", _) => Ok(Part::Route),
        (_, Some(("number", inner))) => number(word, inner),
        (_, Some(("secret", inner))) => secret(word, inner),
        _ if word.starts_with('\'') => constant(word),
        _ => value(word).map(Part::Value),
    }
}

fn value(word: &str) -> Result<ClientValue, KeyError> {
    let (kind, name) = word.split_once(':').map_or((word, None), |(kind, name)| (kind, Some(name)));
    if !KINDS.contains(&kind) {
        return unknown(word);
    }
    let (source, name) = match (kind, name) {
        ("header", Some(name)) => (Source::Header, header(name)?),
        ("path", Some(number)) => {
            let number = segment(number)?;
            (Source::Path(number), number.to_string())
        }
        ("query", Some(name)) => (Source::Query, check_name(kind, name)?.into()),
        ("cookie", Some(name)) => (Source::Cookie, check_name(kind, name)?.into()),
        ("entry", Some(name)) => (Source::Entry, check_name(kind, name)?.into()),
        ("json", Some(pointer)) => (Source::Json, self::pointer(pointer)?.into()),
        ("header" | "query" | "cookie" | "entry", None) => {
            return error(format!("`{kind}` needs a name"), "header:x-api-key");
        }
        ("path", None) => return error("`path` needs the number of a segment", "path:2"),
        ("json", None) => return error("`json` needs a pointer", "json:/order/goodsId"),
        _ => return unknown(word),
    };
    let tag = format!("{kind}:{name}=").into();
    let name = name.into_boxed_str();
    Ok(ClientValue { source, name, form: Form::Plain, tag })
}

fn unknown(word: &str) -> Result<ClientValue, KeyError> {
    let what = format!(
        "`{}` is not a part of a key (ip, user, header:…, path:…, query:…, cookie:…, method, route, json:…, \
         entry:…, number(…), secret(…), 'constant')",
        Key::new(word)
    );
    error(what, EXAMPLE)
}

/// `path:2)` of `number(path:2)`.
fn number(word: &str, inner: &str) -> Result<Part, KeyError> {
    if let Some(value) = in_parentheses(inner)? {
        return Ok(Part::Value(ClientValue { form: Form::Number, ..value }));
    }
    let what = format!(
        "`number(…)` needs one `header:…`, `path:…`, `query:…`, `cookie:…`, `json:…` or `entry:…` without \
         spaces around it, not `{}`",
        Key::new(word)
    );
    error(what, "number(path:2)")
}

/// `query:token)` of `secret(query:token)`.
fn secret(word: &str, inner: &str) -> Result<Part, KeyError> {
    if let Some(value) = in_parentheses(inner)?.filter(|value| !value.is_secret()) {
        let tag = format!("secret({})=", value.tag.trim_end_matches('=')).into();
        return Ok(Part::Value(ClientValue { form: Form::Secret, tag, ..value }));
    }
    let what = format!(
        "`secret(…)` needs one `path:…`, `query:…`, `json:…` or `entry:…` without spaces around it, not `{}`; \
         `header:…` and `cookie:…` are secret without it",
        Key::new(word)
    );
    error(what, "secret(query:token)")
}

/// The value before a `)`. Values within each other could go as deep as the text is long.
fn in_parentheses(inner: &str) -> Result<Option<ClientValue>, KeyError> {
    let is_nested = inner.starts_with("number(") || inner.starts_with("secret(");
    match inner.strip_suffix(')').filter(|_| !is_nested).map(part).transpose()? {
        Some(Part::Value(value)) => Ok(Some(value)),
        _ => Ok(None),
    }
}

fn constant(text: &str) -> Result<Part, KeyError> {
    let constant = text.trim_matches('\'');
    let is_plain = |c: char| !c.is_control() && c != '+' && c != '%';
    if constant.is_empty() || constant.len() > NAME_MAX || !constant.chars().all(is_plain) {
        let what =
            format!("a constant is 1 to {NAME_MAX} bytes without `+` and `%`, not `{}`", Key::new(constant));
        return error(what, "'everyone'");
    }
    Ok(Part::Constant(text.into()))
}

fn header(name: &str) -> Result<String, KeyError> {
    // The characters of a field name (RFC 9110, 5.6.2), without those that separate parts of a key.
    let is_part = |c: char| c.is_ascii_alphanumeric() || "!#$&*-.^_`|~".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_part) {
        return error(format!("`{}` is not the name of a header", Key::new(name)), "header:x-api-key");
    }
    Ok(name.to_ascii_lowercase())
}

fn segment(number: &str) -> Result<usize, KeyError> {
    match number.parse() {
        Ok(number) if (1..=SEGMENT_MAX).contains(&number) => Ok(number),
        _ => error(
            format!("`path:` needs a number from 1 to {SEGMENT_MAX}, not `{}`", Key::new(number)),
            "path:2",
        ),
    }
}

fn pointer(text: &str) -> Result<&str, KeyError> {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '=' | '%');
    let tildes_are_escapes = text.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
    if !text.starts_with('/')
        || text.len() > 4 * NAME_MAX
        || !text.chars().all(is_plain)
        || text.matches('/').count() > POINTER_DEPTH_MAX
        || !tildes_are_escapes
    {
        let what = format!(
            "`json:` needs a JSON pointer (RFC 6901) of at most {POINTER_DEPTH_MAX} steps without `=`, `%`, `+` \
             and spaces, not `{}`",
            Key::new(text)
        );
        return error(what, "json:/order/goodsId");
    }
    Ok(text)
}

/// Names of query parameters, cookies and functions.
pub(crate) fn check_name<'a>(kind: &str, name: &'a str) -> Result<&'a str, KeyError> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-[]$@".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_part) {
        let what = format!(
            "`{kind}:` needs a name of 1 to {NAME_MAX} letters, digits or any of `._-[]$@`, not `{}`",
            Key::new(name)
        );
        return error(what, "query:goodsId");
    }
    Ok(name)
}

fn error<T>(what: impl Into<String>, example: &'static str) -> Result<T, KeyError> {
    Err(KeyError { what: what.into(), example })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_was_read() {
        for text in [
            "ip",
            "user else ip",
            "'goods' + path:2",
            "header:x-api-key + method else cookie:session else route",
            "query:goodsId + json:/order/0/goods~1Id",
            "number(path:2) + number(json:/a(b)) else number(header:x-id)",
            "secret(query:token) + secret(json:/pin) else secret(path:2)",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        assert_eq!(parse("  user+ip   else 'a b'").unwrap().to_string(), "user + ip else 'a b'");
        assert_eq!(parse("header:X-Api-Key").unwrap().to_string(), "header:x-api-key");
    }

    #[test]
    fn what_is_not_a_key_is_reported() {
        for (text, says) in [
            ("", "a part is missing"),
            ("user else", "a part is missing"),
            ("+ user", "a part is missing"),
            ("user ip", "`+` or `else` is missing before `ip`"),
            ("user 'x'", "missing before `'x'`"),
            ("'x", "the second `'`"),
            ("''", "a constant is"),
            ("'a+b'", "a constant is"),
            ("path:0", "a number from 1"),
            ("path:99999", "a number from 1"),
            ("path", "needs the number"),
            ("header:a b", "missing before `b`"),
            ("header:", "not the name of a header"),
            ("query:a=b", "needs a name"),
            ("json:order", "JSON pointer"),
            ("json:/a~2", "JSON pointer"),
            ("fn:x", "not a part of a key"),
            ("number(ip)", "`number(…)` needs one"),
            ("number(path:2", "`number(…)` needs one"),
            ("number(number(path:2))", "`number(…)` needs one"),
            ("number( path:2)", "`number(…)` needs one"),
            ("number(path:x)", "a number from 1"),
            ("number(usr)", "not a part of a key"),
            ("secret(ip)", "`secret(…)` needs one"),
            ("secret(header:x-api-key)", "are secret without it"),
            ("secret(number(path:2))", "`secret(…)` needs one"),
            ("number(secret(path:2))", "`number(…)` needs one"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
            assert!(error.contains("write for example"), "{text}: {error}");
        }
        let error = parse("x").unwrap_err().to_string();
        assert!(KINDS.iter().all(|kind| error.contains(kind)), "{error}");
        assert!(parse(&"ip + ".repeat(1000)).is_err());
        assert!(parse(&["ip"; 17].join(" + ")).is_err());
    }
}
