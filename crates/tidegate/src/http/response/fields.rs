//! Header fields about the allowance: `RateLimit-Policy`, `RateLimit`, and the older
//! `X-RateLimit-*`.
//!
//! The first two are structured fields (RFC 9651) as in the IETF draft
//! `httpapi-ratelimit-headers`. An item of `RateLimit-Policy` is written once, with its
//! [`Quota`](crate::rules::Quota).

use crate::decision::Decision;
use crate::http::response::base64;
use crate::http::response::headers::Headers;
use crate::key::Key;
use crate::rules::quota::INTEGER_MAX;
use crate::rules::text::push_number;
use crate::rules::{Quota, Record};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const LEGACY: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

type Line = SmallVec<[u8; 128]>;

/// The fields of one response.
#[derive(Debug)]
pub(crate) struct Fields {
    /// `RateLimit-Policy` and `RateLimit`.
    standard: Option<[HeaderValue; 2]>,
    legacy: Option<Box<[HeaderValue; 3]>>,
}

impl Fields {
    /// The fields about the limits in force among these; none if there is no such limit.
    pub(crate) fn of<'a>(headers: &Headers, records: impl Iterator<Item = Record<'a>>) -> Option<Self> {
        if !headers.standard && !headers.legacy {
            return None;
        }
        let fields: SmallVec<[LimitField<'a>; 2]> =
            records.filter_map(|record| LimitField::of(&record)).collect();
        if fields.is_empty() {
            return None;
        }
        let standard = if headers.standard { standard(&fields) } else { None };
        let legacy = if headers.legacy { legacy(&fields) } else { None };
        Some(Self { standard, legacy })
    }

    pub(crate) fn add_to(self, headers: &mut HeaderMap) {
        if let Some([policy, limit]) = self.standard {
            headers.append(RATELIMIT_POLICY, policy);
            headers.append(RATELIMIT, limit);
        }
        for (name, value) in LEGACY.into_iter().zip(self.legacy.into_iter().flat_map(|values| *values)) {
            headers.entry(name).or_insert(value);
        }
    }
}

/// One limit of a response.
struct LimitField<'a> {
    name: &'a str,
    quota: &'a Quota,
    decision: Decision,
    /// The key, if clients may see it: `pk`.
    key: Option<Key<'a>>,
}

impl<'a> LimitField<'a> {
    fn of(record: &Record<'a>) -> Option<Self> {
        let (quota, decision) = (record.quota()?, *record.decision()?);
        let key = record.key().filter(|_| record.shows_key());
        (!record.is_shadow()).then(|| Self { name: record.policy(), quota, decision, key })
    }

    /// `"checkout";r=12;t=1`
    fn write(&self, line: &mut Line) {
        line.push(b'"');
        // Names of gates are letters, digits and `._-:/`.
        line.extend_from_slice(self.name.as_bytes());
        line.extend_from_slice(b"\";r=");
        push_number(line, self.decision.remaining().min(INTEGER_MAX));
        if self.quota.window_secs().is_some() {
            line.extend_from_slice(b";t=");
            push_number(line, self.decision.reset_seconds());
        }
        if let Some(key) = self.key {
            line.extend_from_slice(b";pk=:");
            line.extend_from_slice(base64::encode(key.as_bytes(), true).as_bytes());
            line.push(b':');
        }
    }
}

/// What is left of a limit that was not decided is not known.
fn decided<'a, 'f>(fields: &'f [LimitField<'a>]) -> impl Iterator<Item = &'f LimitField<'a>> {
    fields.iter().filter(|field| field.decision.is_checked())
}

fn standard(fields: &[LimitField<'_>]) -> Option<[HeaderValue; 2]> {
    let policy = match fields {
        [only] => HeaderValue::from_maybe_shared(only.quota.policy_item().clone()),
        all => {
            let items: Vec<&[u8]> = all.iter().map(|field| &**field.quota.policy_item()).collect();
            HeaderValue::from_bytes(&items.join(&b", "[..]))
        }
    };
    let mut limits = Line::new();
    for field in decided(fields) {
        if !limits.is_empty() {
            limits.extend_from_slice(b", ");
        }
        field.write(&mut limits);
    }
    Some([policy.ok()?, HeaderValue::from_bytes(&limits).ok()?])
}

/// Those of the limit that has the least left.
fn legacy(fields: &[LimitField<'_>]) -> Option<Box<[HeaderValue; 3]>> {
    let LimitField { quota, decision, .. } =
        decided(fields).min_by_key(|field| field.decision.remaining())?;
    let numbers = [quota.units(), decision.remaining(), decision.reset_seconds()];
    Some(Box::new(numbers.map(HeaderValue::from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_no_limit_nothing_is_said() {
        assert!(Fields::of(&Headers::standard().legacy(), std::iter::empty()).is_none());
    }
}
