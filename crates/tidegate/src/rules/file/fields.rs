//! The fields of a rule file: for each one its name, how it is read and how it is written, in one
//! place, so that what is written can be read.
//!
//! The fields of a rule that are about its gates are in [`options`](super::options).

use crate::rules::file::RuleFile;
use crate::rules::file::error::RuleFileError;
use crate::rules::file::options::{OPTIONS, REDIS_OPTIONS};
use crate::rules::file::plain::PlainValue;
use crate::rules::key::text::check_name;
use crate::rules::key::{KeyExpr, Part};
use crate::rules::network::Networks;
use crate::rules::route::{Route, methods};
use crate::rules::rule::{Listed, Missing, Rule, RuleCost};
use crate::{Key, Limit};
use std::collections::HashSet;

/// A field of a table that is read into a `T`.
pub(super) struct FileField<T> {
    pub(super) name: &'static str,
    pub(super) read: fn(&mut T, PlainValue) -> Result<(), RuleFileError>,
    /// None where it says what is so without it.
    pub(super) write: fn(&T) -> Result<Option<PlainValue>, RuleFileError>,
}

const RULES_MAX: usize = 50_000;

/// Letters that a typo may have wrong.
const TYPO_MAX: usize = 2;

/// All fields of a table.
pub(super) type FileFields<T> = [&'static [FileField<T>]];

pub(super) const FILE: &FileFields<RuleFile> = &[&[
    FileField {
        name: "rules",
        read: |file, value| {
            file.rules = read_rules(value)?;
            Ok(())
        },
        write: |file| {
            let rules = file.rules.iter().enumerate();
            let rules = rules.map(|(at, rule)| write_rule(rule).map_err(|error| error.at_item(at)));
            let rules = rules.collect::<Result<Vec<_>, _>>()?;
            Ok((!rules.is_empty()).then_some(PlainValue::List(rules)))
        },
    },
    FileField {
        name: "allow",
        read: |file, value| {
            Listed { networks: file.allow_networks, keys: file.allow_keys } = read_listed(value)?;
            Ok(())
        },
        write: |file| write_listed(&file.allow_networks, &file.allow_keys),
    },
    FileField {
        name: "deny",
        read: |file, value| {
            Listed { networks: file.deny_networks, keys: file.deny_keys } = read_listed(value)?;
            Ok(())
        },
        write: |file| write_listed(&file.deny_networks, &file.deny_keys),
    },
]];

const RULE: &FileFields<Rule> = &[RULE_ITSELF, OPTIONS, REDIS_OPTIONS];

const RULE_ITSELF: &[FileField<Rule>] = &[
    FileField {
        name: "name",
        read: |rule, value| {
            rule.name = value.text()?;
            Ok(())
        },
        write: |rule| Ok(Some(PlainValue::Text(rule.name.clone()))),
    },
    FileField {
        name: "on",
        read: |rule, value| {
            rule.on = value.texts(|text| match Route::parse(&text) {
                Ok(_) => Ok(text),
                Err(what) => Err(RuleFileError::new(format!("is no route: {what}"))),
            })?;
            match rule.on.is_empty() {
                true => Err(RuleFileError::new("is empty; leave it out to mean every request")),
                false => Ok(()),
            }
        },
        write: |rule| Ok(texts(rule.on.clone())),
    },
    FileField {
        name: "when",
        read: |rule, value| {
            let read = |(name, value): (String, PlainValue)| match check_name("entry", &name) {
                Ok(()) => {
                    value.text().map(|value| (name.clone(), value)).map_err(|error| error.at_field(&name))
                }
                Err(error) => Err(RuleFileError::new(format!("is no entry: {error}")).at_field(&name)),
            };
            rule.when = value.table()?.into_iter().map(read).collect::<Result<_, _>>()?;
            if rule.when.is_empty() {
                return Err(RuleFileError::new("is empty; leave it out to mean any entries"));
            }
            only_once(&rule.when)
        },
        write: |rule| {
            only_once(&rule.when)?;
            let entry = |(name, value): &(String, String)| (name.clone(), PlainValue::Text(value.clone()));
            let entries: Vec<_> = rule.when.iter().map(entry).collect();
            Ok((!entries.is_empty()).then_some(PlainValue::Table(entries)))
        },
    },
    FileField {
        name: "by",
        read: |rule, value| {
            rule.key = Some(Ok(read_key(&value.text()?)?));
            Ok(())
        },
        write: |rule| match &rule.key {
            Some(Ok(key)) => write_key(key),
            Some(Err(error)) => Err(RuleFileError::new(format!("is no key: {error}"))),
            None => Ok(None),
        },
    },
    FileField {
        name: "limits",
        read: |rule, value| {
            rule.limits = value.texts(|text| read_limit(&text))?.into_iter().map(Ok).collect();
            match rule.limits.is_empty() {
                true => Err(RuleFileError::new("is empty; write at least one limit, as in `100/s`")),
                false => Ok(()),
            }
        },
        write: |rule| {
            let write = |(at, limit): (usize, &Result<Limit, _>)| match limit {
                Ok(limit) => Ok(limit.to_string()),
                Err(error) => Err(RuleFileError::new(format!("is no limit: {error}")).at_item(at)),
            };
            Ok(texts(rule.limits.iter().enumerate().map(write).collect::<Result<_, _>>()?))
        },
    },
    FileField {
        name: "cost",
        read: |rule, value| {
            rule.cost = RuleCost::Units(value.number()?);
            Ok(())
        },
        write: |rule| match &rule.cost {
            RuleCost::Units(1) | RuleCost::Part { .. } => Ok(None),
            RuleCost::Units(units) => Ok(Some(PlainValue::Number(*units))),
            RuleCost::Custom(_) => Err(RuleFileError::new(
                "is a function (`cost_with`), which a file cannot hold; use `cost` or `cost_from`",
            )),
        },
    },
    FileField {
        name: "cost_from",
        read: |rule, value| {
            let mut cost = CostFrom::default();
            read(&[COST_FROM], value, &mut cost)?;
            let CostFrom { part: Some(text), max: Some(max) } = cost else {
                let what = "needs both `part` and `max`, as in `part = \"query:count\"` and `max = 50`";
                return Err(RuleFileError::new(what));
            };
            rule.cost = RuleCost::Part { text, max };
            Ok(())
        },
        write: |rule| match &rule.cost {
            RuleCost::Part { text, max } => {
                let cost = CostFrom { part: Some(text.clone()), max: Some(*max) };
                write(&[COST_FROM], &cost).map(Some)
            }
            RuleCost::Units(_) | RuleCost::Custom(_) => Ok(None),
        },
    },
    FileField {
        name: "missing",
        read: |rule, value| {
            rule.missing =
                read_choice(value, [Missing::Share, Missing::Skip, Missing::Refuse], missing_name)?;
            Ok(())
        },
        write: |rule| Ok(write_choice(rule.missing, missing_name)),
    },
    FileField {
        name: "shadow",
        read: |rule, value| {
            rule.is_shadow = value.switch()?;
            Ok(())
        },
        write: |rule| Ok(rule.is_shadow.then_some(PlainValue::Switch(true))),
    },
    FileField {
        name: "show_keys",
        read: |rule, value| {
            rule.shows_keys = value.switch()?;
            Ok(())
        },
        write: |rule| Ok(rule.shows_keys.then_some(PlainValue::Switch(true))),
    },
    FileField {
        name: "allow",
        read: |rule, value| {
            rule.allow = read_listed(value)?;
            Ok(())
        },
        write: |rule| write_listed(&rule.allow.networks, &rule.allow.keys),
    },
    FileField {
        name: "deny",
        read: |rule, value| {
            rule.deny = read_listed(value)?;
            Ok(())
        },
        write: |rule| write_listed(&rule.deny.networks, &rule.deny.keys),
    },
];

/// Fields that a rule must have, and what to write.
const REQUIRED: [(&str, &str); 3] = [
    ("name", "write a name such as `checkout`"),
    ("limits", "write at least one limit, as in `100/s`"),
    ("by", "write whose allowance it is, as in `user else ip`, or `'everyone'` for one allowance for all"),
];

#[derive(Default)]
struct CostFrom {
    part: Option<String>,
    max: Option<u64>,
}

const COST_FROM: &[FileField<CostFrom>] = &[
    FileField {
        name: "part",
        read: |cost, value| {
            let text = value.text()?;
            if read_key(&text)?.cost_part().is_none() {
                let what = "is no part that a cost comes from; write one `header:…`, `query:…`, `json:…` or \
                            `entry:…`, as in `query:count`";
                return Err(RuleFileError::new(what));
            }
            cost.part = Some(text);
            Ok(())
        },
        write: |cost| Ok(cost.part.clone().map(PlainValue::Text)),
    },
    FileField {
        name: "max",
        read: |cost, value| match value.number()? {
            0 => Err(RuleFileError::new("is the most that a request costs; write at least 1")),
            max => {
                cost.max = Some(max);
                Ok(())
            }
        },
        write: |cost| Ok(cost.max.map(PlainValue::Number)),
    },
];

const LISTED: &[FileField<Listed>] = &[
    FileField {
        name: "networks",
        read: |listed, value| {
            listed.networks = value.texts(|text| match Networks::default().add([&text]) {
                Ok(()) => Ok(text),
                Err(error) => Err(RuleFileError::new(format!("is no network: {error}"))),
            })?;
            Ok(())
        },
        write: |listed| Ok(texts(listed.networks.clone())),
    },
    FileField {
        name: "keys",
        read: |listed, value| {
            listed.keys = value.texts(|text| Ok(text.into_bytes()))?;
            Ok(())
        },
        write: |listed| {
            let text = |(at, key): (usize, &Vec<u8>)| {
                let what = "is not UTF-8, which a file cannot hold; write the key as the log shows it";
                String::from_utf8(key.clone()).map_err(|_| RuleFileError::new(what).at_item(at))
            };
            Ok(texts(listed.keys.iter().enumerate().map(text).collect::<Result<_, _>>()?))
        },
    },
];

/// Reads the fields of a table into `to`.
pub(super) fn read<T>(fields: &FileFields<T>, value: PlainValue, to: &mut T) -> Result<(), RuleFileError> {
    let mut seen = HashSet::new();
    for (name, value) in value.table()? {
        let mut all = fields.iter().copied().flatten();
        let Some(field) = all.find(|field| field.name == name) else {
            return Err(unknown(&name, fields.iter().copied().flatten().map(|field| field.name)));
        };
        if !seen.insert(field.name) {
            return Err(RuleFileError::new("stands twice; leave one out").at_field(&name));
        }
        (field.read)(to, value).map_err(|error| error.at_field(&name))?;
    }
    Ok(())
}

/// Writes the fields that say something.
pub(super) fn write<T>(fields: &FileFields<T>, from: &T) -> Result<PlainValue, RuleFileError> {
    let mut table = Vec::new();
    for field in fields.iter().copied().flatten() {
        if let Some(value) = (field.write)(from).map_err(|error| error.at_field(field.name))? {
            table.push((field.name.to_string(), value));
        }
    }
    Ok(PlainValue::Table(table))
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> RuleFileError {
    // Bounded: the distance takes as many steps as both have letters, multiplied.
    let near = known
        .clone()
        .filter(|_| name.len() <= 64)
        .map(|own| (methods::distance(name.as_bytes(), own.as_bytes()), own));
    let instead = match near.min().filter(|(distance, own)| *distance <= TYPO_MAX.min(own.len() / 2)) {
        Some((_, own)) => format!("write `{own}`"),
        None => format!("there are `{}`", known.collect::<Vec<_>>().join("`, `")),
    };
    RuleFileError::unknown(name, instead)
}

fn read_rules(value: PlainValue) -> Result<Vec<Rule>, RuleFileError> {
    let items = value.list()?;
    if items.len() > RULES_MAX {
        return Err(RuleFileError::new(format!("has {} rules; write at most {RULES_MAX}", items.len())));
    }
    let mut names = HashSet::new();
    let mut rules = Vec::new();
    for (at, item) in items.into_iter().enumerate() {
        let rule = read_rule(item).map_err(|error| error.at_item(at))?;
        if !names.insert(rule.name.clone()) {
            let error = RuleFileError::new("stands twice; give each rule its own");
            return Err(error.at_field("name").of_rule(&rule.name).at_item(at));
        }
        rules.push(rule);
    }
    Ok(rules)
}

fn read_rule(value: PlainValue) -> Result<Rule, RuleFileError> {
    let name = match value.get("name") {
        Some(PlainValue::Text(name)) => Some(name.clone()),
        _ => None,
    };
    let mut rule = Rule::without_limits("");
    let is_there = |name: &str| value.get(name).is_some();
    let absent = REQUIRED.into_iter().find(|(name, _)| !is_there(name));
    let has_two_costs = is_there("cost") && is_there("cost_from");
    let read = read(RULE, value, &mut rule).and_then(|()| match absent {
        Some((name, what)) => Err(RuleFileError::new(format!("is missing; {what}")).at_field(name)),
        None if has_two_costs => {
            Err(RuleFileError::new("stands beside `cost`; leave one out").at_field("cost_from"))
        }
        None => Ok(()),
    });
    match (read, name) {
        (Ok(()), _) => Ok(rule),
        (Err(error), Some(name)) => Err(error.of_rule(&name)),
        (Err(error), None) => Err(error),
    }
}

fn write_rule(rule: &Rule) -> Result<PlainValue, RuleFileError> {
    write(RULE, rule).map_err(|error| error.of_rule(&rule.name))
}

pub(super) fn read_limit(text: &str) -> Result<Limit, RuleFileError> {
    text.parse().map_err(|error| RuleFileError::new(format!("is no limit: {error}")))
}

fn read_key(text: &str) -> Result<KeyExpr, RuleFileError> {
    text.parse().map_err(|error| RuleFileError::new(format!("is no key: {error}")))
}

fn write_key(key: &KeyExpr) -> Result<Option<PlainValue>, RuleFileError> {
    let is_function = |part: &&Part| matches!(part, Part::Custom { .. });
    match key.alternatives.iter().flatten().find(is_function) {
        Some(part) => Err(RuleFileError::new(format!(
            "has a function (`{part}`), which a file cannot hold; use parts such as `user` or `header:x-tenant`"
        ))),
        None => Ok(Some(PlainValue::Text(key.to_string()))),
    }
}

/// In a table a name stands once. A request has one value of an entry.
fn only_once(entries: &[(String, String)]) -> Result<(), RuleFileError> {
    let mut names = HashSet::new();
    match entries.iter().find(|(name, _)| !names.insert(name)) {
        Some((name, _)) => Err(RuleFileError::new("stands twice; leave one out").at_field(name)),
        None => Ok(()),
    }
}

fn read_listed(value: PlainValue) -> Result<Listed, RuleFileError> {
    let mut listed = Listed::default();
    read(&[LISTED], value, &mut listed)?;
    Ok(listed)
}

fn write_listed(networks: &[String], keys: &[Vec<u8>]) -> Result<Option<PlainValue>, RuleFileError> {
    if networks.is_empty() && keys.is_empty() {
        return Ok(None);
    }
    write(&[LISTED], &Listed { networks: networks.to_vec(), keys: keys.to_vec() }).map(Some)
}

fn missing_name(missing: Missing) -> &'static str {
    match missing {
        Missing::Share => "share",
        Missing::Skip => "skip",
        Missing::Refuse => "refuse",
    }
}

/// Reads one of a few words.
pub(super) fn read_choice<T: Copy, const N: usize>(
    value: PlainValue,
    all: [T; N],
    name: fn(T) -> &'static str,
) -> Result<T, RuleFileError> {
    let text = value.text()?;
    all.into_iter().find(|one| name(*one) == text).ok_or_else(|| {
        let names = all.map(name).join("` or `");
        RuleFileError::new(format!("is `{}`; write `{names}`", Key::new(&text)))
    })
}

pub(super) fn write_choice<T: Copy + Default + PartialEq>(
    one: T,
    name: fn(T) -> &'static str,
) -> Option<PlainValue> {
    (one != T::default()).then(|| PlainValue::Text(name(one).into()))
}

/// None, one, or a list.
fn texts(mut texts: Vec<String>) -> Option<PlainValue> {
    match texts.len() {
        0 => None,
        1 => texts.pop().map(PlainValue::Text),
        _ => Some(PlainValue::List(texts.into_iter().map(PlainValue::Text).collect())),
    }
}

/// The fields of a file and of a rule.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let of_file = FILE.iter().copied().flatten().map(|field| field.name);
    of_file.chain(RULE.iter().copied().flatten().map(|field| field.name))
}
