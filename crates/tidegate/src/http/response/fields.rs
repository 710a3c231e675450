//! Header fields about the allowance: `RateLimit-Policy`, `RateLimit`, `Retry-After`, and
//! the older `X-RateLimit-*`.
//!
//! The first two are structured fields (RFC 9651) as in the IETF draft
//! `httpapi-ratelimit-headers`. Whatever does not change from request to request is
//! written once, when the rules are built.

use crate::decision::Decision;
use crate::http::response::headers::Headers;
use crate::{Algorithm, Limit};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const LEGACY: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];
/// The largest integer of a structured field.
const INTEGER_MAX: u64 = 999_999_999_999_999;

type Line = SmallVec<[u8; 128]>;

/// What never changes about one policy.
#[derive(Debug)]
pub(crate) struct PolicyText {
    /// `"checkout";q=1000;w=1`
    policy: HeaderValue,
    /// `"checkout";r=`
    remaining: Box<[u8]>,
    quota: u64,
    has_reset: bool,
    pub(crate) lasting: Option<&'static Lasting>,
}

impl PolicyText {
    pub(crate) fn new(name: &str, limit: &Limit) -> Self {
        Self { lasting: Lasting::of(name, limit), ..Self::alone(name, limit) }
    }

    fn alone(name: &str, limit: &Limit) -> Self {
        let (quota, window) = quota(limit);
        let text = match window {
            Some(seconds) => format!("\"{name}\";q={quota};w={seconds}"),
            None => format!("\"{name}\";q={quota};qu=\"concurrent-requests\""),
        };
        Self {
            // Names of gates are letters, digits and `._-:/`.
            policy: HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("")),
            remaining: format!("\"{name}\";r=").into_bytes().into(),
            quota,
            has_reset: window.is_some(),
            lasting: None,
        }
    }
}

/// The text of a policy in a form that is there until the process ends. Whatever can go
/// away has to be counted by everybody who holds it, so all cores would write the same few
/// words on every answer.
#[derive(Debug)]
pub(crate) struct Lasting {
    text: PolicyText,
    /// Both fields, for answers that have no others; `RateLimit` is to be filled in.
    head: HeaderMap,
    fresh: Fresh,
}

/// What a request leaves of a key that was unused, ready to be copied: most clients have
/// asked for nothing lately, so most answers say just this.
#[derive(Debug)]
struct Fresh {
    remaining: u64,
    seconds: u64,
    value: HeaderValue,
    head: HeaderMap,
}

/// Policies that have a lasting text. Only who changes limits all the time has more, and
/// the others are told as well, in a little more time.
const LASTING_MAX: usize = 1_024;

impl Lasting {
    fn of(name: &str, limit: &Limit) -> Option<&'static Self> {
        static KNOWN: Mutex<BTreeMap<String, &Lasting>> = Mutex::new(BTreeMap::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let key = format!("{name} {limit}");
        if !known.contains_key(&key) && known.len() < LASTING_MAX {
            known.insert(key.clone(), Box::leak(Box::new(Self::new(name, limit)?)));
        }
        known.get(&key).copied()
    }

