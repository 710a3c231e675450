//! The fields of a rule file: how each one is written, and how it is read.
//!
//! Those of a rule that are only about Redis are in [`redis`](super::redis).

use crate::rules::file::RuleFile;
use crate::rules::file::error::{Result, RuleFileError};
use crate::rules::file::plain::PlainValue;
use crate::rules::file::redis;
use crate::rules::key::text::check_name;
use crate::rules::key::{KeyError, KeyExpr, Part};
use crate::rules::network::Networks;
use crate::rules::route::Route;
use crate::rules::rule::{Listed, Missing, Rule, RuleCost};
use crate::{Key, Overflow};
use std::collections::HashSet;
use std::fmt::Display;

/// A field of a table: its name, and its value unless that is the default.
pub(super) type Field = (&'static str, Result<Option<PlainValue>>);

const RULES_MAX: usize = 50_000;

/// Letters that a typo may have wrong.
const TYPO_MAX: usize = 2;

/// Fields that a rule must have, and what to write.
const REQUIRED: [(&str, &str); 3] = [
    ("name", "write a name such as `checkout`"),
    ("limits", "write at least one limit, as in `100/s`"),
    ("by", "write whose allowance it is, as in `user else ip`, or `'everyone'` for one allowance for all"),
];

const MISSING: [Missing; 3] = [Missing::Share, Missing::Skip, Missing::Refuse];
const OVERFLOW: [Overflow; 2] = [Overflow::Share, Overflow::Refuse];

fn missing_name(missing: Missing) -> &'static str {
    match missing {
        Missing::Share => "share",
        Missing::Skip => "skip",
        Missing::Refuse => "refuse",
    }
}

fn overflow_name(overflow: Overflow) -> &'static str {
    match overflow {
        Overflow::Share => "share",
        Overflow::Refuse => "refuse",
    }
}

/// All fields of a file.
pub(super) fn of_file(file: &RuleFile) -> [Field; 3] {
    let rules = file.rules.iter().enumerate().map(|(at, rule)| {
        let written = write(of_rule(rule)).map_err(|error| error.of_rule(&rule.name));
        written.map_err(|error| error.at_item(at))
    });
    let rules = rules.collect::<Result<Vec<_>, _>>();
    [
        ("rules", rules.map(|rules| (!rules.is_empty()).then_some(PlainValue::List(rules)))),
        ("allow", write_listed(&file.allow_networks, &file.allow_keys)),
        ("deny", write_listed(&file.deny_networks, &file.deny_keys)),
    ]
}

pub(super) fn read_file(value: PlainValue) -> Result<RuleFile> {
    let mut file = RuleFile::default();
    value.fields(|name, value| {
        match name {
            "rules" => file.rules = read_rules(value)?,
            "allow" => {
                Listed { networks: file.allow_networks, keys: file.allow_keys } = read_listed(value)?;
            }
            "deny" => Listed { networks: file.deny_networks, keys: file.deny_keys } = read_listed(value)?,
            _ => return Err(unknown(name, of_file(&RuleFile::default()).map(|(own, _)| own))),
        }
        Ok(())
    })?;
    Ok(file)
}

/// All fields of a rule.
pub(super) fn of_rule(rule: &Rule) -> Vec<Field> {
    let limit = |(at, limit): (usize, &Result<_, _>)| match limit {
        Ok(limit) => Ok(format!("{limit}")),
        Err(error) => Err(is_no("limit")(error).at_item(at)),
    };
    let limits: Result<_, _> = rule.limits.iter().enumerate().map(limit).collect();
    let (cost, cost_from) = match &rule.cost {
        RuleCost::Units(1) => (Ok(None), Ok(None)),
        RuleCost::Units(units) => (Ok(Some(PlainValue::Number(*units))), Ok(None)),
        RuleCost::Part { part, max } => {
            let part = PlainValue::Text(part.clone());
            let table = write([("part", Ok(Some(part))), ("max", Ok(Some(PlainValue::Number(*max))))]);
            (Ok(None), table.map(Some))
        }
        RuleCost::Custom(_) => {
            let what = "is a function (`cost_with`), which a file cannot hold; use `cost` or `cost_from`";
            (Err(RuleFileError::new(what)), Ok(None))
        }
    };
    let when = rule.when.iter().map(|(name, value)| (name.clone(), PlainValue::Text(value.clone())));
    let mut fields = vec![
        ("name", Ok(Some(PlainValue::Text(rule.name.clone())))),
        ("on", Ok(texts(rule.on.clone()))),
        ("when", Ok((!rule.when.is_empty()).then(|| PlainValue::Table(when.collect())))),
        ("by", rule.key.as_ref().map(write_key).transpose()),
        ("limits", limits.map(texts)),
        ("cost", cost),
        ("cost_from", cost_from),
        ("missing", Ok(write_choice(rule.missing, missing_name))),
        ("shadow", Ok(rule.is_shadow.then_some(PlainValue::Switch(true)))),
        ("show_keys", Ok(rule.shows_keys.then_some(PlainValue::Switch(true)))),
        ("allow", write_listed(&rule.allow.networks, &rule.allow.keys)),
        ("deny", write_listed(&rule.deny.networks, &rule.deny.keys)),
        ("max_keys", Ok(rule.options.max_keys.map(|keys| PlainValue::Number(keys as u64)))),
        ("overflow", Ok(write_choice(rule.options.overflow, overflow_name))),
    ];
    fields.extend(redis::of(&rule.options));
    fields
}

