//! Rule sets as data: written in TOML, JSON or any other format of serde, and read from it.
//!
//! Reading is two steps. A file becomes plain data ([`RuleFileData`]), in which nothing is
//! checked but its size; then its fields become [`Rule`]s. An error of the second step says where
//! in the data it is ([`RuleFileError::pointer`]), so that a program with the text at hand can
//! show line and column.
//!
//! What each field says by itself is checked here. What fields say together (a cost above a limit,
//! a segment that no path has), what keys in lists can be, and names of gates are checked when
//! the rules are put in force.

pub(crate) mod error;
mod fields;
mod plain;
mod redis;
#[cfg(test)]
mod tests;

use crate::rules::RulesBuilder;
use crate::rules::file::error::RuleFileError;
use crate::rules::file::plain::PlainValue;
use crate::rules::rule::Rule;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Rules and the lists of all of them, as a file has them: for [`RulesBuilder::file`].
///
/// ```
/// use tidegate::rules::RuleFile;
///
/// let file: RuleFile = toml::from_str(
///     r#"
///     deny = { networks = "198.51.100.0/24" }
///
///     [[rules]]
///     name = "checkout"
///     on = "POST /goods/{id}/order"
///     by = "number(path:2)"
///     limits = "1000/s burst 1s wait 1s"
///
///     [[rules]]
///     name = "api"
///     by = "header:x-api-key"
///     limits = ["100/s", "10000/h"]
///     missing = "refuse"
///     cost_from = { part = "query:count", max = 50 }
///     "#,
/// )?;
/// assert_eq!(file.rules.len(), 2);
///
/// let json = serde_json::to_string(&file)?;
/// assert!(json.starts_with(r#"{"rules":[{"name":"checkout","on":"POST /goods/{id}/order","by":"#));
/// let same: RuleFile = serde_json::from_str(&json)?;
/// assert_eq!(toml::to_string(&same)?, toml::to_string(&file)?);
///
/// let wrong = r#"{ "rules": [{ "name": "checkout", "limts": "1000/s", "by": "user" }] }"#;
/// let error = serde_json::from_str::<RuleFile>(wrong).unwrap_err();
/// assert_eq!(error.to_string(), "rule `checkout`: unknown field `limts`; write `limits`");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// All fields are in `docs/rule-files.md`. A file has at most 50,000 rules and 16 MiB, counting its
/// texts and 16 bytes for each value.
///
/// What is not data cannot be written: keys of [`KeyExpr::from_fn`](crate::rules::KeyExpr::from_fn)
/// and costs of [`Rule::cost_with`].
#[derive(Clone, Default)]
pub struct RuleFile {
    /// The rules, for [`Rules::replace`](crate::rules::Rules::replace).
    pub rules: Vec<Rule>,
    /// For [`RulesBuilder::allow_networks`].
    pub allow_networks: Vec<String>,
    /// For [`RulesBuilder::allow_keys`].
    pub allow_keys: Vec<Vec<u8>>,
    /// For [`RulesBuilder::deny_networks`].
    pub deny_networks: Vec<String>,
    /// For [`RulesBuilder::deny_keys`].
    pub deny_keys: Vec<Vec<u8>>,
}

/// A rule file as plain data: any fields, of which nothing is checked yet.
///
/// ```
/// use tidegate::rules::{RuleFile, RuleFileData};
///
/// let text = r#"{ "rules": [{ "name": "api", "by": "ip", "limits": ["1/s", "fast"] }] }"#;
/// let data: RuleFileData = serde_json::from_str(text)?;
/// let error = RuleFile::try_from(data).unwrap_err();
/// assert_eq!(error.rule(), Some("api"));
/// assert_eq!(error.pointer(), "/rules/0/limits/1");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct RuleFileData(PlainValue);

impl<F> RulesBuilder<F> {
    /// The rules and the lists of a file.
    ///
    /// ```
    /// use tidegate::{Limiter, rules::Rules};
    ///
    /// let text = r#"{ "rules": [{ "name": "api", "by": "ip", "limits": "100/s" }] }"#;
    /// let rules = Rules::new(&Limiter::new()).file(serde_json::from_str(text)?).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn file(self, file: RuleFile) -> Self {
        let RuleFile { rules, allow_networks, allow_keys, deny_networks, deny_keys } = file;
        let builder = rules.into_iter().fold(self, Self::rule);
        let builder = builder.allow_networks(allow_networks).allow_keys(allow_keys);
        builder.deny_networks(deny_networks).deny_keys(deny_keys)
    }
}

/// Without the keys of lists, which may be secrets.
impl fmt::Debug for RuleFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleFile").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// Without its contents, which may be secrets.
impl fmt::Debug for RuleFileData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleFileData").finish_non_exhaustive()
    }
}

impl TryFrom<RuleFileData> for RuleFile {
    type Error = RuleFileError;

    fn try_from(RuleFileData(value): RuleFileData) -> Result<Self, RuleFileError> {
        fields::read_file(value)
    }
}

impl TryFrom<&RuleFile> for RuleFileData {
    type Error = RuleFileError;

    fn try_from(file: &RuleFile) -> Result<Self, RuleFileError> {
        let data = Self(fields::write(fields::of_file(file))?);
        // What is written can be read again: a rule may hold what was wrong from the beginning.
        RuleFile::try_from(data.clone())?;
        Ok(data)
    }
}

impl<'de> Deserialize<'de> for RuleFileData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        plain::read(deserializer).map(Self)
    }
}

impl Serialize for RuleFileData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RuleFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RuleFileData::deserialize(deserializer)?.try_into().map_err(D::Error::custom)
    }
}

impl Serialize for RuleFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RuleFileData::try_from(self).map_err(S::Error::custom)?.serialize(serializer)
    }
}
