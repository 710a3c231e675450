//! A rule file as plain data, before anything in it has a meaning.
//!
//! One type for all formats of serde, read within bounds: nothing is allocated by a length that
//! the input declares, and nothing is nested deeper than a rule file is.

use crate::rules::file::error::{Result, RuleFileError};
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, Serialize, Serializer};
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

/// A file has at most so many bytes of text, counting [`VALUE_BYTES`] for each value.
pub(super) const BYTES_MAX: usize = 16 << 20;
const VALUE_BYTES: usize = 16;
/// Tables and lists within each other: file, rules, rule, list, keys, and one to spare.
const DEPTH_MAX: usize = 6;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum PlainValue {
    Text(String),
    Number(u64),
    Switch(bool),
    List(Vec<Self>),
    Table(Vec<(String, Self)>),
    /// What no field takes, as an error shows it.
    Other(String),
}

impl PlainValue {
    pub(super) fn text(self) -> Result<String> {
        if let Self::Text(text) = self { Ok(text) } else { Err(self.is_no("a text")) }
    }

    pub(super) fn number(self) -> Result<u64> {
        if let Self::Number(number) = self { Ok(number) } else { Err(self.is_no("a whole number")) }
    }

    pub(super) fn switch(self) -> Result<bool> {
        if let Self::Switch(is_on) = self { Ok(is_on) } else { Err(self.is_no("`true` or `false`")) }
    }

    pub(super) fn list(self) -> Result<Vec<Self>> {
        if let Self::List(items) = self { Ok(items) } else { Err(self.is_no("a list")) }
    }

    /// Reads each field of a table. A name stands in it once.
    pub(super) fn fields(self, mut read: impl FnMut(&str, Self) -> Result<()>) -> Result<()> {
        let Self::Table(fields) = self else { return Err(self.is_no("a table")) };
        let mut seen = HashSet::new();
        for (name, value) in fields {
            let twice = || RuleFileError::new("stands twice; leave one out");
            let is_first = seen.insert(name.clone()).then_some(()).ok_or_else(twice);
            is_first.and_then(|()| read(&name, value)).map_err(|error| error.at_field(&name))?;
        }
        Ok(())
    }

    /// A text, or a list of them, each read by `read`.
    pub(super) fn texts<T>(self, read: impl Fn(String) -> Result<T>) -> Result<Vec<T>> {
        match self {
            Self::Text(text) => Ok(vec![read(text)?]),
            Self::List(items) => {
                let read = |(at, item): (usize, Self)| {
                    item.text().and_then(&read).map_err(|error| error.at_item(at))
                };
                items.into_iter().enumerate().map(read).collect()
            }
            other => Err(other.is_no("a text or a list of texts")),
        }
    }

    /// The field of a table.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Table(fields) = self else { return None };
        fields.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    fn is_no(&self, needed: &str) -> RuleFileError {
        let what = match self {
            Self::Text(_) => "a text",
            Self::Number(_) => "a number",
            Self::Switch(true) => "`true`",
            Self::Switch(false) => "`false`",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Other(what) => what,
        };
        RuleFileError::new(format!("needs {needed}, not {what}"))
    }
}

impl Serialize for PlainValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) | Self::Other(text) => serializer.serialize_str(text),
            Self::Number(number) => serializer.serialize_u64(*number),
            Self::Switch(is_on) => serializer.serialize_bool(*is_on),
            Self::List(items) => serializer.collect_seq(items),
            Self::Table(fields) => serializer.collect_map(fields.iter().map(|(name, value)| (name, value))),
        }
    }
}

pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PlainValue, D::Error> {
    Bounded { depth: 0, left: &Cell::new(BYTES_MAX) }.deserialize(deserializer)
}

/// Reads a value within what is left.
#[derive(Clone, Copy)]
struct Bounded<'a> {
    depth: usize,
    left: &'a Cell<usize>,
}

impl Bounded<'_> {
    fn take<E: Error>(self, text: &str) -> Result<(), E> {
        let left = self.left.get().checked_sub(VALUE_BYTES + text.len());
        let what = "a rule file has at most 16 MiB, counting its texts and 16 bytes for each value";
        self.left.set(left.ok_or_else(|| E::custom(what))?);
        Ok(())
    }

    fn deeper<E: Error>(self) -> Result<Self, E> {
        self.take("")?;
        if self.depth == DEPTH_MAX {
            return Err(E::custom("no field of a rule file is nested so deeply"));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = PlainValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PlainValue, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = PlainValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, `true`, `false`, a list or a table")
    }

    fn visit_bool<E: Error>(self, is_on: bool) -> Result<PlainValue, E> {
        self.take("").map(|()| PlainValue::Switch(is_on))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<PlainValue, E> {
        self.take("").map(|()| PlainValue::Number(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<PlainValue, E> {
        self.take("")?;
        let negative = |_| PlainValue::Other(format!("`{number}`"));
        Ok(u64::try_from(number).map_or_else(negative, PlainValue::Number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<PlainValue, E> {
        self.take("").map(|()| PlainValue::Other(format!("`{number}`")))
    }

    fn visit_unit<E: Error>(self) -> Result<PlainValue, E> {
        self.take("").map(|()| PlainValue::Other("`null`".into()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PlainValue, E> {
        self.take(text).map(|()| PlainValue::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PlainValue, A::Error> {
        let (within, mut items) = (self.deeper()?, Vec::new());
        while let Some(item) = list.next_element_seed(within)? {
            items.push(item);
        }
        Ok(PlainValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<PlainValue, A::Error> {
        let (within, mut fields) = (self.deeper()?, Vec::new());
        while let Some(name) = table.next_key::<String>()? {
            self.take(&name)?;
            fields.push((name, table.next_value_seed(within)?));
        }
        Ok(PlainValue::Table(fields))
    }
}
