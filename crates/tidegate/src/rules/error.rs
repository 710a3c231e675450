//! Why rules cannot be put in force.

use std::fmt;

/// Why rules cannot be put in force: which rule, what is wrong with it, and what
/// to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesError {
    rule: Option<String>,
    what: String,
}

impl RulesError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { rule: None, what: what.into() }
    }

    pub(crate) fn of(rule: &str, what: impl fmt::Display) -> Self {
        Self { rule: Some(crate::Key::new(rule).to_string()), what: what.to_string() }
    }

    /// The rule that is wrong, if it is one.
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rule {
            Some(rule) => write!(f, "rule `{rule}`: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for RulesError {}