    fn new(name: &str, limit: &Limit) -> Option<Self> {
        let lasting =
            |value: HeaderValue| Some(HeaderValue::from_static(value.to_str().ok()?.to_owned().leak()));
        let text = PolicyText::alone(name, limit);
        let text = PolicyText { policy: lasting(text.policy)?, ..text };
        let unit_us = limit.period().as_micros().div_ceil(u128::from(limit.amount().max(1)));
        let seconds = u64::try_from(unit_us.div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let remaining = limit.capacity().saturating_sub(1);
        let head = |limit: HeaderValue| {
            let mut head = HeaderMap::with_capacity(2);
            head.insert(RATELIMIT_POLICY, text.policy.clone());
            head.insert(RATELIMIT, limit);
            head
        };
        let value = lasting(text.value(remaining, seconds)?)?;
        let fresh = Fresh { remaining, seconds, head: head(value.clone()), value };
        Some(Self { head: head(HeaderValue::from_static("")), fresh, text })
    }

    #[inline]
    fn add_to(&self, headers: &mut HeaderMap, remaining: u64, seconds: u64) {
        let is_fresh = remaining == self.fresh.remaining && seconds == self.fresh.seconds;
        if is_fresh && headers.is_empty() {
            put(headers, &self.fresh.head);
        } else {
            self.add_other(headers, remaining, seconds, is_fresh);
        }
    }

    #[inline(never)]
    fn add_other(&self, headers: &mut HeaderMap, remaining: u64, seconds: u64, is_fresh: bool) {
        let value =
            if is_fresh { Some(self.fresh.value.clone()) } else { self.text.value(remaining, seconds) };
        let Some(value) = value else { return };
        if headers.is_empty() {
            put(headers, &self.head);
            // By name: the order of a map's fields is nobody's promise.
            if let Some((_, limit)) = headers.iter_mut().find(|(name, _)| **name == RATELIMIT) {
                *limit = value;
            }
        } else {
            headers.append(RATELIMIT_POLICY, self.text.policy.clone());
            headers.append(RATELIMIT, value);
        }
    }
}

/// Puts a copy of a head in the place of an empty one, in two thirds of the time of putting
/// both names in. The one place that copies, so that a copy is made where it is put.
#[inline(never)]
fn put(empty: &mut HeaderMap, head: &HeaderMap) {
    if empty.capacity() > 0 {
        *empty = HeaderMap::new();
    }
    // It has no allocation, which its three destructors would have to find out.
    std::mem::forget(std::mem::replace(empty, head.clone()));
}

/// The quota, and the whole seconds that it is for: what flows in that time, and never
/// less than what can be saved up.
fn quota(limit: &Limit) -> (u64, Option<u64>) {
    if let Algorithm::Concurrency { .. } = limit.algorithm() {
        return (limit.amount().min(INTEGER_MAX), None);
    }
    let (amount, period_us) = (u128::from(limit.amount()), limit.period().as_micros().max(1));
    let saved = u128::from(limit.capacity());
    let (units, span_us) = if saved > amount {
        (saved, (saved * period_us).div_ceil(amount.max(1)))
    } else {
        (amount, period_us)
    };
    let seconds = span_us.div_ceil(1_000_000).max(1);
    let quota = units.saturating_mul(seconds * 1_000_000) / span_us;
    let bounded = |number: u128| u64::try_from(number).unwrap_or(u64::MAX).min(INTEGER_MAX);
    (bounded(quota), Some(bounded(seconds)))
}

/// One policy of an answer.
pub(crate) struct Shown<'a> {
    pub(crate) text: &'a PolicyText,
    pub(crate) decision: &'a Decision,
    /// The key, if clients may see it: `pk`.
    pub(crate) key: Option<&'a [u8]>,
}

/// Adds the fields about these policies.
pub(crate) fn add(headers: &Headers, shown: &[Shown<'_>], to: &mut HeaderMap) {
    match Brief::of(headers, shown) {
        Some(brief) => brief.add_to(to),
        None => Written::of(headers, shown).into_iter().for_each(|written| written.add_to(to)),
    }
}

/// What the fields say of one policy, which by far the most answers are about: written when
/// the answer is there, straight into it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brief {
    text: &'static Lasting,
    remaining: u64,
    seconds: u64,
}

