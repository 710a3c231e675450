//! What is deferred: a method's name, its parameters, and how it wants to be replayed.
//!
//! Everything is checked here, once, so that no single record can spoil the transaction that
//! it shares with others.

use serde::Serialize;
use std::time::Duration;

/// A method's name is at most so long, in bytes: the column holds no more.
pub const METHOD_MAX: usize = 64;

/// An idempotency key is at most so long, in bytes.
pub const KEY_MAX: usize = 128;

/// Parameters are at most so long, as JSON, in bytes.
pub const PARAMS_MAX: usize = 256 * 1024;

/// Times further ahead than this are taken to be this: a century.
pub(crate) const FOREVER: Duration = Duration::from_secs(100 * 366 * 86_400);

/// A call to be recorded, and later replayed.
///
/// ```
/// use std::time::Duration;
/// use tidegate_journal::Call;
///
/// let call = Call::new("cancel_task", &serde_json::json!({ "task": 17 }))?
///     .key("cancel-17")
///     .priority(9)
///     .deadline_in(Duration::from_secs(3600));
/// # assert_eq!(call.method(), "cancel_task");
/// # Ok::<(), tidegate_journal::CallError>(())
/// ```
#[derive(Clone)]
pub struct Call {
    pub(crate) method: String,
    pub(crate) params: String,
    pub(crate) key: Option<String>,
    pub(crate) priority: u8,
    pub(crate) delay: Duration,
    pub(crate) deadline: Option<Duration>,
    pub(crate) max_attempts: Option<u16>,
}

/// Why a call cannot be recorded, now or ever.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The name of the method.
    #[error("method `{method}` has {len} bytes, and a method's name has 1 to {METHOD_MAX}: shorten it")]
    Method {
        /// Its beginning.
        method: String,
        /// Its length.
        len: usize,
    },
    /// A NUL character, which PostgreSQL cannot hold.
    #[error("{what} of `{method}` contains a NUL character, which PostgreSQL cannot hold: remove it")]
    Nul {
        /// The method's name.
        method: String,
        /// Where it is.
        what: &'static str,
    },
    /// The parameters.
    #[error(
        "the parameters of `{method}` have {len} bytes as JSON, more than {PARAMS_MAX}: \
         record a reference to them instead"
    )]
    Params {
        /// The method's name.
        method: String,
        /// Their length.
        len: usize,
    },
    /// The parameters are not JSON, or cannot be written as JSON.
    #[error("the parameters of `{method}` are not JSON")]
    Json {
        /// The method's name.
        method: String,
        /// What is wrong with them.
        source: serde_json::Error,
    },
    /// The idempotency key.
    #[error("an idempotency key of `{method}` has {len} bytes, and 1 to {KEY_MAX} are allowed: digest it")]
    Key {
        /// The method's name.
        method: String,
        /// Its length.
        len: usize,
    },
}

impl Call {
    /// A call of `method` with `params`, which become JSON.
    ///
    /// # Errors
    /// Where the name or the parameters cannot be kept.
    pub fn new<P: Serialize + ?Sized>(method: &str, params: &P) -> Result<Self, CallError> {
        let params = serde_json::to_string(params)
            .map_err(|source| CallError::Json { method: shown(method), source })?;
        Self::build(method, params)
    }

    /// The same with parameters that are JSON already.
    ///
    /// # Errors
    /// Where the name or the parameters cannot be kept.
    pub fn from_json(method: &str, params: &str) -> Result<Self, CallError> {
        if params.len() > PARAMS_MAX {
            return Err(CallError::Params { method: shown(method), len: params.len() });
        }
        // Read and written again: what a database would refuse (depth, half characters,
        // numbers without end) ends here, alone.
        let value: serde_json::Value = serde_json::from_str(params)
            .map_err(|source| CallError::Json { method: shown(method), source })?;
        Self::new(method, &value)
    }

    pub(crate) fn build(method: &str, params: String) -> Result<Self, CallError> {
        if !(1..=METHOD_MAX).contains(&method.len()) {
            return Err(CallError::Method { method: shown(method), len: method.len() });
        }
        if method.contains('\0') {
            return Err(CallError::Nul { method: shown(method), what: "the name" });
        }
        if params.len() > PARAMS_MAX {
            return Err(CallError::Params { method: method.to_owned(), len: params.len() });
        }
        if has_nul(&params) {
            return Err(CallError::Nul { method: method.to_owned(), what: "a parameter" });
        }
        Ok(Self {
            method: method.to_owned(),
            params,
            key: None,
            priority: PRIORITY,
            delay: Duration::ZERO,
            deadline: None,
            max_attempts: None,
        })
    }

