//! Header fields about the allowance: `RateLimit-Policy`, `RateLimit`, and the older
//! `X-RateLimit-*`.
//!
//! The first two are structured fields (RFC 9651) as in the IETF draft
//! `httpapi-ratelimit-headers`. An item of `RateLimit-Policy` is written once, with its
//! [`Quota`](crate::rules::Quota).

use crate::http::response::base64;
use crate::http::response::headers::Headers;
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
    policy: Option<HeaderValue>,
    limit: Option<HeaderValue>,
    legacy: Option<Box<[HeaderValue; 3]>>,
}

impl Fields {
    /// The fields about the limits in force among these; none if there is no such limit.
    pub(crate) fn of<'a>(headers: &Headers, records: impl Iterator<Item = Record<'a>>) -> Option<Self> {
        if !headers.standard && !headers.legacy {
            return None;
        }
        let mut fields: SmallVec<[LimitField<'a>; 2]> = SmallVec::new();
        fields.extend(records.filter_map(|record| LimitField::of(&record)));
        if fields.is_empty() {
            return None;
        }
        let (policy, limit) = if headers.standard { standard(&fields) } else { (None, None) };
        let legacy = if headers.legacy { legacy(&fields) } else { None };
        Some(Self { policy, limit, legacy })
    }

    pub(crate) fn add_to(self, headers: &mut HeaderMap) {
        if let (Some(policy), Some(limit)) = (self.policy, self.limit) {
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
    /// What is left and when all of it is back; none of a limit that was not decided.
    left: Option<Left>,
    /// The key, if clients may see it: `pk`.
    key: Option<&'a [u8]>,
}

#[derive(Clone, Copy)]
struct Left {
    units: u64,
    reset_secs: u64,
}

impl<'a> LimitField<'a> {
    fn of(record: &Record<'a>) -> Option<Self> {
        let (quota, decision) = (record.quota()?, record.decision()?);
        if record.is_shadow() {
            return None;
        }
        let left = || Left { units: decision.remaining(), reset_secs: decision.reset_seconds() };
        let key = record.key().filter(|_| record.shows_key());
        Some(Self {
            name: record.policy(),
            quota,
            left: decision.is_checked().then(left),
            key: key.map(|key| key.as_bytes()),
        })
    }

    /// `"checkout";r=12;t=1`
    fn write(&self, left: Left, line: &mut Line) {
        line.push(b'"');
        // Names of gates are letters, digits and `._-:/`.
        line.extend_from_slice(self.name.as_bytes());
        line.extend_from_slice(b"\";r=");
        push_number(line, left.units.min(INTEGER_MAX));
        if self.quota.window_secs().is_some() {
            line.extend_from_slice(b";t=");
            push_number(line, left.reset_secs);
        }
        if let Some(key) = self.key {
            line.extend_from_slice(b";pk=:");
            line.extend_from_slice(base64::encode(key, true).as_bytes());
            line.push(b':');
        }
    }
}

fn standard(fields: &[LimitField<'_>]) -> (Option<HeaderValue>, Option<HeaderValue>) {
    let policy = match fields {
        [only] => HeaderValue::from_maybe_shared(only.quota.policy_item().clone()).ok(),
        all => {
            let items: Vec<&[u8]> = all.iter().map(|field| &**field.quota.policy_item()).collect();
            HeaderValue::from_bytes(&items.join(&b", "[..])).ok()
        }
    };
    let mut limits = Line::new();
    for (field, left) in fields.iter().filter_map(|field| Some((field, field.left?))) {
        if !limits.is_empty() {
            limits.extend_from_slice(b", ");
        }
        field.write(left, &mut limits);
    }
    (policy, HeaderValue::from_bytes(&limits).ok())
}

/// Those of the limit that has the least left. A limit that was not decided has none.
fn legacy(fields: &[LimitField<'_>]) -> Option<Box<[HeaderValue; 3]>> {
    let decided = fields.iter().filter_map(|field| Some((field.quota, field.left?)));
    let (quota, left) = decided.min_by_key(|(_, left)| left.units)?;
    Some(Box::new([quota.units(), left.units, left.reset_secs].map(HeaderValue::from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_no_limit_nothing_is_said() {
        assert!(Fields::of(&Headers::standard().legacy(), std::iter::empty()).is_none());
    }
}
