//! The index finds what trying every rule in turn finds.

use super::*;
use crate::rules::route::path::RequestPath;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{TestCaseResult, TestRunner};
use std::cell::RefCell;

type Rules = Vec<Vec<Route>>;

fn routes(texts: &[impl AsRef<str>]) -> Vec<Route> {
    texts.iter().map(|text| Route::parse(text.as_ref()).unwrap()).collect()
}

fn index(rules: &Rules) -> RouteIndex {
    let mut index = RouteIndex::default();
    (0..).zip(rules).for_each(|(rule, routes)| index.insert(rule, routes));
    index
}

fn found(index: &RouteIndex, method: &str, path: &str) -> Vec<u32> {
    let mut found = Candidates::new();
    index.candidates(method, RequestPath::new(path).readings(), &mut found);
    found.into_vec()
}

/// The rules that apply, each tried in turn.
fn tried(rules: &Rules, method: &str, path: &str) -> Vec<u32> {
    let paths = RequestPath::new(path);
    let fits = |route: &Route| {
        route.is_for_method(Some(method)) && paths.readings().any(|path| route.is_for_path(path))
    };
    let applies = |routes: &[Route]| routes.is_empty() || routes.iter().any(fits);
    (0..).zip(rules).filter(|(_, routes)| applies(routes)).map(|(rule, _)| rule).collect()
}

const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "OPTIONS", "FETCH", "fetch"];

/// Few words, so that most paths meet several rules: as they are, encoded, and encoded twice.
const LITERALS: [&str; 8] = ["a", "b", "%61", "caf%C3%A9", "caf\u{e9}", "x%2Fy", "%2561", "a.b"];

fn route() -> impl Strategy<Value = String> {
    let method = select(vec!["", "", "GET", "HEAD", "POST", "OPTIONS", "extension:FETCH"]);
    let segment = prop_oneof![select(&LITERALS[..]), Just("{id}")];
    let rest = select(vec!["", "", "/", "/{*rest}"]);
    (method, vec(segment, 0..4), rest).prop_map(|(method, segments, rest)| {
        let path: String = segments.iter().flat_map(|segment| ["/", segment]).collect();
        match (method, path + rest) {
            ("", path) if path.is_empty() => "/".into(),
            (method, path) => format!("{method} {path}").trim().into(),
        }
    })
}

/// Some with more literals after a segment than are compared in turn.
fn rules() -> impl Strategy<Value = Rules> {
    let more = |before: &str| (0..FEW).map(|at| routes(&[format!("{before}/w{at}")])).collect::<Rules>();
    let more = select(vec![vec![], vec![], more(""), more("/a"), more("/{id}")]);
    let rules = vec(vec(route(), 0..3).prop_map(|texts| routes(&texts)), 0..12);
    (more, rules).prop_map(|(more, rules)| more.into_iter().chain(rules).collect())
}

fn path() -> impl Strategy<Value = String> {
    let odd = ["", "", ".", "..", "%2e", "%2E.", "c", "%zz", "%", "x/y", "x%2fy", "%41", "a%2", "caf%c3%a9"];
    let segment = prop_oneof![3 => select(&LITERALS[..]), 2 => select(odd.to_vec())];
    let segments = vec(segment, 0..6).prop_map(|segments| -> String {
        let path: String = segments.iter().flat_map(|segment| ["/", segment]).collect();
        path
    });
    prop_oneof![9 => (segments, select(vec!["", "", "/", "//"])).prop_map(|(path, end)| path + end), 1 => Just("*".into())]
}

/// Compares an index with trying every rule.
fn check(look_up: impl Fn(&Rules, &str, &str) -> Vec<u32>, cases: u32) -> Result<(), String> {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let rng = proptest::test_runner::TestRng::deterministic_rng(Default::default());
    let requests = vec((select(&METHODS[..]), path()), 1..8);
    let test = |(rules, requests): (Rules, Vec<(&str, String)>)| -> TestCaseResult {
        for (method, path) in requests {
            let found = look_up(&rules, method, &path);
            prop_assert_eq!(found, tried(&rules, method, &path), "{} {}", method, path);
        }
        Ok(())
    };
    TestRunner::new_with_rng(config, rng).run(&(rules(), requests), test).map_err(|error| error.to_string())
}

#[test]
fn the_index_finds_what_trying_every_rule_finds() {
    check(|rules, method, path| found(&index(rules), method, path), 4096).unwrap();
}

#[test]
fn an_index_that_forgets_something_is_caught() {
    // Leaves the rules for GET out when the method is HEAD.
    let without_head = |rules: &Rules, method: &str, path: &str| {
        let is_named = |rule: &u32| {
            let routes = &rules[*rule as usize];
            let is_get = |route: &Route| route.method.as_deref() == Some("GET");
            routes.is_empty() || !routes.iter().all(is_get)
        };
        let all = found(&index(rules), method, path);
        if method == "HEAD" { all.into_iter().filter(is_named).collect() } else { all }
    };
    // Looks up the path as it came only.
    let raw = |rules: &Rules, method: &str, path: &str| {
        let mut found = Candidates::new();
        index(rules).candidates(method, [path], &mut found);
        found.into_vec()
    };
    // Takes the first rule for the best, as a router does.
    let first = |rules: &Rules, method: &str, path: &str| {
        found(&index(rules), method, path).into_iter().take(1).collect()
    };
    // Compares a slash at the end.
    let strict = |rules: &Rules, method: &str, path: &str| {
        if path.ends_with('/') { Vec::new() } else { found(&index(rules), method, path) }
    };
    // Looks up segments as they came, not decoded.
    let encoded =
        |rules: &Rules, method: &str, path: &str| found(&index(rules), method, &path.replace('%', "%25"));
    assert!(check(without_head, 4096).is_err(), "HEAD");
    assert!(check(raw, 4096).is_err(), "readings");
    assert!(check(first, 4096).is_err(), "several rules");
    assert!(check(strict, 4096).is_err(), "slash at the end");
    assert!(check(encoded, 4096).is_err(), "decoding");
}

