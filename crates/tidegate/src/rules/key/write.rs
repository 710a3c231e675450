//! A key as bytes: readable for an operator, unambiguous for the store, bounded, and without
//! secrets.
//!
//! Every part is its tag and its value (`user:42`, `path:2=7`), parts are joined by `+`. Tags and
//! constants never contain `+` or `%`, and in values both are escaped, so the bytes can be split in
//! one way only. How a tag and a value are written is in [`value`](crate::rules::key::value). Keys up
//! to 96 bytes need no allocation.

use crate::rules::facts::{Fact, FactValue, Facts};
use crate::rules::key::value::{
    Secrets, VALUE_MAX, method, write_client, write_route, write_tag, write_value,
};
use crate::rules::key::{KeyBytes, KeyExpr, Part};
use crate::rules::text::{PartText, decoded, segment};
use std::borrow::Cow;

/// The source of a key: a request, and the pattern of its rule.
pub(crate) struct KeyInput<'a> {
    pub(crate) facts: &'a dyn Facts,
    /// The pattern of the rule that matches.
    pub(crate) route: Option<&'a str>,
    pub(crate) secrets: Secrets,
    /// Whether this reading of the path matches the rule.
    pub(crate) fits: &'a dyn Fn(&str) -> bool,
}

/// Writes the key of a request: the first alternative of which no part is missing.
pub(crate) fn write(expr: &KeyExpr, input: &KeyInput<'_>, key: &mut KeyBytes) -> Fact<()> {
    for parts in &expr.alternatives {
        match write_all(parts, input, key) {
            Fact::Missing => {}
            written => return written,
        }
    }
    Fact::Missing
}

fn write_all(parts: &[Part], input: &KeyInput<'_>, key: &mut KeyBytes) -> Fact<()> {
    key.clear();
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            key.push(b'+');
        }
        match write_part(part, input, key) {
            Fact::Found(()) => {}
            other => return other,
        }
    }
    Fact::Found(())
}

/// The value of a part as a number, for a cost; ambiguous if it is no number.
pub(crate) fn number(part: &Part, facts: &dyn Facts) -> Fact<u64> {
    match value(part, facts, &|_| true) {
        Fact::Found(value) => {
            let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
            number.map_or(Fact::Ambiguous, Fact::Found)
        }
        Fact::Missing => Fact::Missing,
        Fact::Ambiguous => Fact::Ambiguous,
    }
}

/// The value of a part that comes from the client.
fn value<'f>(part: &Part, facts: &'f dyn Facts, fits: &dyn Fn(&str) -> bool) -> Fact<FactValue<'f>> {
    match part {
        Part::Header(name) => facts.header(name),
        Part::Path(number) => path_segment(facts, *number, fits),
        Part::Query(name) => facts.query(name),
        Part::Cookie(name) => facts.cookie(name),
        Part::Json(pointer) => facts.json(pointer),
        Part::Entry(name) => facts.entry(name),
        Part::Number(part) | Part::Secret(part) => value(part, facts, fits),
        Part::Ip | Part::User | Part::Method | Part::Route | Part::Constant(_) | Part::Custom { .. } => {
            Fact::Missing
        }
    }
}

/// A segment of the path, decoded. Programs read some paths differently (`/goods/8/../7`): where two
/// readings that match the rule differ in it, the segment is ambiguous.
fn path_segment<'f>(facts: &'f dyn Facts, number: usize, fits: &dyn Fn(&str) -> bool) -> Fact<FactValue<'f>> {
    let Some(path) = facts.path() else { return Fact::Missing };
    let mut found: Option<Fact<FactValue<'f>>> = None;
    for reading in path.readings() {
        if !path.is_normal() && !fits(reading) {
            continue;
        }
        let own = match segment(reading, number) {
            None => Fact::Missing,
            // Not decoded: one differing reading is enough.
            Some(raw) if raw.len() > VALUE_MAX => return Fact::Ambiguous,
            Some(raw) => Fact::Found(decoded(raw, PartText::Path)),
        };
        if found.as_ref().is_some_and(|before| *before != own) {
            return Fact::Ambiguous;
        }
        found = Some(own);
    }
    found.unwrap_or(Fact::Missing)
}

fn write_part(part: &Part, input: &KeyInput<'_>, key: &mut KeyBytes) -> Fact<()> {
    let KeyInput { facts, route, secrets, fits } = *input;
    let value: FactValue<'_> = match part {
        Part::Ip => {
            let Some(client) = facts.client() else { return Fact::Missing };
            write_tag(part, key);
            write_client(key, client);
            return Fact::Found(());
        }
        Part::Method => {
            let Some(own) = facts.method() else { return Fact::Missing };
            write_tag(part, key);
            key.extend_from_slice(method(own).as_bytes());
            return Fact::Found(());
        }
        Part::Route => {
            let pattern = route.or_else(|| facts.route());
            let (Some(own), Some(pattern)) = (facts.method(), pattern) else { return Fact::Missing };
            write_tag(part, key);
            write_route(key, own, pattern);
            return Fact::Found(());
        }
        Part::Constant(_) => {
            write_tag(part, key);
            return Fact::Found(());
        }
        Part::User => match facts.user() {
            Some(user) => Cow::Borrowed(user.as_bytes()),
            None => return Fact::Missing,
        },
        Part::Custom { find, .. } => match find(facts) {
            Some(found) => Cow::Owned(found.into_bytes()),
            None => return Fact::Missing,
        },
        Part::Header(_)
        | Part::Path(_)
        | Part::Query(_)
        | Part::Cookie(_)
        | Part::Json(_)
        | Part::Entry(_)
        | Part::Number(_)
        | Part::Secret(_) => match value(part, facts, fits) {
            Fact::Found(value) => value,
            Fact::Missing => return Fact::Missing,
            Fact::Ambiguous => return Fact::Ambiguous,
        },
    };
    write_tag(part, key);
    write_value(part, &value, secrets, key)
}