fn read_field(rule: &mut Rule, name: &str, value: PlainValue) -> Result<()> {
    match name {
        "name" => rule.name = value.text()?,
        "on" => {
            let routes = value.texts(|text| match Route::parse(&text) {
                Ok(_) => Ok(text),
                Err(error) => Err(is_no("route")(error)),
            });
            rule.on = not_empty(routes?, "leave it out to mean every request")?;
        }
        "when" => {
            value.fields(|name, value| {
                check_name("entry", name).map_err(is_no("entry"))?;
                rule.when.push((name.into(), value.text()?));
                Ok(())
            })?;
            rule.when = not_empty(std::mem::take(&mut rule.when), "leave it out to mean any entries")?;
        }
        "by" => rule.key = Some(Ok(read_key(&value.text()?)?)),
        "limits" => {
            let limits = value.texts(|text| text.parse().map(Ok).map_err(is_no("limit")))?;
            rule.limits = not_empty(limits, "write at least one limit, as in `100/s`")?;
        }
        "cost" => rule.cost = RuleCost::Units(value.number()?),
        "cost_from" => rule.cost = read_cost_from(value)?,
        "missing" => rule.missing = read_choice(value, &MISSING, missing_name)?,
        "shadow" => rule.is_shadow = value.switch()?,
        "show_keys" => rule.shows_keys = value.switch()?,
        "allow" => rule.allow = read_listed(value)?,
        "deny" => rule.deny = read_listed(value)?,
        "max_keys" => {
            let too_many = |_| RuleFileError::new("is more than this machine can count; write fewer");
            rule.options.max_keys = Some(value.number()?.try_into().map_err(too_many)?);
        }
        "overflow" => rule.options.overflow = read_choice(value, &OVERFLOW, overflow_name)?,
        _ => return redis::read(&mut rule.options, name, value),
    }
    Ok(())
}

