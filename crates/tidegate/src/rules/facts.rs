//! What a front end knows about a request: all that it hands to the rules.
//!
//! Rules know no protocol. A front end implements [`Facts`] for its requests, and renders the
//! [`Ruling`](crate::rules::Ruling) that it gets for them.

use crate::caller::Client;
use crate::rules::route::path::RequestPath;
use std::borrow::Cow;

/// One fact about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    /// The request has it once.
    Found(T),
    /// The request does not have it.
    Missing,
    /// The request has it twice, or in a form that cannot be read. Programs differ in how they read
    /// that, so a client must not gain by sending it: it leads to no other alternative of a key, and
    /// skips no rule.
    Ambiguous,
}

/// The bytes of a fact, borrowed where nothing in them had to be decoded.
pub type FactValue<'a> = Cow<'a, [u8]>;

impl<T> Fact<T> {
    /// The fact, if it was found.
    pub fn found(self) -> Option<T> {
        match self {
            Self::Found(value) => Some(value),
            Self::Missing | Self::Ambiguous => None,
        }
    }

    /// The same fact with its value converted.
    pub fn map<U>(self, to: impl FnOnce(T) -> U) -> Fact<U> {
        self.and_then(|value| Fact::Found(to(value)))
    }

    /// What `to` makes of the value, if it was found.
    pub(crate) fn and_then<U>(self, to: impl FnOnce(T) -> Fact<U>) -> Fact<U> {
        match self {
            Self::Found(value) => to(value),
            Self::Missing => Fact::Missing,
            Self::Ambiguous => Fact::Ambiguous,
        }
    }

    /// The fact of all values that a request has: ambiguous if there are several.
    pub fn once(mut places: impl Iterator<Item = T>) -> Self {
        match (places.next(), places.next()) {
            (None, _) => Self::Missing,
            (Some(only), None) => Self::Found(only),
            (Some(_), Some(_)) => Self::Ambiguous,
        }
    }
}

impl<T> From<Option<T>> for Fact<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Missing, Self::Found)
    }
}

/// What a front end knows about a request. Facts that its protocol does not have are missing, which
/// is the default of every method.
///
/// ```
/// use std::borrow::Cow;
/// use tidegate::Limiter;
/// use tidegate::rules::{Charges, Fact, FactValue, Facts, Rule, Rules};
///
/// /// `plan=pro tenant=acme`
/// struct Line<'a>(&'a str);
///
/// impl Facts for Line<'_> {
///     fn entry(&self, name: &str) -> Fact<FactValue<'_>> {
///         let pairs = self.0.split(' ').filter_map(|pair| pair.split_once('='));
///         Fact::once(pairs.filter(|(own, _)| *own == name).map(|(_, value)| Cow::Borrowed(value.as_bytes())))
///     }
/// }
///
/// let limiter = Limiter::new();
/// let rules = Rules::new(&limiter).rule(Rule::new("tenants", "1/min").by("entry:tenant")).build()?;
/// let decide = |line| rules.decide(&Line(line), Charges::Final).blocking();
/// assert!(decide("plan=pro tenant=acme").is_allowed());
/// let denied = decide("tenant=acme");
/// assert_eq!(
///     denied.binding().unwrap().to_string(),
///     "denied by `tenants` for entry:tenant=acme: 1/min, 0 left, free again in 60 s"
/// );
/// # Ok::<(), tidegate::rules::RulesError>(())
/// ```
#[expect(unused_variables, reason = "their names say what they are")]
pub trait Facts {
    /// The client, by its address: the key part `ip`, and networks on lists.
    fn client(&self) -> Option<Client> {
        None
    }

    /// True if the client has chosen its address itself, such as a private IPv4 address written as a
    /// translated one. Allow lists exempt no such client.
    fn is_client_forged(&self) -> bool {
        false
    }

    /// The signed-in user: the key part `user`.
    fn user(&self) -> Option<&str> {
        None
    }

    /// The method, as in `GET`.
    fn method(&self) -> Option<&str> {
        None
    }

    /// True if only rules that name the request's method apply to it.
    fn needs_named_method(&self) -> bool {
        false
    }

    /// The path.
    fn path(&self) -> Option<&RequestPath<'_>> {
        None
    }

    /// The pattern of the route that a router has chosen.
    fn route(&self) -> Option<&str> {
        None
    }

    /// A header field, by its name in lower case.
    fn header(&self, name: &str) -> Fact<FactValue<'_>> {
        Fact::Missing
    }

    /// A query parameter, decoded.
    fn query(&self, name: &str) -> Fact<FactValue<'_>> {
        Fact::Missing
    }

    /// A cookie.
    fn cookie(&self, name: &str) -> Fact<FactValue<'_>> {
        Fact::Missing
    }

    /// A field of a JSON body, by its pointer (RFC 6901).
    fn json(&self, pointer: &str) -> Fact<FactValue<'_>> {
        Fact::Missing
    }

    /// A `name=value` entry: a part of a descriptor, an argument of a function, or any other value
    /// that the front end knows under a name.
    fn entry(&self, name: &str) -> Fact<FactValue<'_>> {
        Fact::Missing
    }
}
