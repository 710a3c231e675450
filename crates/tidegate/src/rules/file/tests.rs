//! What is written is read as the same rules, and what is wrong is named with its rule, its field
//! and what to write instead.

use super::*;
use crate::rules::rule::{Listed, Missing, RuleCost};
use crate::rules::{KeyExpr, RuleFileError};
use crate::{GateOptions, Overflow};
use proptest::collection::{hash_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use std::fmt::Write;

/// All that a rule has, so that a new field of it is not forgotten.
fn all_of(rule: &Rule) -> String {
    let Rule { name, limits, on, when, key, cost, missing, is_shadow, shows_keys, allow, deny, options } =
        rule;
    let cost = match cost {
        RuleCost::Units(units) => format!("{units}"),
        RuleCost::Part { part, max } => format!("{part} up to {max}"),
        RuleCost::Custom(_) => "a function".into(),
    };
    // Tables have no order.
    let when = when.iter().collect::<std::collections::BTreeSet<_>>();
    let mut out =
        format!("{name:?} {limits:?} {on:?} {when:?} {key:?} {cost} {missing:?} {is_shadow} {shows_keys}");
    let _ = write!(out, " {allow:?} {deny:?} {options:?}");
    out
}

fn all_of_file(file: &RuleFile) -> String {
    let RuleFile { rules, allow_networks, allow_keys, deny_networks, deny_keys } = file;
    let rules: Vec<String> = rules.iter().map(all_of).collect();
    format!("{rules:#?} {allow_networks:?} {allow_keys:?} {deny_networks:?} {deny_keys:?}")
}

const LIMITS: [&str; 9] = [
    "1000/s burst 20 wait 1s",
    "5 per 10s sliding-log",
    "100/min sliding-window slices 7",
    "60/min fixed-window offset 5s",
    "leaky 10/s capacity 5",
    "leaky 10/s queue 50",
    "100/s warmup 3s",
    "10 every 1s cap 20",
    "8 concurrent queue 100 wait 5s",
];
const ROUTES: [&str; 5] =
    ["POST /goods/{id}/order", "/files/{*rest}", "extension:FETCH", "GET", "/caf\u{e9}/%2F/"];
const KEYS: [&str; 5] =
    ["ip", "user else ip", "'a \"b\" \\' + path:2", "number(json:/a~1b)", "secret(query:t)"];
const PARTS: [&str; 3] = ["query:count", "header:x-cost", "json:/items/count"];
const NETWORKS: [&str; 4] = ["10.0.0.0/8", "private", "2001:db8::/32", "192.0.2.1"];

fn listed() -> impl Strategy<Value = Listed> {
    let networks = vec(select(&NETWORKS[..]).prop_map(String::from), 0..3);
    let keys = vec(any::<String>().prop_map(String::into_bytes), 0..3);
    (networks, keys).prop_map(|(networks, keys)| Listed { networks, keys })
}

/// The part that it comes from, if it does, and how much that is at most.
fn cost() -> impl Strategy<Value = (Option<&'static str>, u64)> {
    // Numbers of TOML have 63 bits.
    (option::of(select(&PARTS[..])), prop_oneof![Just(1), 1..=i64::MAX as u64])
}

fn options() -> impl Strategy<Value = GateOptions> {
    let own = (option::of(0..=i64::MAX as usize), select(vec![Overflow::Share, Overflow::Refuse]));
    let own = own.prop_map(|(keys, overflow)| {
        let options = GateOptions::new().overflow(overflow);
        keys.into_iter().fold(options, GateOptions::max_keys)
    });
    #[cfg(feature = "redis")]
    let own = {
        use crate::Fallback;
        use std::time::Duration;
        let fallback = vec![Fallback::Local, Fallback::Deny, Fallback::allow("7/min").unwrap()];
        let time = || option::of((500_000u64..100_000_000_000).prop_map(Duration::from_micros));
        let redis = (select(fallback), any::<[bool; 3]>(), time(), time());
        (own, redis).prop_map(|(options, (fallback, [remember, coalesce, final_], lease, hold_for))| {
            let options = options.fallback(fallback).remember_denials(remember).coalesce(coalesce);
            let options = if final_ { options.no_refunds() } else { options };
            let options = lease.into_iter().fold(options, GateOptions::lease);
            hold_for.into_iter().fold(options, GateOptions::hold_for)
        })
    };
    own
}

fn rule() -> impl Strategy<Value = Rule> {
    let texts = (vec(select(&LIMITS[..]), 1..4), vec(select(&ROUTES[..]), 0..4), select(&KEYS[..]));
    let when = hash_map(select(vec!["plan", "task", "x.y[0]"]), any::<String>(), 0..3);
    let missing = select(vec![Missing::Share, Missing::Skip, Missing::Refuse]);
    let rest = (when, cost(), missing, any::<[bool; 2]>(), listed(), listed(), options());
    (texts, rest).prop_map(
        |((limits, on, key), (when, cost, missing, [shadow, shows_keys], allow, deny, options))| {
            let rule = Rule::new("", limits[0]).by(key).missing(missing).options(options);
            let rule = limits[1..].iter().fold(rule, |rule, limit| rule.limit(*limit));
            let rule = on.into_iter().fold(rule, Rule::on);
            let rule = when.iter().fold(rule, |rule, (name, value)| rule.when(name, value));
            let rule = match cost {
                (Some(part), max) => rule.cost_from(part, max),
                (None, units) => rule.cost(units),
            };
            Rule { is_shadow: shadow, shows_keys, allow, deny, ..rule }
        },
    )
}

fn file() -> impl Strategy<Value = RuleFile> {
    (vec(rule(), 0..4), listed(), listed()).prop_map(|(mut rules, allow, deny)| {
        for (at, rule) in rules.iter_mut().enumerate() {
            rule.name = format!("rule-{at}");
        }
        RuleFile {
            rules,
            allow_networks: allow.networks,
            allow_keys: allow.keys,
            deny_networks: deny.networks,
            deny_keys: deny.keys,
        }
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_the_same_rules(file in file()) {
        let toml = toml::to_string(&file).unwrap();
        let pretty = toml::to_string_pretty(&file).unwrap();
        let json = serde_json::to_string(&file).unwrap();
        for read in [
            toml::from_str::<RuleFile>(&toml).unwrap(),
            toml::from_str(&pretty).unwrap(),
            serde_json::from_str(&json).unwrap(),
        ] {
            prop_assert_eq!(all_of_file(&read), all_of_file(&file), "{}", toml);
        }
    }
}

/// The fields of a file and of a rule.
fn names() -> impl Iterator<Item = &'static str> {
    let of_file = fields::of_file(&RuleFile::default()).into_iter();
    of_file.chain(fields::of_rule(&Rule::without_limits(""))).map(|(name, _)| name)
}

/// Otherwise the test above could not see a field that nobody writes or reads.
#[test]
fn every_field_that_is_written_counts() {
    let mut counted = std::collections::BTreeSet::new();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..64 {
        let file = rule().new_tree(&mut runner).unwrap().current();
        let file = RuleFile { rules: vec![Rule { name: "a".into(), ..file }], ..RuleFile::default() };
        let json = serde_json::to_value(&file).unwrap();
        for field in json["rules"][0].as_object().unwrap().keys() {
            let mut without = json.clone();
            without["rules"][0].as_object_mut().unwrap().remove(field);
            let read = serde_json::from_value::<RuleFile>(without);
            assert!(read.is_err() || all_of_file(&read.unwrap()) != all_of_file(&file), "{field}");
            counted.insert(field.clone());
        }
    }
    for name in names().skip(3) {
        assert!(counted.contains(name) || cfg!(not(feature = "redis")), "no rule had `{name}`");
    }
}

#[test]
fn what_is_so_anyway_is_not_written() {
    let rules = vec![Rule::new("a", "1/s").by("ip").cost(1).missing(Missing::Share)];
    let file = RuleFile { rules, ..RuleFile::default() };
    let json = serde_json::to_string(&file).unwrap();
    assert_eq!(json, r#"{"rules":[{"name":"a","by":"ip","limits":"1/s"}]}"#);
    assert_eq!(serde_json::to_string(&RuleFile::default()).unwrap(), "{}");
}

fn error(json: &str) -> RuleFileError {
    RuleFile::try_from(serde_json::from_str::<RuleFileData>(json).unwrap()).unwrap_err()
}

/// A file with one rule that is right but for these fields, which come first.
fn with(fields: &str) -> String {
    let default = |name: &str, text: &str| match fields.contains(&format!("\"{name}\":")) {
        true => String::new(),
        false => format!(", \"{name}\": \"{text}\""),
    };
    let (limits, by) = (default("limits", "1/s"), default("by", "ip"));
    format!(
        "{{\"rules\": [{{\"name\": \"first\", \"by\": \"ip\", \"limits\": \"1/s\"}}, {{{fields}, \"name\": \"api\"{limits}{by}}}]}}"
    )
}

#[test]
fn what_is_wrong_is_named_with_its_rule_its_field_and_what_to_write() {
    for (fields, says, pointer) in [
        (r#""limts": "1/s""#, "unknown field `limts`; write `limits`", "limts"),
        (r#""Limit": "1/s""#, "unknown field `Limit`; write `limits`", "Limit"),
        (
            r#""colour": 1"#,
            "unknown field `colour`; there are `name`, `on`, `when`, `by`, `limits`, `cost`",
            "colour",
        ),
        (r#""no": "/x""#, "unknown field `no`; write `on`", "no"),
        (
            r#""allow": { "network": "private" }"#,
            "unknown field `allow.network`; write `networks`",
            "allow/network",
        ),
        (r#""limits": []"#, "`limits` is empty; write at least one limit", "limits"),
        (
            r#""limits": ["1/s", "1000/s burst fast"]"#,
            "`limits[1]` is no limit: `burst` needs a number of units or a duration, not `fast` (at column 14 of \
             `1000/s burst fast`); write for example `1000/s burst 20`",
            "limits/1",
        ),
        (r#""limits": 5"#, "`limits` needs a text or a list of texts, not a number", "limits"),
        (r#""limits": ["1/s", 5]"#, "`limits[1]` needs a text, not a number", "limits/1"),
        (r#""on": "PSOT /x""#, "`on` is no route: `PSOT` is not a registered method: write `POST`", "on"),
        (r#""on": ["/x", "/a/:id"]"#, "`on[1]` is no route: ", "on/1"),
        (r#""on": []"#, "`on` is empty; leave it out to mean every request", "on"),
        (r#""when": {}"#, "`when` is empty; leave it out", "when"),
        (r#""when": { "plan": 1 }"#, "`when.plan` needs a text, not a number", "when/plan"),
        (r#""when": { "a b": "c" }"#, "`when.a b` is no entry: `entry:` needs a name", "when/a b"),
        (r#""when": { "a": "b", "a": "c" }"#, "`when.a` stands twice; leave one out", "when/a"),
        (r#""by": "usr""#, "`by` is no key: `usr` is not a part of a key", "by"),
        (r#""by": null"#, "`by` needs a text, not `null`", "by"),
        (r#""cost": -1"#, "`cost` needs a whole number, not `-1`", "cost"),
        (r#""cost": 1.5"#, "`cost` needs a whole number, not `1.5`", "cost"),
        (r#""cost": "1""#, "`cost` needs a whole number, not a text", "cost"),
        (r#""cost_from": "query:n""#, "`cost_from` needs a table, not a text", "cost_from"),
        (r#""cost_from": { "part": "query:n" }"#, "`cost_from` needs both `part` and `max`", "cost_from"),
        (
            r#""cost_from": { "part": "ip", "max": 5 }"#,
            "`cost_from.part` is no part that a cost comes from; write one `header:…`",
            "cost_from/part",
        ),
        (r#""cost_from": { "part": "query:n", "max": 0 }"#, "`cost_from.max` is the most", "cost_from/max"),
        (
            r#""cost": 2, "cost_from": { "part": "query:n", "max": 5 }"#,
            "`cost_from` stands beside `cost`; leave one out",
            "cost_from",
        ),
        (r#""missing": "reject""#, "`missing` is `reject`; write `share` or `skip` or `refuse`", "missing"),
        (r#""shadow": "yes""#, "`shadow` needs `true` or `false`, not a text", "shadow"),
        (r#""show_keys": 1"#, "`show_keys` needs `true` or `false`, not a number", "show_keys"),
        (
            r#""deny": { "networks": ["private", "10.0.0.1/8"] }"#,
            "`deny.networks[1]` is no network: `10.0.0.1/8` has bits to the right of its prefix: write `10.0.0.0/8`",
            "deny/networks/1",
        ),
        (r#""allow": { "keys": [1] }"#, "`allow.keys[0]` needs a text, not a number", "allow/keys/0"),
        (r#""shadow": true, "shadow": false"#, "`shadow` stands twice; leave one out", "shadow"),
        (r#""overflow": "drop""#, "`overflow` is `drop`; write `share` or `refuse`", "overflow"),
        #[cfg(feature = "redis")]
        (r#""fallback": "open""#, "`fallback` is no fallback; write `local`, `deny` or a table", "fallback"),
        #[cfg(feature = "redis")]
        (r#""fallback": { "allow": "x" }"#, "`fallback.allow` is no limit: ", "fallback/allow"),
        #[cfg(feature = "redis")]
        (r#""fallback": {}"#, "`fallback` has no `allow`; write", "fallback"),
        #[cfg(feature = "redis")]
        (
            r#""lease": "soon""#,
            "`lease` is no duration: `soon` is not a duration; write for example",
            "lease",
        ),
        #[cfg(feature = "redis")]
        (r#""hold_for": "10ms""#, "`hold_for` is too short; write at least `500ms`", "hold_for"),
        #[cfg(not(feature = "redis"))]
        (
            r#""hold_for": "10s""#,
            "`hold_for` is about Redis, which this program is built without",
            "hold_for",
        ),
    ] {
        let error = error(&with(fields));
        assert_eq!(error.rule(), Some("api"), "{fields}");
        assert_eq!(error.pointer(), format!("/rules/1/{pointer}"), "{fields}");
        let says = format!("rule `api`: {says}");
        assert!(error.to_string().starts_with(&says), "{fields}: {error}");
    }
    for (json, says, pointer) in [
        (
            r#"{ "rules": [{ "name": "a", "by": "ip" }] }"#,
            "rule `a`: `limits` is missing; write",
            "/rules/0/limits",
        ),
        (
            r#"{ "rules": [{ "name": "a", "limits": "1/s" }] }"#,
            "rule `a`: `by` is missing; write",
            "/rules/0/by",
        ),
        (r#"{ "rules": [{ "by": "ip" }] }"#, "`rules[0].name` is missing; write a name", "/rules/0/name"),
        (r#"{ "rules": [{ "name": 5 }] }"#, "`rules[0].name` needs a text, not a number", "/rules/0/name"),
        (r#"{ "rules": ["a"] }"#, "`rules[0]` needs a table, not a text", "/rules/0"),
        (r#"{ "rules": {} }"#, "`rules` needs a list, not a table", "/rules"),
        (r#"{ "rule": [] }"#, "unknown field `rule`; write `rules`", "/rule"),
        (r#"{ "a/b~\n": 1 }"#, r"unknown field `a/b~\n`; there are `rules`, `allow`, `deny`", "/a~1b~0\n"),
        (r#"{ "deny": { "networks": "x" } }"#, "`deny.networks` is no network: ", "/deny/networks"),
        ("[]", "the rule file needs a table, not a list", ""),
    ] {
        let error = error(json);
        assert!(error.to_string().starts_with(says), "{json}: {error}");
        assert_eq!(error.pointer(), pointer, "{json}");
    }
}

#[test]
fn a_name_that_stands_twice_is_an_error() {
    let error = error(&with(r#""shadow": true"#).replace("\"api\"", "\"first\""));
    assert_eq!(error.to_string(), "rule `first`: `name` stands twice; give each rule its own");
    assert_eq!(error.pointer(), "/rules/1/name");
}

#[test]
fn an_error_leads_to_its_line_and_column() {
    use toml::de::{DeTable, DeValue};
    let text = "[[rules]]\nname = \"api\"\nby = \"ip\"\n  limits = [\n    \"1/s\",\n    \"fast\",\n]\n";
    let data: RuleFileData = toml::from_str(text).unwrap();
    let pointer = RuleFile::try_from(data).unwrap_err().pointer();
    assert_eq!(pointer, "/rules/0/limits/1");

    let file = DeTable::parse(text).unwrap();
    let span = file.span();
    let whole = toml::Spanned::new(span, DeValue::Table(file.into_inner()));
    let mut at = &whole;
    for step in pointer.split('/').skip(1) {
        at = match at.get_ref() {
            DeValue::Table(table) => &table[step],
            DeValue::Array(list) => &list[step.parse::<usize>().unwrap()],
            other => panic!("{other:?} has no {step}"),
        };
    }
    let before = &text[..at.span().start];
    let column = before.len() - before.rfind('\n').map_or(0, |end| end + 1);
    assert_eq!((before.matches('\n').count() + 1, column + 1), (6, 5));
}

#[test]
fn what_is_no_data_is_not_written() {
    let tenant = KeyExpr::from_fn("tenant", |_| None).unwrap();
    for (rule, says) in [
        (
            Rule::new("a", "1/s").by(tenant),
            "`by` has a function (`fn:tenant`), which a file cannot hold; use",
        ),
        (Rule::new("a", "1/s").by("ip").cost_with(|_| 1), "`cost` is a function (`cost_with`), which a file"),
        (
            Rule::new("a", "1/s").by("ip").deny_keys([b"\xff"]),
            "`deny.keys[0]` is not UTF-8, which a file cannot",
        ),
        // What was wrong from the beginning is not written either.
        (Rule::new("a", "1/s").limit("fast").by("ip"), "`limits[1]` is no limit: "),
        (Rule::new("a", "1/s").by("usr"), "`by` is no key: "),
        (
            Rule::new("a", "1/s").by("ip").when("b", "c").when("b", "d"),
            "`when.b` stands twice; leave one out",
        ),
        (Rule::new("a", "1/s"), "`by` is missing; "),
        (Rule::new("a", "1/s").by("ip").on("/a/:id"), "`on` is no route: "),
        (Rule::new("a", "1/s").by("ip").cost_from("ip", 5), "`cost_from.part` is no part"),
    ] {
        let file = RuleFile { rules: vec![rule], ..RuleFile::default() };
        let error = serde_json::to_string(&file).unwrap_err().to_string();
        assert!(error.starts_with(&format!("rule `a`: {says}")), "{error}");
        assert!(toml::to_string(&file).unwrap_err().to_string().contains(says), "{error}");
    }
}

#[test]
fn a_file_is_read_within_bounds() {
    let read =
        |json: &str| serde_json::from_str::<RuleFileData>(json).map(drop).map_err(|error| error.to_string());
    let deep = format!("{}1{}", "[".repeat(7), "]".repeat(7));
    assert!(read(&deep).unwrap_err().starts_with("no field of a rule file is nested so deeply"));
    let deep = format!("{}1{}", r#"{"a":"#.repeat(100), "}".repeat(100));
    assert!(read(&deep).unwrap_err().starts_with("no field of a rule file is nested so deeply"));

    let long = format!("[{:?}]", "x".repeat(plain::BYTES_MAX));
    assert!(read(&long).unwrap_err().starts_with("a rule file has at most 16 MiB"));
    let many = format!("[{}1]", "1,".repeat(plain::BYTES_MAX / 16));
    assert!(read(&many).unwrap_err().starts_with("a rule file has at most 16 MiB"));

    let rules: String =
        (0..50_001).map(|at| format!("{{\"name\":\"r{at}\",\"by\":\"ip\",\"limits\":\"1/s\"}},")).collect();
    let rules = format!("{{\"rules\":[{}]}}", rules.trim_end_matches(','));
    assert_eq!(error(&rules).to_string(), "`rules` has 50001 rules; write at most 50000");
}

#[test]
fn the_guide_has_every_field() {
    let guide = include_str!("../../../../../docs/rule-files.md");
    for name in names() {
        assert!(guide.contains(&format!("| `{name}`")), "docs/rule-files.md has no row for `{name}`");
    }
}
