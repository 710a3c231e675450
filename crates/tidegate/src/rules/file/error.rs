//! Why a rule file cannot be read or written, and where in it that is.

use crate::Key;
use std::fmt;

pub(super) type Result<T, E = RuleFileError> = std::result::Result<T, E>;

/// Why a rule file cannot be read or written: which rule, which field, what is wrong with it, and
/// what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFileError {
    rule: Option<String>,
    pointer: String,
    /// `.limits[1]`, within the rule where that has a name.
    location: String,
    problem: Problem,
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
        let problem = Problem::Value(what.into());
        Self { rule: None, pointer: String::new(), location: String::new(), problem }
    }

    pub(super) fn unknown_field(instead: String) -> Self {
        Self { problem: Problem::UnknownField(instead), ..Self::new("") }
    }

    /// It is within this field.
    pub(super) fn at_field(self, name: &str) -> Self {
        let step = name.replace('~', "~0").replace('/', "~1");
        self.within(&step, &format!(".{}", Key::new(name)))
    }

    /// It is within this item of a list, counted from 0.
    pub(super) fn at_item(self, at: usize) -> Self {
        self.within(&at.to_string(), &format!("[{at}]"))
    }

    fn within(mut self, step: &str, place: &str) -> Self {
        self.pointer = format!("/{step}{}", self.pointer);
        if self.rule.is_none() {
            self.location.insert_str(0, place);
        }
        self
    }

    pub(super) fn of_rule(self, name: &str) -> Self {
        Self { rule: Some(Key::new(name).to_string()), ..self }
    }

    /// The rule that is wrong, if it is one that has a name.
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// Where in the data it is, as a JSON pointer (RFC 6901): `/rules/3/limits/1`. Of a field that
    /// is missing, where it would be.
    pub fn pointer(&self) -> String {
        self.pointer.clone()
    }
}

impl fmt::Display for RuleFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rule) = &self.rule {
            write!(f, "rule `{rule}`: ")?;
        }
        let location = self.location.strip_prefix('.').unwrap_or(&self.location);
        match &self.problem {
            Problem::UnknownField(instead) => write!(f, "unknown field `{location}`; {instead}"),
            Problem::Value(what) if location.is_empty() => write!(f, "the rule file {what}"),
            Problem::Value(what) => write!(f, "`{location}` {what}"),
        }
    }
}

impl std::error::Error for RuleFileError {}