/// 10,000 rules of the kind that services have, some for many paths.
fn many(rules: usize) -> Rules {
    let rule = |at: usize| match at % 5 {
        0 => format!("POST /goods/{at}/order"),
        1 => format!("/tenants/{at}/{{*rest}}"),
        2 => format!("GET /v{}/service-{at}/{{id}}", at % 3),
        3 => format!("/{{tenant}}/reports/{at}"),
        _ => format!("PUT /users/{{id}}/settings/s{at}"),
    };
    (0..rules).map(|at| routes(&[rule(at)])).collect()
}

fn visits(index: &RouteIndex, path: &str) -> usize {
    index.walk("GET", path, &mut Candidates::new())
}

#[test]
fn ten_thousand_rules_take_as_many_nodes_as_ten() {
    let (few, all) = (index(&many(10)), index(&many(10_000)));
    for (path, bound) in [
        ("/goods/5/order", 5),
        ("/tenants/6/a/b/c/d", 5),
        ("/v2/service-2/17", 5),
        ("/acme/reports/3", 4),
        ("/users/17/settings/s4", 7),
        ("/nobody/knows/this/path", 4),
        ("/", 1),
    ] {
        assert!(visits(&all, path) <= bound, "{path}: {}", visits(&all, path));
        assert_eq!(visits(&all, path), visits(&few, path), "{path}");
    }
    assert_eq!(found(&all, "POST", "/goods/5/order"), [5]);
    assert_eq!(found(&all, "GET", "/v2/service-9992/x"), [9992]);
}

#[test]
fn a_walk_ends_where_the_patterns_do() {
    let index = index(&many(10_000));
    assert!(visits(&index, &"/a".repeat(30_000)) <= 4);
    assert!(visits(&index, &"/".repeat(60_000)) <= 4);
    assert!(visits(&index, &format!("/users/{}", "%41".repeat(20_000))) <= 4);
}

#[test]
fn a_walk_visits_no_node_twice() {
    // All 256 ways to have `a` or any segment in eight places: the most that patterns can branch.
    let pattern = |ways: u32| -> String {
        (0..8).map(|bit| if ways >> bit & 1 == 0 { "/a" } else { "/{id}" }).collect()
    };
    let rules: Rules = (0..256).map(|ways| routes(&[pattern(ways)])).collect();
    let index = index(&rules);
    assert_eq!(index.nodes.len(), 511);
    assert_eq!(visits(&index, "/a/a/a/a/a/a/a/a"), 511);
    assert_eq!(visits(&index, "/a/a/a/a/a/a/a/a/a"), 511);
    assert_eq!(found(&index, "GET", "/a/a/a/a/a/a/a/%61").len(), 256);
}

#[test]
fn rules_of_the_same_pattern_share_a_node() {
    let rules: Rules = METHODS[..4].iter().map(|method| routes(&[format!("{method} /a/{{id}}/")])).collect();
    let mut index = index(&rules);
    index.insert(9, &routes(&["/a/{other}"]));
    assert_eq!(index.nodes.len(), 3);
    assert_eq!(found(&index, "HEAD", "/a/7"), [0, 1, 9]);
    assert_eq!(found(&index, "POST", "/a/7"), [2, 9]);
    assert_eq!(found(&index, "FETCH", "/a/7"), [9]);
}

#[test]
fn a_rule_is_found_once_and_in_order() {
    let index = index(&vec![
        routes(&["/{*rest}", "/a", "GET /a", "HEAD", "GET"]),
        routes(&["POST"]),
        vec![],
        routes(&["/b", "/a/"]),
    ]);
    assert_eq!(found(&index, "HEAD", "/a"), [0, 2, 3]);
    // Each of its readings meets another rule.
    assert_eq!(found(&index, "POST", "/a//../b"), [0, 1, 2, 3]);
    assert_eq!(found(&index, "POST", "*"), [1, 2]);
    assert!(found(&RouteIndex::default(), "GET", "/a").is_empty());
}

#[test]
fn rules_by_entries_are_found_by_the_first_and_each_entry_is_read_once() {
    let mut index = ExactIndex::default();
    for (rule, name, value) in
        [(0, "plan", "pro"), (1, "plan", "free"), (3, "domain", "shop"), (2, "plan", "pro")]
    {
        index.insert(rule, name, value.as_bytes());
    }
    let read = RefCell::new(Vec::new());
    let find = |name: &str| {
        read.borrow_mut().push(name.to_string());
        match name {
            "plan" => Some(Cow::Borrowed(&b"pro"[..])),
            "domain" => Some(Cow::Owned(b"shop".to_vec())),
            _ => None,
        }
    };
    let mut found = Candidates::new();
    index.candidates(&find, &mut found);
    assert_eq!(found.as_slice(), [0, 2, 3]);
    read.borrow_mut().sort();
    assert_eq!(*read.borrow(), ["domain", "plan"]);

    let mut none = Candidates::new();
    index.candidates(&|_| Some(Cow::Borrowed(b"PRO")), &mut none);
    index.candidates(&|_| None, &mut none);
    assert!(none.is_empty());
}
