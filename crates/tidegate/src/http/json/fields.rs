//! Fields of a JSON body, found without building the document.
//!
//! The parser goes to each pointer and skips everything else, so it neither copies what a client
//! sends nor recurses into it. A member that is there twice on the way makes the field ambiguous:
//! programs differ in which one they use. As a key, an ambiguous field shares an allowance or is
//! refused; as a cost, it is the maximum, or a client could pay the least by sending it twice.

use crate::rules::Fact;
use http::Extensions;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

/// The fields that the [`JsonLayer`](crate::http::JsonLayer)s around a guard have read, in the
/// request's extensions: values by their pointers.
#[derive(Clone, Debug, Default)]
pub(crate) struct JsonFields(pub(crate) HashMap<Box<str>, JsonField>);

/// The value at a pointer: a string as it is, a number (beyond 64 bits the nearest double), a
/// boolean. Missing also for `null`, and where there is no body. Ambiguous for an object or a list,
/// a member that is there twice, and a body that is not JSON or was not read.
pub(crate) type JsonField = Fact<Box<str>>;

impl JsonFields {
    /// Adds the fields of a body at these pointers to those that outer layers have read. The body is
    /// ambiguous where it was not read: too long, too slow, or of another type.
    ///
    /// Where both have read a field, the inner layer counts: it is nearer to the service. A value that
    /// only an outer layer has read stays: its bound may be higher.
    pub(crate) fn add(extensions: &mut Extensions, pointers: Vec<Box<str>>, body: Fact<&[u8]>) {
        let Self(mut fields) = extensions.remove().unwrap_or_default();
        for pointer in pointers {
            match body {
                Fact::Found(body) => {
                    let field = field(body, &pointer).unwrap_or(Fact::Ambiguous);
                    fields.insert(pointer, field);
                }
                Fact::Missing => drop(fields.insert(pointer, Fact::Missing)),
                Fact::Ambiguous => drop(fields.entry(pointer).or_insert(Fact::Ambiguous)),
            }
        }
        extensions.insert(Self(fields));
    }
}

fn field(body: &[u8], pointer: &str) -> serde_json::Result<JsonField> {
    let steps: Vec<Cow<'_, str>> = pointer.split('/').skip(1).map(unescaped).collect();
    let mut json = serde_json::Deserializer::from_slice(body);
    let found = PointerStep(&steps).deserialize(&mut json)?;
    json.end()?;
    Ok(found)
}

/// `~1` is `/`, `~0` is `~` (RFC 6901).
fn unescaped(step: &str) -> Cow<'_, str> {
    if step.contains('~') { step.replace("~1", "/").replace("~0", "~").into() } else { step.into() }
}

/// The steps that are left.
struct PointerStep<'a>(&'a [Cow<'a, str>]);

impl<'de> DeserializeSeed<'de> for PointerStep<'_> {
    type Value = JsonField;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl PointerStep<'_> {
    /// This value, if it is at the last step: there is nothing within it.
    fn end(&self, value: JsonField) -> JsonField {
        if self.0.is_empty() { value } else { Fact::Missing }
    }
}

/// Methods of a visitor for values that are their text.
macro_rules! visit_as_text {
    ($($visit:ident: $value:ty),*) => {
        $(fn $visit<E>(self, value: $value) -> Result<JsonField, E> {
            Ok(self.end(Fact::Found(value.to_string().into())))
        })*
    };
}

impl<'de> Visitor<'de> for PointerStep<'_> {
    type Value = JsonField;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    visit_as_text!(visit_str: &str, visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64);

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Fact::Missing)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let step = self.0.split_first();
        let (mut found, mut times) = (self.end(Fact::Ambiguous), 0);
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            match step {
                Some((own, rest)) if *own == name => {
                    found = map.next_value_seed(PointerStep(rest))?;
                    times += 1;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(if times > 1 { Fact::Ambiguous } else { found })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let step = self.0.split_first().and_then(|(own, rest)| Some((index(own)?, rest)));
        let (mut found, mut at) = (self.end(Fact::Ambiguous), 0usize);
        loop {
            let more = match step {
                Some((own, rest)) if own == at => {
                    items.next_element_seed(PointerStep(rest))?.map(|item| found = item).is_some()
                }
                _ => items.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                return Ok(found);
            }
            at += 1;
        }
    }
}

/// An index of an array: digits without a leading zero.
fn index(step: &str) -> Option<usize> {
    let is_plain = step == "0" || !step.starts_with(['0', '+']);
    step.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pointer: &str, json: &str) -> Option<String> {
        match look(pointer, json) {
            Fact::Found(text) => Some(text.into()),
            Fact::Missing | Fact::Ambiguous => None,
        }
    }

    fn look(pointer: &str, json: &str) -> JsonField {
        let mut extensions = Extensions::new();
        JsonFields::add(&mut extensions, vec![pointer.into()], Fact::Found(json.as_bytes()));
        extensions.get::<JsonFields>().unwrap().0[pointer].clone()
    }

    #[test]
    fn a_pointer_finds_its_field() {
        let json = r#" {"a": [1, {"b/c": "x\ny", "~": true}], "order": {"goodsId": 7}, "n": -1.5} "#;
        assert_eq!(at("/order/goodsId", json).as_deref(), Some("7"));
        assert_eq!(at("/a/0", json).as_deref(), Some("1"));
        assert_eq!(at("/a/1/b~1c", json).as_deref(), Some("x\ny"));
        assert_eq!(at("/a/1/~0", json).as_deref(), Some("true"));
        assert_eq!(at("/n", json).as_deref(), Some("-1.5"));
        for missing in ["/a/2", "/a/01", "/a/-", "/x", "/n/0", "/order/goodsId/0"] {
            assert_eq!(look(missing, json), Fact::Missing, "{missing}");
        }
        for ambiguous in ["/a", "/order", "/a/1"] {
            assert_eq!(look(ambiguous, json), Fact::Ambiguous, "{ambiguous}");
        }
        assert_eq!(look("/a", r#"{"a": null}"#), Fact::Missing);
    }

    #[test]
    fn what_programs_read_differently_is_ambiguous() {
        for (pointer, json) in [
            ("/a", r#"{"a": 1, "a": 2}"#),
            ("/a/b", r#"{"a": {"b": 1}, "a": {"c": 2}}"#),
            ("/a", r#"{"a": 1} {"a": 2}"#),
            ("/a", r#"{"a": 1,}"#),
            ("/a", r#"{"a": 1"#),
            ("/a", r#"{"\u0061": 1, "a": 2}"#),
            ("/a", ""),
        ] {
            assert_eq!(look(pointer, json), Fact::Ambiguous, "{json}");
        }
        assert_eq!(look("/a", "\"a\""), Fact::Missing);
    }

    #[test]
    fn depth_takes_no_stack() {
        let deep = "[".repeat(60_000);
        assert_eq!(at("/a", &format!("{{\"x\": {deep}")), None);
        let closed = format!("{{\"x\": {deep}{}, \"a\": 1}}", "]".repeat(60_000));
        // Skipped without recursion.
        assert_eq!(at("/a", &closed).as_deref(), Some("1"));
    }
}
