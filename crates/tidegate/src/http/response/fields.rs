//! Header fields about the allowance: `RateLimit-Policy`, `RateLimit`, and the older
//! `X-RateLimit-*`.
//!
//! The first two are structured fields (RFC 9651) as in the IETF draft
//! `httpapi-ratelimit-headers`. An item of `RateLimit-Policy` is written once, with its
//! [`Quota`](crate::rules::Quota).

use crate::decision::Decision;
use crate::http::response::base64;
use crate::http::response::headers::Headers;
use crate::rules::quota::INTEGER_MAX;
use crate::rules::{Quota, Record};
use http::{HeaderMap, HeaderName, HeaderValue};

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const LEGACY: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// The fields of one response.
#[derive(Debug)]
pub(crate) struct Fields {
    /// `RateLimit-Policy` and `RateLimit`.
    standard: Option<[HeaderValue; 2]>,
    legacy: Option<Box<[HeaderValue; 3]>>,
}

impl Fields {
    /// The fields about the limits in force among these; none if there is no such limit.
    #[inline]
    pub(crate) fn of(headers: &Headers, records: &[Record<'_>]) -> Option<Self> {
        if !(headers.standard || headers.legacy) || limits(records).next().is_none() {
            return None;
        }
        let standard = if headers.standard { standard(records) } else { None };
        let legacy = if headers.legacy { legacy(records) } else { None };
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

/// The record of a limit in force, its quota, and what was decided.
type LimitRecord<'a, 'r> = (&'r Record<'a>, &'a Quota, &'r Decision);

/// The limits in force among these that were decided.
fn limits<'a, 'r>(records: &'r [Record<'a>]) -> impl Iterator<Item = LimitRecord<'a, 'r>> {
    let in_force = records.iter().filter(|record| !record.is_shadow());
    in_force.filter_map(|record| Some((record, record.quota()?, record.decision()?)))
}

/// What is left of a limit that was not checked is not known.
fn checked<'a, 'r>(records: &'r [Record<'a>]) -> impl Iterator<Item = LimitRecord<'a, 'r>> {
    limits(records).filter(|(_, _, decision)| decision.is_checked())
}

fn standard(records: &[Record<'_>]) -> Option<[HeaderValue; 2]> {
    let mut items = limits(records).map(|(_, quota, _)| quota.policy_item());
    let policy = match (items.next()?, items.next()) {
        (only, None) => HeaderValue::from_maybe_shared(only.clone()),
        (first, Some(second)) => {
            let items: Vec<&[u8]> = [first, second].into_iter().chain(items).map(|item| &**item).collect();
            HeaderValue::from_bytes(&items.join(&b", "[..]))
        }
    };
    let mut line = String::with_capacity(64);
    for (record, quota, decision) in checked(records) {
        if !line.is_empty() {
            line.push_str(", ");
        }
        write_limit(&mut line, record, quota, decision);
    }
    Some([policy.ok()?, HeaderValue::from_str(&line).ok()?])
}

/// `"checkout";r=12;t=1`
#[inline]
fn write_limit(line: &mut String, record: &Record<'_>, quota: &Quota, decision: &Decision) {
    line.push('"');
    // Names of gates are letters, digits and `._-:/`.
    line.push_str(record.policy());
    line.push_str("\";r=");
    // Not by `write!`, which takes longer than a decision.
    line.push_str(itoa::Buffer::new().format(decision.remaining().min(INTEGER_MAX)));
    if quota.window_secs().is_some() {
        line.push_str(";t=");
        line.push_str(itoa::Buffer::new().format(decision.reset_seconds()));
    }
    if let Some(key) = record.key().filter(|_| record.shows_key()) {
        line.push_str(";pk=:");
        line.push_str(&base64::encode(key.as_bytes(), true));
        line.push(':');
    }
}

/// Those of the limit that has the least left.
fn legacy(records: &[Record<'_>]) -> Option<Box<[HeaderValue; 3]>> {
    let (_, quota, decision) = checked(records).min_by_key(|(_, _, decision)| decision.remaining())?;
    let numbers = [quota.units(), decision.remaining(), decision.reset_seconds()];
    Some(Box::new(numbers.map(HeaderValue::from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_no_limit_nothing_is_said() {
        assert!(Fields::of(&Headers::standard().legacy(), &[]).is_none());
    }
}
