//! The key of a call, written as rules write theirs: a caller by a tag and an escaped value,
//! parts joined by `+`.
//!
//! A key of one argument is the bare value: nothing stands beside it that it could imitate.

use crate::caller::{Caller, Client};
use crate::rules::facts::Fact;
use crate::rules::key::value::{Secrets, plain, write_client, write_text, write_value};
use crate::rules::key::{KeyBytes, Part};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The key of a call, as far as it is written.
pub struct CallKey {
    pub(super) bytes: KeyBytes,
    /// Whether all callers in it are known.
    pub(super) found: Fact<()>,
    /// Before the next part.
    joint: &'static str,
    has_several_parts: bool,
}

impl CallKey {
    pub(super) fn new(prefix: &str, joint: &'static str, parts: usize) -> Self {
        let bytes = KeyBytes::from_slice(prefix.as_bytes());
        Self { bytes, found: Fact::Found(()), joint, has_several_parts: parts > 1 }
    }

    /// Adds the value of an expression over the arguments.
    #[inline]
    pub fn part<T: KeyPart + ?Sized>(mut self, part: &T) -> Self {
        self.join();
        if self.has_several_parts {
            let mut value = KeyBytes::new();
            write_text(&mut value, part);
            plain(&mut self.bytes, &value);
        } else {
            write_text(&mut self.bytes, part);
        }
        self
    }

    /// Adds the client of the running task.
    pub fn caller_ip(self) -> Self {
        self.ip(&Caller::with_current(|caller| caller.client))
    }

    /// Adds the user of the running task.
    pub fn caller_user(self) -> Self {
        Caller::with_current(|caller| self.user(caller.user.as_ref().map(|user| user as &dyn Display)))
    }

    /// Adds the client of an address.
    #[inline]
    pub fn ip<T: AsClient + ?Sized>(mut self, address: &T) -> Self {
        self.join();
        let Some(client) = address.as_client() else { return self.and_found(Fact::Missing) };
        self.bytes.extend_from_slice(Part::Ip.tag().as_bytes());
        write_client(&mut self.bytes, client);
        self
    }

    /// Adds a user.
    #[inline]
    pub fn user(mut self, user: Option<&dyn Display>) -> Self {
        self.join();
        self.bytes.extend_from_slice(Part::User.tag().as_bytes());
        let mut value = KeyBytes::new();
        if let Some(user) = user {
            write_text(&mut value, user);
        }
        let found = write_value(&Part::User, &value, Secrets::Whole, &mut self.bytes);
        self.and_found(found)
    }

    /// The first part that is not found decides what becomes of the call, as in a rule.
    fn and_found(mut self, fact: Fact<()>) -> Self {
        if self.found == Fact::Found(()) {
            self.found = fact;
        }
        self
    }

    /// Where the next part begins.
    #[inline]
    fn join(&mut self) {
        self.bytes.extend_from_slice(self.joint.as_bytes());
        self.joint = "+";
    }
}

/// What `key = ...` can be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a key: it does not implement `Display`",
    label = "`key = ...` takes what implements `Display`, such as a number or a text",
    note = "name a field of it (`key = order.id`), or write `key = format_args!(...)`"
)]
pub trait KeyPart: Display {}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> KeyPart for T {}

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

macro_rules! clients {
    ($($address:ty: $ip:expr),*) => {
        $(impl AsClient for $address {
            fn as_client(&self) -> Option<Client> {
                let ip: fn(&Self) -> IpAddr = $ip;
                Some(Client::new(ip(self)))
            }
        })*
    };
}

clients! {
    IpAddr: |ip| *ip,
    Ipv4Addr: |ip| (*ip).into(),
    Ipv6Addr: |ip| (*ip).into(),
    SocketAddr: SocketAddr::ip
}

// What the library's own listener says of a connection.
#[cfg(feature = "tower")]
clients!(crate::http::Peer: |peer| peer.ip());

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
        Some(self.0)
    }
}

/// What `by = user(...)` can take.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a user: it does not implement `Display`",
    label = "`by = user(...)` takes what implements `Display`, such as a number or a text, or an `Option` of it",
    note = "name a field of it, as in `by = user(account.id)`"
)]
pub trait UserId: Display {}

#[diagnostic::do_not_recommend]
impl<T: Display> UserId for T {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::User;

    fn text(key: &CallKey) -> &str {
        std::str::from_utf8(&key.bytes).unwrap()
    }

    fn joined(parts: &[&str]) -> String {
        let key = parts.iter().fold(CallKey::new("", "", parts.len()), |key, part| key.part(*part));
        text(&key).to_string()
    }

    #[test]
    fn one_part_is_the_key_as_it_is() {
        assert_eq!(text(&CallKey::new("", "", 1).part("a+b%c")), "a+b%c");
        assert_eq!(text(&CallKey::new("shop::buy", "/", 1).part(&7)), "shop::buy/7");
        assert_eq!(text(&CallKey::new("shop::buy", "/", 0)), "shop::buy");
        let long = "x".repeat(200);
        assert_eq!(text(&CallKey::new("", "", 1).part(&long)), long);
    }

    #[test]
    fn no_two_lists_of_parts_make_the_same_key() {
        let long = "x".repeat(200);
        let lists: [&[&str]; 11] = [
            &["a", "b"],
            &["a+b", ""],
            &["", "a+b"],
            &["a%", "b"],
            &["a", "%b"],
            &["a%2Bb", ""],
            &["a", "b", ""],
            &["", "", ""],
            &["", ""],
            &[&long, ""],
            &[&long[1..], ""],
        ];
        let mut keys: Vec<String> = lists.iter().map(|list| joined(list)).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), lists.len(), "{keys:?}");
        assert_eq!(joined(&["a+b", "c%"]), "a%2Bb+c%25");
        assert!(joined(&[&long, ""]).len() < 100);
    }

    #[test]
    fn callers_are_written_as_rules_write_them() {
        let address: IpAddr = "2001:db8::1".parse().unwrap();
        let both = CallKey::new("", "", 2).user(Some(&"a+b")).ip(&address);
        assert_eq!((text(&both), both.found), ("user:a%2Bb+ip:2001:db8::/64", Fact::Found(())));
    }

    #[test]
    fn a_caller_is_missing_or_ambiguous_as_in_a_rule() {
        let found = |key: CallKey| key.found;
        assert_eq!(found(CallKey::new("", "", 1).caller_user()), Fact::Missing);
        assert_eq!(found(CallKey::new("", "", 1).caller_ip()), Fact::Missing);
        assert_eq!(found(CallKey::new("", "", 1).user(Some(&""))), Fact::Missing);
        assert_eq!(found(CallKey::new("", "", 1).user(Some(&"x".repeat(5_000)))), Fact::Ambiguous);
        let none: Option<IpAddr> = None;
        assert_eq!(found(CallKey::new("", "", 2).ip(&none).user(Some(&"ann"))), Fact::Missing);
        assert_eq!(found(CallKey::new("", "", 2).user(None).part(&7)), Fact::Missing);
        assert_eq!(found(CallKey::new("", "", 2).user(Some(&"x".repeat(5_000))).ip(&none)), Fact::Ambiguous);
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
