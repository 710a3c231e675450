//! The key of a request as an expression: `user else ip`.
//!
//! It is parsed once, from the same text in code and in a config file. The key of a request is
//! written in [`write`](crate::rules::key::write).

pub(crate) mod secret;
pub(crate) mod text;
pub(crate) mod value;
pub(crate) mod write;

use crate::rules::facts::Facts;
use smallvec::SmallVec;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The bytes of a key, on the stack as long as they are few.
pub(crate) type KeyBytes = SmallVec<[u8; 96]>;

/// The key of a request, which decides whose allowance it spends: parts of the request, joined by
/// `+`, with alternatives after `else`.
///
/// ```
/// use tidegate::rules::KeyExpr;
///
/// let key: KeyExpr = "user + path:2 else ip + path:2".parse()?;
/// assert_eq!(key.to_string(), "user + path:2 else ip + path:2");
///
/// let error = "usr".parse::<KeyExpr>().unwrap_err();
/// assert!(error.to_string().starts_with("`usr` is not a part of a key"));
/// # Ok::<(), tidegate::rules::KeyError>(())
/// ```
///
/// | part | its value | how it is written |
/// |---|---|---|
/// | `ip` | the client's address, IPv6 by its /64 | `ip:203.0.113.9` |
/// | `user` | the [`User`](crate::User) in the request's extensions | `user:42` |
/// | `header:x-api-key` | a header that is there once | `header:x-api-key=#6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2` |
/// | `path:2` | a segment of the path, counted from 1, percent-decoded | `path:2=7` |
/// | `query:goodsId` | a parameter that is there once, percent-decoded, `+` as space | `query:goodsId=7` |
/// | `cookie:session` | a cookie that is there once | `cookie:session=#e8bc163c82eee18733288c7d4ac636db3a6deb01` |
/// | `method` | the method; one that is not in RFC 9110 or PATCH is `OTHER` | `method:GET` |
/// | `route` | the method (`GET` for `HEAD`) and the pattern that matches (the rule's, or axum's) | `route:GET /goods/{id}` |
/// | `json:/order/goodsId` | a string, number or boolean in a JSON body, see [`JsonLayer`](crate::http::JsonLayer) | `json:/order/goodsId=7` |
/// | `entry:plan` | a `name=value` entry of the front end, see [`GuardBuilder::entry`](crate::http::GuardBuilder::entry) | `entry:plan=pro` |
/// | `number(path:2)` | the same as a whole number, for any `header:`, `path:`, `query:`, `cookie:`, `json:` or `entry:` | `path:2=7` |
/// | `secret(query:token)` | the same, written by its digest; for any `path:`, `query:`, `json:` or `entry:` | `secret(query:token)=#6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2` |
/// | `'everyone'` | a constant | `'everyone'` |
///
/// A key is a text: `/goods/7`, `/goods/07` and `/goods/+7` have an allowance each, though they are
/// the same goods for a handler that reads a number. `number(path:2)` is 7 for all of them, and a
/// value that is no whole number of at most 39 digits is ambiguous.
///
/// Several parts are joined as `user:42+path:2=7`. In values, `+` and `%` are written `%2B` and
/// `%25`, so no request can imitate another one's parts. A value above 128 bytes is written by its
/// beginning and 128 bits of its SHA-256. An empty value counts as missing: then the next alternative
/// is used, or the rule's [`Missing`](crate::rules::Missing) decides. A value above 4096 bytes, one
/// that is there twice, and a segment of a path that programs read differently (`/a//../b`) is
/// ambiguous, and does not lead to the next alternative.
///
/// Values of headers, of cookies and of `secret(…)` are written as 160 bits of their SHA-256,
/// in the log as in the store: [`stored_key`](crate::rules::stored_key) computes it, and so does
/// `printf %s "$KEY" | sha256sum | cut -c -40`. [`Rule::show_keys`](crate::rules::Rule::show_keys)
/// writes them as they are, those of more than 128 bytes still by this digest.
#[derive(Clone, Debug)]
pub struct KeyExpr {
    pub(crate) alternatives: Vec<Vec<Part>>,
}

/// One part of a key.
#[derive(Clone)]
pub(crate) enum Part {
    Ip,
    User,
    Method,
    Route,
    Value(ClientValue),
    /// In its quotes.
    Constant(Box<str>),
    /// `tag` is `name:`.
    Custom {
        tag: Box<str>,
        find: Find,
    },
}

/// A value that the client sends.
#[derive(Clone)]
pub(crate) struct ClientValue {
    pub(crate) source: Source,
    /// Of a header in lower case.
    pub(crate) name: Box<str>,
    pub(crate) form: Form,
    /// `query:goodsId=`.
    pub(crate) tag: Box<str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Header,
    /// A segment, counted from 1.
    Path(usize),
    Query,
    Cookie,
    Json,
    Entry,
}

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    /// As a whole number: `number(…)`.
    Number,
    /// By its digest: `secret(…)`.
    Secret,
}