    /// Makes it safe to record the same call twice: the same key of the same method gives
    /// the first record's guid again, and nothing new, while that record is pending or running,
    /// and for as long as it is kept once it is done; its own parameters stay. A record that
    /// failed, expired or was cancelled no longer holds its key: the next call under it is
    /// recorded anew. Checked when it is deferred.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// 0 to 9, the highest first; 5 unless said. More than 9 is 9.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority.min(9);
        self
    }

    /// Not before so much time has passed.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay.min(FOREVER);
        self
    }

    /// If it has not started by then, it expires. What has started is left to finish.
    #[must_use]
    pub fn deadline_in(mut self, time: Duration) -> Self {
        self.deadline = Some(time.min(FOREVER));
        self
    }

    /// How often it is tried at most, at least once; the worker decides unless said.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u16) -> Self {
        self.max_attempts = Some(attempts.clamp(1, i16::MAX.unsigned_abs()));
        self
    }

    /// The method's name.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// What could not be said while it was built.
    pub(crate) fn checked(self) -> Result<Self, CallError> {
        let Some(key) = &self.key else { return Ok(self) };
        if !(1..=KEY_MAX).contains(&key.len()) {
            return Err(CallError::Key { len: key.len(), method: self.method });
        }
        if key.contains('\0') {
            return Err(CallError::Nul { method: self.method, what: "the idempotency key" });
        }
        Ok(self)
    }
}

/// Without parameters and key, which may be personal and must not get into a log by accident.
impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("method", &self.method)
            .field("priority", &self.priority)
            .field("delay", &self.delay)
            .field("deadline", &self.deadline)
            .field("max_attempts", &self.max_attempts)
            .finish_non_exhaustive()
    }
}

/// Of a call that says nothing about it, and of records that others wrote.
pub(crate) const PRIORITY: u8 = 5;

/// A name for a message: its beginning, if it is long.
fn shown(method: &str) -> String {
    method.chars().take(METHOD_MAX).collect()
}

/// JSON has a NUL only as an escape, since control characters must be escaped.
fn has_nul(json: &str) -> bool {
    let mut rest = json.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        if rest[at + 1..].starts_with(b"u0000") {
            return true;
        }
        // Past the escaped character, which may be a backslash itself.
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_nul_is_found_and_its_picture_is_not_one() {
        assert!(Call::new("m", &json!({ "a": "x\0" })).is_err());
        assert!(Call::new("m", &json!({ "\0": 1 })).is_err());
        assert!(Call::from_json("m", r#"["\\\u0000"]"#).is_err());
        assert!(Call::new("m", &json!(["\\u0000", "\\", "u0000"])).is_ok());
    }

    #[test]
    fn what_does_not_fit_the_table_is_refused_with_its_size() {
        let long = "é".repeat(33);
        let error = Call::new(&long, &()).unwrap_err().to_string();
        assert!(error.contains("66 bytes") && error.contains("1 to 64"), "{error}");
        assert!(Call::new("", &()).is_err());
        let error = Call::new("m", &"x".repeat(PARAMS_MAX)).unwrap_err().to_string();
        assert!(error.contains("262146 bytes"), "{error}");
        assert!(Call::new("m", &()).unwrap().key("").checked().is_err());
        assert!(Call::new("m", &()).unwrap().key("k".repeat(129)).checked().is_err());
        assert!(Call::new("m", &()).unwrap().key("a\0").checked().is_err());
    }

    #[test]
    fn json_from_strangers_is_read_before_it_is_believed() {
        let deep = "[".repeat(100_000);
        for text in ["", "{", "nul", r#"{"a":1}x"#, r#""\ud800""#, "1e999", &deep] {
            assert!(Call::from_json("m", text).is_err(), "{text:.20}");
        }
        assert_eq!(Call::from_json("m", r#" { "a" : 1 } "#).unwrap().params, r#"{"a":1}"#);
    }
}
