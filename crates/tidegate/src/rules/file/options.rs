//! The fields of a rule that are about its gates: [`GateOptions`](crate::GateOptions) as data.

use crate::Overflow;
use crate::rules::file::error::RuleFileError;
use crate::rules::file::fields::{FileField, read_choice, write_choice};
use crate::rules::file::plain::PlainValue;
use crate::rules::rule::Rule;
use std::mem::take;

pub(super) const OPTIONS: &[FileField<Rule>] = &[
    FileField {
        name: "max_keys",
        read: |rule, value| {
            let keys = usize::try_from(value.number()?)
                .map_err(|_| RuleFileError::new("is more than this machine can count; write fewer"))?;
            rule.options = take(&mut rule.options).max_keys(keys);
            Ok(())
        },
        write: |rule| {
            let keys = rule.options.max_keys.map(|keys| PlainValue::Number(keys as u64));
            Ok(keys)
        },
    },
    FileField {
        name: "overflow",
        read: |rule, value| {
            let overflow = read_choice(value, [Overflow::Share, Overflow::Refuse], overflow_name)?;
            rule.options = take(&mut rule.options).overflow(overflow);
            Ok(())
        },
        write: |rule| Ok(write_choice(rule.options.overflow, overflow_name)),
    },
];

fn overflow_name(overflow: Overflow) -> &'static str {
    match overflow {
        Overflow::Share => "share",
        Overflow::Refuse => "refuse",
    }
}

#[cfg(feature = "redis")]
pub(super) use redis::REDIS_OPTIONS;

#[cfg(feature = "redis")]
mod redis {
    use super::*;
    use crate::Fallback;
    use crate::rules::file::fields::{self, read_limit};
    use crate::store::redis::RedisGateOptions;
    use std::time::Duration;
    use tidegate_limit::{parse_duration, show_duration};

    /// Shorter, a node that is busy for a moment would lose its slots.
    const HOLD_FOR_MIN: Duration = Duration::from_millis(500);

    pub(in super::super) const REDIS_OPTIONS: &[FileField<Rule>] = &[
        FileField {
            name: "fallback",
            read: |rule, value| {
                let fallback = match value {
                    PlainValue::Text(text) if text == "local" => Fallback::Local,
                    PlainValue::Text(text) if text == "deny" => Fallback::Deny,
                    table @ PlainValue::Table(_) => {
                        let mut cap = None;
                        fields::read(&[FALLBACK], table, &mut cap)?;
                        let what =
                            "has no `allow`; write what one node lets through, as in `allow = \"100/s\"`";
                        Fallback::Allow { cap: cap.ok_or_else(|| RuleFileError::new(what))? }
                    }
                    _ => {
                        let what =
                            "is no fallback; write `local`, `deny` or a table with `allow = \"100/s\"`";
                        return Err(RuleFileError::new(what));
                    }
                };
                rule.options = take(&mut rule.options).fallback(fallback);
                Ok(())
            },
            write: |rule| match &rule.options.redis.fallback {
                Fallback::Local => Ok(None),
                Fallback::Deny => Ok(Some(PlainValue::Text("deny".into()))),
                Fallback::Allow { cap } => fields::write(&[FALLBACK], &Some(cap.clone())).map(Some),
            },
        },
        FileField {
            name: "remember_denials",
            read: |rule, value| {
                rule.options = take(&mut rule.options).remember_denials(value.switch()?);
                Ok(())
            },
            write: |rule| Ok((!rule.options.redis.caches_denials).then_some(PlainValue::Switch(false))),
        },
        FileField {
            name: "no_refunds",
            read: |rule, value| {
                if value.switch()? {
                    rule.options = take(&mut rule.options).no_refunds();
                }
                Ok(())
            },
            write: |rule| Ok((!rule.options.redis.has_refunds).then_some(PlainValue::Switch(true))),
        },
        FileField {
            name: "coalesce",
            read: |rule, value| {
                rule.options = take(&mut rule.options).coalesce(value.switch()?);
                Ok(())
            },
            write: |rule| Ok((!rule.options.redis.coalesces).then_some(PlainValue::Switch(false))),
        },
        FileField {
            name: "lease",
            read: |rule, value| {
                rule.options = take(&mut rule.options).lease(read_duration(value)?);
                Ok(())
            },
            write: |rule| rule.options.redis.lease.map(write_duration).transpose(),
        },
        FileField {
            name: "hold_for",
            read: |rule, value| match read_duration(value)? {
                time if time < HOLD_FOR_MIN => {
                    Err(RuleFileError::new("is too short; write at least `500ms`"))
                }
                time => {
                    rule.options = take(&mut rule.options).hold_for(time);
                    Ok(())
                }
            },
            write: |rule| {
                let time = rule.options.redis.slot_lease;
                let is_default = time == RedisGateOptions::default().slot_lease;
                if is_default { Ok(None) } else { write_duration(time).map(Some) }
            },
        },
    ];

    const FALLBACK: &[FileField<Option<crate::Limit>>] = &[FileField {
        name: "allow",
        read: |cap, value| {
            *cap = Some(read_limit(&value.text()?)?);
            Ok(())
        },
        write: |cap| Ok(cap.as_ref().map(|cap| PlainValue::Text(cap.to_string()))),
    }];

    fn read_duration(value: PlainValue) -> Result<Duration, RuleFileError> {
        let what = |what| RuleFileError::new(format!("is no duration: {what}; write for example `10s`"));
        parse_duration(&value.text()?).map_err(what)
    }

    fn write_duration(time: Duration) -> Result<PlainValue, RuleFileError> {
        match u64::try_from(time.as_micros()) {
            Ok(us) if time.subsec_nanos().is_multiple_of(1_000) => Ok(PlainValue::Text(show_duration(us))),
            _ => Err(RuleFileError::new("is no whole number of microseconds, which a file cannot hold")),
        }
    }
}

/// Known, so that nobody looks for a typo.
#[cfg(not(feature = "redis"))]
pub(super) const REDIS_OPTIONS: &[FileField<Rule>] = &[
    without_redis("fallback"),
    without_redis("remember_denials"),
    without_redis("no_refunds"),
    without_redis("coalesce"),
    without_redis("lease"),
    without_redis("hold_for"),
];

#[cfg(not(feature = "redis"))]
const fn without_redis(name: &'static str) -> FileField<Rule> {
    let read = |_: &mut Rule, _| {
        Err(RuleFileError::new("is about Redis, which this program is built without; leave it out"))
    };
    FileField { name, read, write: |_| Ok(None) }
}
