//! Why a rule file cannot be read or written, and where in it that is.

use crate::Key;
use std::fmt;

/// Why a rule file cannot be read or written: which rule, which field, what is wrong with it, and
/// what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFileError {
    rule: Option<String>,
    /// From the value outwards.
    path: Vec<PathStep>,
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStep {
    Field(String),
    /// From 0.
    Item(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    /// What is wrong with the value, as what is said of it.
    Value(String),
    /// There is no such field; what to write instead.
    UnknownField(String),
}

impl RuleFileError {
    /// `what` is said of the value, as in `needs a text`.
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { rule: None, path: Vec::new(), problem: Problem::Value(what.into()) }
    }

    pub(super) fn unknown(name: &str, instead: String) -> Self {
        Self { problem: Problem::UnknownField(instead), ..Self::new("") }.at_field(name)
    }

    /// It is within this field.
    pub(super) fn at_field(mut self, name: &str) -> Self {
        self.path.push(PathStep::Field(name.into()));
        self
    }

    /// It is within this item of a list.
    pub(super) fn at_item(mut self, at: usize) -> Self {
        self.path.push(PathStep::Item(at));
        self
    }

    pub(super) fn of_rule(mut self, name: &str) -> Self {
        self.rule = Some(Key::new(name).to_string());
        self
    }

    /// The rule that is wrong, if it is one that has a name.
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// Where in the data it is, as a JSON pointer (RFC 6901): `/rules/3/limits/1`. Of a field that
    /// is missing, where it would be.
    pub fn pointer(&self) -> String {
        let step = |step: &PathStep| match step {
            PathStep::Field(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            PathStep::Item(at) => format!("/{at}"),
        };
        self.path.iter().rev().map(step).collect()
    }

    /// `limits[1]`, within the rule where that has a name.
    fn location(&self) -> String {
        let within = if self.rule.is_some() { 2 } else { 0 };
        let mut out = String::new();
        for step in self.path.iter().rev().skip(within) {
            match step {
                PathStep::Item(at) => out.push_str(&format!("[{at}]")),
                PathStep::Field(name) => {
                    out.push_str(if out.is_empty() { "" } else { "." });
                    out.push_str(&Key::new(name).to_string());
                }
            }
        }
        out
    }
}

impl fmt::Display for RuleFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rule) = &self.rule {
            write!(f, "rule `{rule}`: ")?;
        }
        match (&self.problem, self.location()) {
            (Problem::UnknownField(instead), location) => {
                write!(f, "unknown field `{location}`; {instead}")
            }
            (Problem::Value(what), location) if location.is_empty() => write!(f, "the rule file {what}"),
            (Problem::Value(what), location) => write!(f, "`{location}` {what}"),
        }
    }
}

impl std::error::Error for RuleFileError {}
