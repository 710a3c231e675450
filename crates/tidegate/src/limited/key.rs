//! The text of a key, written on the stack: a prefix, and one part or several.
//!
//! Several parts are joined by commas, and a comma or backslash inside of one is escaped,
//! so that no two calls with different parts share a key.

use crate::caller::{Caller, Client};
use crate::gate::Gate;
use crate::refusal::Refusal;
use smallvec::SmallVec;
use std::fmt::{self, Display, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The key of a call, as it is written.
pub struct CallKey {
    bytes: SmallVec<[u8; 64]>,
    joint: &'static str,
    /// True if commas separate parts.
    is_joined: bool,
    is_first: bool,
    is_identified: bool,
}

/// What happens where the caller is not known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// All such calls share one allowance.
    Share,
    /// Such calls are refused.
    Refuse,
}

impl CallKey {
    pub(super) fn new(prefix: &str, joint: &'static str, parts: usize) -> Self {
        let bytes = SmallVec::from_slice(prefix.as_bytes());
        Self { bytes, joint, is_joined: parts > 1, is_first: true, is_identified: true }
    }

    /// Adds what an expression over the arguments says.
    #[inline]
    #[must_use]
    pub fn part<T: KeyPart + ?Sized>(self, part: &T) -> Self {
        self.labelled("", &Displayed(part))
    }

    /// Adds the client of the running task.
    #[must_use]
    pub fn caller_ip(self, missing: Missing) -> Self {
        self.ip(&Caller::current_client(), missing)
    }

    /// Adds the user of the running task.
    #[must_use]
    pub fn caller_user(self, missing: Missing) -> Self {
        let user = Caller::current_user();
        self.user(user.as_ref().map(|user| user as &dyn Display), missing)
    }

    /// Adds the client of an address.
    #[must_use]
    pub fn ip<T: AsClient + ?Sized>(self, address: &T, missing: Missing) -> Self {
        match address.as_client() {
            Some(client) => self.labelled("ip:", &client),
            None => self.unknown("unknown-ip", missing),
        }
    }

    /// Adds a user.
    #[must_use]
    pub fn user(self, user: Option<&dyn Display>, missing: Missing) -> Self {
        match user {
            Some(user) => self.labelled("user:", user),
            None => self.unknown("unknown-user", missing),
        }
    }

    /// `label` begins with a letter and holds nothing that is escaped. A known caller
    /// has a colon in it, an unknown one has not: nobody can be called `unknown-user`.
    fn unknown(mut self, label: &str, missing: Missing) -> Self {
        self.is_identified &= missing == Missing::Share;
        self.labelled(label, "")
    }

    #[inline]
    fn labelled<T: Display + ?Sized>(mut self, label: &str, part: &T) -> Self {
        let joint = if self.is_first { self.joint } else { "," };
        self.is_first = false;
        self.bytes.extend_from_slice(joint.as_bytes());
        self.bytes.extend_from_slice(label.as_bytes());
        // What a broken `Display` has written before it failed is a key, too.
        let _ = if self.is_joined { write!(Escaped(&mut self), "{part}") } else { write!(self, "{part}") };
        self
    }

    /// The refusal, if somebody had to be known who is not.
    #[inline]
    pub(super) fn identified(&self, gate: &Gate) -> Result<(), Refusal> {
        if self.is_identified { Ok(()) } else { Err(Refusal::unidentified(gate)) }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Write for CallKey {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

struct Escaped<'a>(&'a mut CallKey);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive([',', '\\']) {
            match part.as_bytes().split_last() {
                Some((last @ (b',' | b'\\'), rest)) => {
                    self.0.bytes.extend_from_slice(rest);
                    self.0.bytes.extend_from_slice(&[b'\\', *last]);
                }
                _ => self.0.bytes.extend_from_slice(part.as_bytes()),
            }
        }
        Ok(())
    }
}

/// What `key = ...` can be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a key: it does not implement `Display`",
    label = "`key = ...` takes what implements `Display`, such as a number or a text",
    note = "name a field of it (`key = order.id`), or write `key = format_args!(...)`"
)]
pub trait KeyPart {
    /// Writes it.
    fn write_part(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> KeyPart for T {
    #[inline]
    fn write_part(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt(f)
    }
}

struct Displayed<'a, T: ?Sized>(&'a T);

impl<T: KeyPart + ?Sized> Display for Displayed<'_, T> {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write_part(f)
    }
}

/// What `by = ip(...)` can take.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an address",
    label = "`by = ip(...)` takes an `IpAddr`, a `SocketAddr`, a `tidegate::Client`, or an `Option` of one",
    note = "a text that a client sent is not an address: parse it, or write `key = ...`"
)]
pub trait AsClient {
    /// The client, if it is known.
    fn as_client(&self) -> Option<Client>;
}

impl AsClient for Client {
    fn as_client(&self) -> Option<Client> {
        Some(*self)
    }
}

