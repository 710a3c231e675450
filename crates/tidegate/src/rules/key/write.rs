//! A key as bytes: readable for an operator, unambiguous for the store, bounded, and without
//! secrets.
//!
//! Every part is its tag and its value (`user:42`, `path:2=7`), parts are joined by `+`. Tags and
//! constants never contain `+` or `%`, and in values both are escaped, so the bytes can be split in
//! one way only. How a value is written is in [`value`](crate::rules::key::value). Keys up
//! to 96 bytes need no allocation.

use crate::rules::facts::{Fact, FactValue, Facts};
use crate::rules::key::value::{Secrets, VALUE_MAX, method, write_client, write_route, write_value};
use crate::rules::key::{ClientValue, KeyBytes, Part, Source};
use crate::rules::rule_set::CompiledRule;
use crate::rules::text::{PartText, decoded, segment};
use std::borrow::Cow;

impl CompiledRule {
    /// Writes the key of a request: the first alternative of which no part is missing. `route` is the
    /// pattern that matches.
    pub(crate) fn write_key(&self, facts: &dyn Facts, route: Option<&str>, key: &mut KeyBytes) -> Fact<()> {
        'alternatives: for parts in &self.key.alternatives {
            key.clear();
            for (at, part) in parts.iter().enumerate() {
                if at > 0 {
                    key.push(b'+');
                }
                match self.write_part(part, facts, route, key) {
                    Fact::Found(()) => {}
                    Fact::Missing => continue 'alternatives,
                    Fact::Ambiguous => return Fact::Ambiguous,
                }
            }
            return Fact::Found(());
        }
        Fact::Missing
    }

    fn write_part(
        &self,
        part: &Part,
        facts: &dyn Facts,
        route: Option<&str>,
        key: &mut KeyBytes,
    ) -> Fact<()> {
        key.extend_from_slice(part.tag().as_bytes());
        let value = match part {
            Part::Constant(_) => return Fact::Found(()),
            Part::Ip => return Fact::from(facts.client()).map(|client| write_client(key, client)),
            Part::Method => {
                return Fact::from(facts.method()).map(|own| key.extend_from_slice(method(own).as_bytes()));
            }
            Part::Route => {
                let of_request = facts.method().zip(route.or_else(|| facts.route()));
                return Fact::from(of_request).map(|(own, pattern)| write_route(key, own, pattern));
            }
            Part::User => Fact::from(facts.user()).map(|user| Cow::Borrowed(user.as_bytes())),
            Part::Custom { find, .. } => Fact::from(find(facts)).map(|found| Cow::Owned(found.into_bytes())),
            Part::Value(value) => value.find(facts, &|path| self.fits(facts, path)),
        };
        let secrets = if self.shows_keys { Secrets::Whole } else { Secrets::Digested };
        value.and_then(|value| write_value(part, &value, secrets, key))
    }
}

impl ClientValue {
    /// It as a number, for a cost; ambiguous if it is no number.
    pub(crate) fn number(&self, facts: &dyn Facts) -> Fact<u64> {
        self.find(facts, &|_| true).and_then(|value| {
            let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
            number.map_or(Fact::Ambiguous, Fact::Found)
        })
    }

    fn find<'f>(&self, facts: &'f dyn Facts, fits: &dyn Fn(&str) -> bool) -> Fact<FactValue<'f>> {
        match self.source {
            Source::Header => facts.header(&self.name),
            Source::Path(number) => path_segment(facts, number, fits),
            Source::Query => facts.query(&self.name),
            Source::Cookie => facts.cookie(&self.name),
            Source::Json => facts.json(&self.name),
            Source::Entry => facts.entry(&self.name),
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
