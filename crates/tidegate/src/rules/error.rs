//! Why rules cannot be put in force.

use std::fmt;

/// Why rules cannot be put in force: which rule, what is wrong with it, and what
/// to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", rule.iter().map(|rule| format!("rule `{rule}`: ")).collect::<String>())]
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