impl AsClient for IpAddr {
    fn as_client(&self) -> Option<Client> {
        Some(Client::new(*self))
    }
}

impl AsClient for Ipv4Addr {
    fn as_client(&self) -> Option<Client> {
        Some(Client::new((*self).into()))
    }
}

impl AsClient for Ipv6Addr {
    fn as_client(&self) -> Option<Client> {
        Some(Client::new((*self).into()))
    }
}

impl AsClient for SocketAddr {
    fn as_client(&self) -> Option<Client> {
        Some(Client::new(self.ip()))
    }
}

/// What the library's own listener says of a connection.
#[cfg(feature = "tower")]
impl AsClient for crate::http::Peer {
    fn as_client(&self) -> Option<Client> {
        Some(Client::new(self.ip()))
    }
}

impl<T: AsClient> AsClient for Option<T> {
    fn as_client(&self) -> Option<Client> {
        self.as_ref().and_then(AsClient::as_client)
    }
}

impl<T: AsClient + ?Sized> AsClient for &T {
    fn as_client(&self) -> Option<Client> {
        (**self).as_client()
    }
}

/// What `by = user(...)` was given. `Given(&x).user()` is this type's own method for an
/// `Option`, and [`AlwaysKnown`]'s for everything else.
pub struct Given<'a, T>(pub &'a T);

impl<'a, T: Display> Given<'a, Option<T>> {
    /// The user, if they are known.
    pub fn user(&self) -> Option<&'a dyn Display> {
        self.0.as_ref().map(|user| user as &dyn Display)
    }
}

impl<'a, T: Display> Given<'a, &'a Option<T>> {
    /// The user, if they are known.
    pub fn user(&self) -> Option<&'a dyn Display> {
        Given(*self.0).user()
    }
}

/// Users that are always known.
pub trait AlwaysKnown<'a> {
    /// What they are.
    type User;

    /// The user.
    fn user(&self) -> Option<&'a dyn Display>
    where
        Self::User: UserId;
}

impl<'a, T> AlwaysKnown<'a> for Given<'a, T> {
    type User = T;

    fn user(&self) -> Option<&'a dyn Display>
    where
        T: UserId,
    {
        Some(self.0.as_display())
    }
}

/// What `by = user(...)` can take.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a user: it does not implement `Display`",
    label = "`by = user(...)` takes what implements `Display`, such as a number or a text, or an `Option` of it",
    note = "name a field of it, as in `by = user(account.id)`"
)]
pub trait UserId {
    /// Their name or number.
    fn as_display(&self) -> &dyn Display;
}

#[diagnostic::do_not_recommend]
impl<T: Display> UserId for T {
    fn as_display(&self) -> &dyn Display {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::User;

    fn text(key: &CallKey) -> &str {
        std::str::from_utf8(key.as_bytes()).unwrap()
    }

    fn joined(parts: &[&str]) -> String {
        let key = parts.iter().fold(CallKey::new("", "", parts.len()), |key, part| key.part(*part));
        text(&key).to_string()
    }

    #[test]
    fn one_part_is_the_key_as_it_is() {
        assert_eq!(text(&CallKey::new("", "", 1).part("a,b\\c")), "a,b\\c");
        assert_eq!(text(&CallKey::new("shop::buy", "/", 1).part(&7)), "shop::buy/7");
        assert_eq!(text(&CallKey::new("shop::buy", "/", 0)), "shop::buy");
    }

    #[test]
    fn no_two_lists_of_parts_make_the_same_key() {
        let lists: [&[&str]; 9] = [
            &["a", "b"],
            &["a,b", ""],
            &["", "a,b"],
            &["a\\", "b"],
            &["a", "\\b"],
            &["a\\,b", ""],
            &["a", "b", ""],
            &["", "", ""],
            &["", ""],
        ];
        let mut keys: Vec<String> = lists.iter().map(|list| joined(list)).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), lists.len(), "{keys:?}");
        assert_eq!(joined(&["a,b", "c\\"]), "a\\,b,c\\\\");
    }

    #[test]
    fn nobody_can_be_called_unknown() {
        let nobody = CallKey::new("", "", 1).caller_user(Missing::Share);
        let posing = CallKey::new("", "", 1).user(Some(&"unknown-user"), Missing::Share);
        assert_eq!((text(&nobody), text(&posing)), ("unknown-user", "user:unknown-user"));
    }

    #[test]
    fn an_option_may_be_missing_and_anything_else_is_known() {
        let text = |user: Option<&dyn Display>| user.map(ToString::to_string);
        assert_eq!(text(Given(&Some(7)).user()), Some("7".into()));
        assert_eq!(text(Given(&None::<User>).user()), None);
        assert_eq!(text(Given(&&Some(7)).user()), Some("7".into()));
        assert_eq!(text(Given(&&None::<User>).user()), None);
        assert_eq!(text(Given(&"ann").user()), Some("ann".into()));
    }
}
