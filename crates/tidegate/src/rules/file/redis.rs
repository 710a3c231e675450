//! The fields of a rule that are only about Redis. Without the feature they are known, so that nobody
//! looks for a typo.

use crate::GateOptions;
use crate::rules::file::error::{Result, RuleFileError};
use crate::rules::file::fields::{Field, unknown_in_rule};
use crate::rules::file::plain::PlainValue;

#[cfg(feature = "redis")]
pub(super) use with_redis::{of, read};

#[cfg(feature = "redis")]
mod with_redis {
    use super::*;
    use crate::Fallback;
    use crate::rules::file::fields::{is_no, unknown, write};
    use crate::store::redis::RedisGateOptions;
    use std::time::Duration;
    use tidegate_limit::{parse_duration, show_duration};

    /// Shorter, a node that is busy for a moment would lose its slots.
    const HOLD_FOR_MIN: Duration = Duration::from_millis(500);

    pub(in super::super) fn of(options: &GateOptions) -> [Field; 6] {
        let RedisGateOptions { fallback, caches_denials, has_refunds, coalesces, lease, slot_lease } =
            &options.redis;
        let fallback = match fallback {
            Fallback::Local => Ok(None),
            Fallback::Deny => Ok(Some(PlainValue::Text("deny".into()))),
            Fallback::Allow { cap } => {
                write([("allow", Ok(Some(PlainValue::Text(cap.to_string()))))]).map(Some)
            }
        };
        let hold_for = Some(*slot_lease).filter(|time| *time != RedisGateOptions::default().slot_lease);
        [
            ("fallback", fallback),
            ("remember_denials", Ok((!caches_denials).then_some(PlainValue::Switch(false)))),
            ("no_refunds", Ok((!has_refunds).then_some(PlainValue::Switch(true)))),
            ("coalesce", Ok((!coalesces).then_some(PlainValue::Switch(false)))),
            ("lease", lease.map(write_duration).transpose()),
            ("hold_for", hold_for.map(write_duration).transpose()),
        ]
    }

    pub(in super::super) fn read(options: &mut GateOptions, name: &str, value: PlainValue) -> Result<()> {
        let options = &mut options.redis;
        match name {
            "fallback" => options.fallback = read_fallback(value)?,
            "remember_denials" => options.caches_denials = value.switch()?,
            "no_refunds" => options.has_refunds = !value.switch()?,
            "coalesce" => options.coalesces = value.switch()?,
            "lease" => options.lease = Some(read_duration(value)?).filter(|life| !life.is_zero()),
            "hold_for" => {
                options.slot_lease = read_duration(value)?;
                if options.slot_lease < HOLD_FOR_MIN {
                    return Err(RuleFileError::new("is too short; write at least `500ms`"));
                }
            }
            _ => return Err(unknown_in_rule(name)),
        }
        Ok(())
    }

    fn read_fallback(value: PlainValue) -> Result<Fallback> {
        let mut cap = None;
        match value {
            PlainValue::Text(text) if text == "local" => return Ok(Fallback::Local),
            PlainValue::Text(text) if text == "deny" => return Ok(Fallback::Deny),
            table @ PlainValue::Table(_) => table.fields(|name, value| match name {
                "allow" => {
                    cap = Some(value.text()?.parse().map_err(is_no("limit"))?);
                    Ok(())
                }
                _ => Err(unknown(name, ["allow"])),
            })?,
            _ => {
                let what = "is no fallback; write `local`, `deny` or a table with `allow = \"100/s\"`";
                return Err(RuleFileError::new(what));
            }
        }
        let what = "has no `allow`; write what one node lets through, as in `allow = \"100/s\"`";
        cap.map(|cap| Fallback::Allow { cap }).ok_or_else(|| RuleFileError::new(what))
    }

    fn read_duration(value: PlainValue) -> Result<Duration> {
        let what = |what| RuleFileError::new(format!("is no duration: {what}; write for example `10s`"));
        parse_duration(&value.text()?).map_err(what)
    }

    fn write_duration(time: Duration) -> Result<PlainValue> {
        match u64::try_from(time.as_micros()) {
            Ok(us) if time.subsec_nanos().is_multiple_of(1_000) => Ok(PlainValue::Text(show_duration(us))),
            _ => Err(RuleFileError::new("is no whole number of microseconds, which a file cannot hold")),
        }
    }
}

#[cfg(not(feature = "redis"))]
pub(super) fn of(_: &GateOptions) -> [Field; 6] {
    ["fallback", "remember_denials", "no_refunds", "coalesce", "lease", "hold_for"]
        .map(|name| (name, Ok(None)))
}

#[cfg(not(feature = "redis"))]
pub(super) fn read(options: &mut GateOptions, name: &str, _: PlainValue) -> Result<()> {
    let is_known = of(options).iter().any(|(own, _)| *own == name);
    let without = "is about Redis, which this program is built without; leave it out";
    Err(if is_known { RuleFileError::new(without) } else { unknown_in_rule(name) })
}