impl Brief {
    /// None if there is more to say, or nothing.
    pub(crate) fn of(headers: &Headers, shown: &[Shown<'_>]) -> Option<Self> {
        match shown {
            [only]
                if headers.standard
                    && headers.are_plain()
                    && only.key.is_none()
                    && only.decision.is_checked() =>
            {
                Some(Self::new(only.text.lasting?, only.decision))
            }
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn new(text: &'static Lasting, decision: &Decision) -> Self {
        Self { text, remaining: decision.remaining(), seconds: decision.reset_seconds() }
    }

    #[inline]
    pub(crate) fn add_to(self, headers: &mut HeaderMap) {
        self.text.add_to(headers, self.remaining, self.seconds);
    }
}

/// All that can be said, in its final words.
#[derive(Debug)]
pub(crate) struct Written {
    standard: Option<(HeaderValue, HeaderValue)>,
    legacy: Option<[HeaderValue; 3]>,
}

impl Written {
    /// None if nothing is to be said.
    pub(crate) fn of(headers: &Headers, shown: &[Shown<'_>]) -> Option<Self> {
        if shown.is_empty() || (!headers.standard && !headers.legacy) {
            return None;
        }
        let standard = if headers.standard { standard(shown) } else { None };
        // A store that was not asked has told nothing.
        let told = shown.iter().filter(|shown| shown.decision.is_checked());
        let least = told.min_by_key(|shown| shown.decision.remaining()).filter(|_| headers.legacy);
        let legacy = least.map(|least| {
            let numbers = [least.text.quota, least.decision.remaining(), least.decision.reset_seconds()];
            numbers.map(HeaderValue::from)
        });
        Some(Self { standard, legacy })
    }

    pub(crate) fn add_to(self, headers: &mut HeaderMap) {
        if let Some((policy, limit)) = self.standard {
            headers.append(RATELIMIT_POLICY, policy);
            headers.append(RATELIMIT, limit);
        }
        for (name, value) in LEGACY.into_iter().zip(self.legacy.into_iter().flatten()) {
            headers.entry(name).or_insert(value);
        }
    }
}

fn standard(shown: &[Shown<'_>]) -> Option<(HeaderValue, HeaderValue)> {
    let mut policies = Line::new();
    for shown in shown {
        if !policies.is_empty() {
            policies.extend_from_slice(b", ");
        }
        policies.extend_from_slice(shown.text.policy.as_bytes());
    }
    if policies.is_empty() {
        return None;
    }
    Some((HeaderValue::from_bytes(&policies).ok()?, list(shown)?))
}

/// Bytes of a line that holds any name and two numbers.
const LINE: usize = 128;

impl PolicyText {
    /// `"checkout";r=12;t=1`
    #[inline]
    fn value(&self, remaining: u64, seconds: u64) -> Option<HeaderValue> {
        let mut line = [0; LINE];
        let length = self.write(&mut line, remaining, seconds)?;
        HeaderValue::from_bytes(&line[..length]).ok()
    }

    /// Without anything that grows.
    #[inline]
    fn write(&self, line: &mut [u8; LINE], remaining: u64, seconds: u64) -> Option<usize> {
        let head = &self.remaining;
        line.get_mut(..head.len())?.copy_from_slice(head);
        let mut length = put_number(line, head.len(), remaining.min(INTEGER_MAX))?;
        if self.has_reset {
            line.get_mut(length..length + 3)?.copy_from_slice(b";t=");
            length = put_number(line, length + 3, seconds)?;
        }
        Some(length)
    }
}

/// Puts a number into a line, and says where it ends.
#[inline]
fn put_number(line: &mut [u8; LINE], at: usize, number: u64) -> Option<usize> {
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = number;
    // Two digits a division: one waits for the other.
    for pair in line.get_mut(at..at + digits)?.rchunks_mut(2) {
        let two = (rest % 100) as u8;
        rest /= 100;
        match pair {
            [tens, ones] => (*tens, *ones) = (b'0' + two / 10, b'0' + two % 10),
            [ones] => *ones = b'0' + two % 10,
            _ => {}
        }
    }
    Some(at + digits)
}

fn list(shown: &[Shown<'_>]) -> Option<HeaderValue> {
    let mut limits = Line::new();
    for shown in shown.iter().filter(|shown| shown.decision.is_checked()) {
        if !limits.is_empty() {
            limits.extend_from_slice(b", ");
        }
        let mut line = [0; LINE];
        let length =
            shown.text.write(&mut line, shown.decision.remaining(), shown.decision.reset_seconds())?;
        limits.extend_from_slice(&line[..length]);
        if let Some(key) = shown.key {
            limits.extend_from_slice(b";pk=:");
            limits.extend_from_slice(crate::http::response::base64::encode(key, true).as_bytes());
            limits.push(b':');
        }
    }
    HeaderValue::from_bytes(&limits).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_what_flows_in_whole_seconds() {
        let said = |limit: &str| PolicyText::new("x", &limit.parse().unwrap()).policy;
        assert_eq!(said("1000/s"), "\"x\";q=1000;w=1");
        assert_eq!(said("1000/s burst 20"), "\"x\";q=1000;w=1");
        assert_eq!(said("5/s burst 20"), "\"x\";q=20;w=4");
        assert_eq!(said("100 per 100ms fixed-window"), "\"x\";q=1000;w=1");
        assert_eq!(said("5 per 1.5s sliding-log"), "\"x\";q=6;w=2");
        assert_eq!(said("100/min"), "\"x\";q=100;w=60");
        assert_eq!(said("leaky 50/s queue 100"), "\"x\";q=50;w=1");
        assert_eq!(said("10 concurrent"), "\"x\";q=10;qu=\"concurrent-requests\"");
    }

    /// Copied from what lasts, or written for the one answer: nobody can tell.
    #[test]
    fn a_policy_without_a_lasting_text_is_told_in_the_same_words() {
        for limit in ["1000000/s", "5/min", "100/min fixed-window", "leaky 50/s queue 100"] {
            let limit: Limit = limit.parse().unwrap();
            let gate = crate::Limiter::new().gate("checkout", limit.clone()).unwrap();
            let (lasting, brief) =
                (PolicyText::new("checkout", &limit), PolicyText::alone("checkout", &limit));
            for _ in 0..4 {
                let decision = gate.check("ann");
                for of_service in [None, Some((RATELIMIT, HeaderValue::from_static("\"own\";r=1")))] {
                    let told = |text: &PolicyText| {
                        let mut headers: HeaderMap = of_service.clone().into_iter().collect();
                        let shown = [Shown { text, decision: &decision, key: None }];
                        add(&Headers::standard(), &shown, &mut headers);
                        headers
                    };
                    assert_eq!(told(&lasting), told(&brief));
                }
            }
        }
    }

    #[test]
    fn the_first_answer_of_a_bucket_is_ready_made() {
        for limit in ["1000000/s", "5/min", "10/day burst 3"] {
            let limit: Limit = limit.parse().unwrap();
            let decision = crate::Limiter::new().gate("checkout", limit.clone()).unwrap().check("ann");
            let fresh = &Lasting::of("checkout", &limit).unwrap().fresh;
            assert_eq!(
                (fresh.remaining, fresh.seconds),
                (decision.remaining(), decision.reset_seconds()),
                "{limit}"
            );
        }
    }

    #[test]
    fn the_order_of_fields_in_a_head_makes_no_difference() {
        let limit: Limit = "5/min".parse().unwrap();
        let mut lasting = Lasting::new("checkout", &limit).unwrap();
        let both =
            [(RATELIMIT, HeaderValue::from_static("")), (RATELIMIT_POLICY, lasting.text.policy.clone())];
        lasting.head = both.into_iter().collect();
        let mut headers = HeaderMap::new();
        lasting.add_to(&mut headers, 2, 30);
        assert_eq!(headers[RATELIMIT_POLICY], "\"checkout\";q=5;w=60");
        assert_eq!(headers[RATELIMIT], "\"checkout\";r=2;t=30");
    }

    #[test]
    fn of_no_policy_nothing_is_held() {
        assert!(Written::of(&Headers::standard().legacy(), &[]).is_none());
    }

    #[test]
    fn numbers_are_decimal() {
        let mut line = [b' '; LINE];
        let after = put_number(&mut line, 0, 0).unwrap();
        let end = put_number(&mut line, after + 1, u64::MAX).unwrap();
        assert_eq!(&line[..end], format!("0 {}", u64::MAX).as_bytes());
        assert_eq!(put_number(&mut line, LINE - 2, 100), None);
    }
}
