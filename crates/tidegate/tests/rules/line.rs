//! The front end of these tests, the example of "How to add" in ARCHITECTURE.md: `parse` makes facts
//! of a line, `render` makes a line of a ruling.
//!
//! `POST /goods/7?n=2 from 192.0.2.1 user ann header x-key=k1 entry plan=pro`

use std::borrow::Cow;
use std::net::IpAddr;
use tidegate::Client;
use tidegate::rules::{Charges, Fact, FactValue, Facts, RequestPath, Rules, Ruling};

/// The facts of one line.
#[derive(Debug)]
pub(crate) struct LineFacts<'a> {
    pub(crate) method: Option<&'a str>,
    path: Option<RequestPath<'a>>,
    pub(crate) query: Option<&'a str>,
    pub(crate) client: Option<IpAddr>,
    pub(crate) user: Option<&'a str>,
    pub(crate) headers: Vec<(&'a str, &'a str)>,
    pub(crate) entries: Vec<(&'a str, &'a str)>,
}

impl<'a> LineFacts<'a> {
    /// Words come in pairs: what is known, and its value.
    pub(crate) fn parse(line: &'a str) -> Self {
        let mut facts = Self {
            method: None,
            path: None,
            query: None,
            client: None,
            user: None,
            headers: Vec::new(),
            entries: Vec::new(),
        };
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            let mut value = || words.next().expect("a value follows");
            match word {
                "from" => facts.client = Some(value().parse().expect("an address")),
                "user" => facts.user = Some(value()),
                "header" => facts.headers.extend(value().split_once('=')),
                "entry" => facts.entries.extend(value().split_once('=')),
                method => {
                    let target = value();
                    let (path, query) = target.split_once('?').map_or((target, None), |(p, q)| (p, Some(q)));
                    facts.method = Some(method);
                    (facts.path, facts.query) = (Some(RequestPath::new(path)), query);
                }
            }
        }
        facts
    }

    /// The path as it came, with its query.
    pub(crate) fn target(&self) -> String {
        let path = self.path.as_ref().map_or("/", RequestPath::raw);
        self.query.map_or_else(|| path.to_string(), |query| format!("{path}?{query}"))
    }
}

fn find<'a>(all: &[(&'a str, &'a str)], name: &str) -> Fact<FactValue<'a>> {
    let values = all.iter().filter(|(own, _)| *own == name).map(|(_, value)| *value);
    Fact::once(values).map(|value| Cow::Borrowed(value.as_bytes()))
}

impl Facts for LineFacts<'_> {
    fn client(&self) -> Option<Client> {
        self.client.map(Client::new)
    }

    fn user(&self) -> Option<&str> {
        self.user
    }

    fn method(&self) -> Option<&str> {
        self.method
    }

    fn path(&self) -> Option<&RequestPath<'_>> {
        self.path.as_ref()
    }

    fn header(&self, name: &str) -> Fact<FactValue<'_>> {
        find(&self.headers, name)
    }

    fn query(&self, name: &str) -> Fact<FactValue<'_>> {
        let pairs: Vec<(&str, &str)> = self
            .query
            .iter()
            .flat_map(|query| query.split('&'))
            .filter_map(|pair| pair.split_once('='))
            .collect();
        find(&pairs, name)
    }

    fn entry(&self, name: &str) -> Fact<FactValue<'_>> {
        find(&self.entries, name)
    }
}

/// A ruling as a line: the sentence of the record that binds.
pub(crate) fn render(ruling: &Ruling) -> String {
    ruling.binding().map_or_else(|| "no rule applies".to_string(), |record| record.to_string())
}

/// Decides a line.
pub(crate) fn decide(rules: &Rules, line: &str) -> String {
    render(&rules.decide(&LineFacts::parse(line), Charges::Final).blocking())
}