/// A function that finds a part.
pub(crate) type Find = Arc<dyn Fn(&dyn Facts) -> Option<String> + Send + Sync>;

impl KeyExpr {
    /// A part whose value a function returns, written as `name:…`. `None` is missing.
    ///
    /// ```
    /// use tidegate::rules::KeyExpr;
    ///
    /// // the tenant is the first label of the host's name
    /// let tenant = KeyExpr::from_fn("tenant", |facts| {
    ///     let host = facts.header("host").found()?;
    ///     let label = host.split(|byte| *byte == b'.').next()?;
    ///     std::str::from_utf8(label).ok().map(str::to_ascii_lowercase)
    /// })?;
    /// let key = tenant.and("user".parse()?);
    /// assert_eq!(key.to_string(), "fn:tenant + user");
    /// # Ok::<(), tidegate::rules::KeyError>(())
    /// ```
    ///
    /// # Errors
    /// If the name is not 1 to 64 letters, digits or any of `._-[]$@`, or is the name of a built-in
    /// part.
    pub fn from_fn(
        name: &str,
        find: impl Fn(&dyn Facts) -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self, KeyError> {
        text::check_name("fn", name)?;
        if text::KINDS.contains(&name) {
            // Its keys could not be distinguished from those of that part.
            let what = format!("`{name}` is a part of its own");
            return Err(KeyError { what, example: "KeyExpr::from_fn(\"tenant\", …)" });
        }
        let part = Part::Custom { tag: format!("{name}:").into(), find: Arc::new(find) };
        Ok(Self { alternatives: vec![vec![part]] })
    }

    /// This and `other` together: `self + other`. Alternatives are combined, each with
    /// each.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let Self { alternatives: others } = other;
        let join = |own: &Vec<Part>| -> Vec<Vec<Part>> {
            others.iter().map(|more| own.iter().chain(more).cloned().collect()).collect()
        };
        Self { alternatives: self.alternatives.iter().flat_map(join).collect() }
    }

    /// `other` where a part of this is missing: `self else other`.
    #[must_use]
    pub fn or_else(mut self, other: Self) -> Self {
        self.alternatives.extend(other.alternatives);
        self
    }

    /// The value, if it is one that says what a request costs.
    pub(crate) fn cost_part(&self) -> Option<&ClientValue> {
        let [parts] = self.alternatives.as_slice() else { return None };
        let [Part::Value(value)] = parts.as_slice() else { return None };
        let is_cost = match value.source {
            Source::Header | Source::Query | Source::Json | Source::Entry => value.form == Form::Plain,
            Source::Path(_) | Source::Cookie => false,
        };
        is_cost.then_some(value)
    }

    /// The JSON pointers that it needs.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = &str> {
        self.alternatives.iter().flatten().filter_map(Part::value).filter_map(ClientValue::pointer)
    }
}

impl Part {
    pub(crate) fn value(&self) -> Option<&ClientValue> {
        if let Self::Value(value) = self { Some(value) } else { None }
    }

    /// What is written before its value: `path:2=`.
    #[inline]
    pub(crate) fn tag(&self) -> &str {
        match self {
            Self::Ip => "ip:",
            Self::User => "user:",
            Self::Method => "method:",
            Self::Route => "route:",
            Self::Value(ClientValue { tag, .. }) | Self::Constant(tag) | Self::Custom { tag, .. } => tag,
        }
    }
}

impl ClientValue {
    /// True if it is a secret: values of headers and cookies usually are.
    #[inline]
    pub(crate) fn is_secret(&self) -> bool {
        self.form == Form::Secret || matches!(self.source, Source::Header | Source::Cookie)
    }

    /// Its JSON pointer, if it is a field of a JSON body.
    pub(crate) fn pointer(&self) -> Option<&str> {
        (self.source == Source::Json).then_some(&self.name)
    }
}

impl FromStr for KeyExpr {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        text::parse(text)
    }
}

impl TryFrom<&str> for KeyExpr {
    type Error = KeyError;

    fn try_from(text: &str) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl TryFrom<String> for KeyExpr {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl fmt::Display for KeyExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |parts: &Vec<Part>| parts.iter().map(Part::to_string).collect::<Vec<_>>().join(" + ");
        f.write_str(&self.alternatives.iter().map(join).collect::<Vec<_>>().join(" else "))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tag = self.tag();
        let text = &tag[..tag.len() - 1];
        match self {
            Self::Constant(_) => f.write_str(tag),
            Self::Custom { .. } => write!(f, "fn:{text}"),
            Self::Value(value) if value.form == Form::Number => write!(f, "number({text})"),
            Self::Ip | Self::User | Self::Method | Self::Route | Self::Value(_) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Why a text is not a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; write for example `{example}`")]
pub struct KeyError {
    pub(crate) what: String,
    pub(crate) example: &'static str,
}

impl From<std::convert::Infallible> for KeyError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