fn read_rules(value: PlainValue) -> Result<Vec<Rule>> {
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

fn read_rule(value: PlainValue) -> Result<Rule> {
    let name = match value.get("name") {
        Some(PlainValue::Text(name)) => Some(name.clone()),
        _ => None,
    };
    let is_there = |name: &str| value.get(name).is_some();
    let absent = REQUIRED.into_iter().find(|(name, _)| !is_there(name));
    let has_two_costs = is_there("cost") && is_there("cost_from");
    let mut rule = Rule::without_limits("");
    let read = value.fields(|name, value| read_field(&mut rule, name, value));
    let read = read.and_then(|()| match absent {
        Some((name, what)) => Err(RuleFileError::new(format!("is missing; {what}")).at_field(name)),
        None if has_two_costs => {
            Err(RuleFileError::new("stands beside `cost`; leave one out").at_field("cost_from"))
        }
        None => Ok(rule),
    });
    read.map_err(|error| name.iter().fold(error, |error, name| error.of_rule(name)))
}

/// Writes the fields that say something.
pub(super) fn write(fields: impl IntoIterator<Item = Field>) -> Result<PlainValue> {
    let written = fields.into_iter().filter_map(|(name, value)| match value {
        Ok(value) => Some(Ok((name.to_string(), value?))),
        Err(error) => Some(Err(error.at_field(name))),
    });
    Ok(PlainValue::Table(written.collect::<Result<_, _>>()?))
}

/// There is no field of this name in a table with these.
pub(super) fn unknown(name: &str, known: impl IntoIterator<Item = &'static str>) -> RuleFileError {
    let known: Vec<&str> = known.into_iter().collect();
    let distance = |own: &&'static str| (strsim::osa_distance(name, own), *own);
    // Bounded: the distance takes as many steps as both have letters, multiplied.
    let near = known.iter().filter(|_| name.len() <= 64).map(distance).min();
    RuleFileError::unknown_field(match near {
        Some((distance, own)) if distance <= TYPO_MAX.min(own.len() / 2) => format!("write `{own}`"),
        _ => format!("there are `{}`", known.join("`, `")),
    })
}

pub(super) fn unknown_in_rule(name: &str) -> RuleFileError {
    unknown(name, of_rule(&Rule::without_limits("")).into_iter().map(|(own, _)| own))
}

/// What is wrong with a value that is to be parsed as a `thing`.
pub(super) fn is_no<E: Display>(thing: &str) -> impl Fn(E) -> RuleFileError {
    move |error| RuleFileError::new(format!("is no {thing}: {error}"))
}

fn not_empty<T>(list: Vec<T>, what: &str) -> Result<Vec<T>> {
    if list.is_empty() { Err(RuleFileError::new(format!("is empty; {what}"))) } else { Ok(list) }
}

fn read_key(text: &str) -> Result<KeyExpr> {
    text.parse().map_err(is_no("key"))
}

fn write_key(key: &Result<KeyExpr, KeyError>) -> Result<PlainValue> {
    let key = key.as_ref().map_err(is_no("key"))?;
    let is_function = |part: &&Part| matches!(part, Part::Custom { .. });
    match key.alternatives.iter().flatten().find(is_function) {
        Some(part) => Err(RuleFileError::new(format!(
            "has a function (`{part}`), which a file cannot hold; use parts such as `user` or `header:x-tenant`"
        ))),
        None => Ok(PlainValue::Text(key.to_string())),
    }
}

fn read_cost_from(value: PlainValue) -> Result<RuleCost<String>> {
    let (mut part, mut most) = (None, None);
    value.fields(|name, value| {
        match name {
            "part" => {
                let text = value.text()?;
                if read_key(&text)?.cost_part().is_none() {
                    let what = "is no part that a cost comes from; write one `header:…`, `query:…`, `json:…` or \
                                `entry:…`, as in `query:count`";
                    return Err(RuleFileError::new(what));
                }
                part = Some(text);
            }
            "max" => match value.number()? {
                0 => return Err(RuleFileError::new("is the most that a request costs; write at least 1")),
                max => most = Some(max),
            },
            _ => return Err(unknown(name, ["part", "max"])),
        }
        Ok(())
    })?;
    let what = "needs both `part` and `max`, as in `part = \"query:count\"` and `max = 50`";
    let (part, max) = part.zip(most).ok_or_else(|| RuleFileError::new(what))?;
    Ok(RuleCost::Part { part, max })
}

fn write_listed(networks: &[String], keys: &[Vec<u8>]) -> Result<Option<PlainValue>> {
    if networks.is_empty() && keys.is_empty() {
        return Ok(None);
    }
    let what = "is not UTF-8, which a file cannot hold; write the key as the log shows it";
    let text = |(at, key): (usize, &Vec<u8>)| {
        String::from_utf8(key.clone()).map_err(|_| RuleFileError::new(what).at_item(at))
    };
    let keys: Result<_, _> = keys.iter().enumerate().map(text).collect();
    write([("networks", Ok(texts(networks.to_vec()))), ("keys", keys.map(texts))]).map(Some)
}

fn read_listed(value: PlainValue) -> Result<Listed> {
    let mut listed = Listed::default();
    value.fields(|name, value| {
        match name {
            "networks" => {
                listed.networks = value.texts(|text| match Networks::parse([&text]) {
                    Ok(_) => Ok(text),
                    Err(error) => Err(is_no("network")(error)),
                })?;
            }
            "keys" => listed.keys = value.texts(|text| Ok(text.into_bytes()))?,
            _ => return Err(unknown(name, ["networks", "keys"])),
        }
        Ok(())
    })?;
    Ok(listed)
}

/// Reads one of a few words.
fn read_choice<T: Copy>(value: PlainValue, all: &[T], name: fn(T) -> &'static str) -> Result<T> {
    let text = value.text()?;
    let chosen = all.iter().copied().find(|one| name(*one) == text);
    chosen.ok_or_else(|| {
        let names: Vec<&str> = all.iter().copied().map(name).collect();
        RuleFileError::new(format!("is `{}`; write `{}`", Key::new(&text), names.join("` or `")))
    })
}

fn write_choice<T: Copy + Default + PartialEq>(one: T, name: fn(T) -> &'static str) -> Option<PlainValue> {
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
