//! The caller: the client and the user that a front end has found, for a function deep inside
//! that is limited by them.
//!
//! Nothing here trusts or parses a header; that is the front end's work.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A client by its address. Its text is its key: an IPv4 address whole, an IPv6 address
/// by its /64, because whoever has one address there has all of them.
///
/// ```
/// use tidegate::Client;
/// assert_eq!(Client::new("203.0.113.9".parse()?).to_string(), "203.0.113.9");
/// assert_eq!(Client::new("::ffff:203.0.113.9".parse()?).to_string(), "203.0.113.9");
/// assert_eq!(Client::new("2001:db8::1".parse()?).to_string(), "2001:db8::/64");
/// assert_eq!(Client::new("2001:db8::2".parse()?), Client::new("2001:db8::1".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
///
/// Two kinds of IPv6 addresses are made of an IPv4 address, and counted by it:
/// - `64:ff9b::203.0.113.9` (NAT64, RFC 6052) is an IPv4 client behind a translator. By its
///   /64, all IPv4 clients would be one. It is the client `203.0.113.9`.
/// - `2002:cb00:7109::/48` (6to4, RFC 3056) belongs to the IPv4 address 203.0.113.9, all
///   65,536 of its /64s. It is one client, by its /48 or by fewer bits if those are configured.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Client {
    // In whole words: it is copied right after it was made, and a processor waits where pieces were
    // written and a longer one is read.
    /// The lower half of the first address of its network, [`mapped`].
    lower: u64,
    upper: u64,
    /// How many leading bits all of them have in common, and one.
    width: NonZeroU64,
}

impl Client {
    /// IPv6 addresses by their /64.
    pub const IPV6_BITS: u8 = 64;

    /// The client of this address. An IPv4 address written as IPv6 is an IPv4 address, and so
    /// is one that NAT64 has translated.
    pub fn new(ip: IpAddr) -> Self {
        Self::within(ip, 32, Self::IPV6_BITS)
    }

    /// The network that is this client, and how many leading bits it has in common.
    #[inline]
    pub(crate) fn network(&self) -> (IpAddr, u8) {
        let first = (u128::from(self.upper) << 64) | u128::from(self.lower);
        let bits = (self.width.get() - 1) as u8;
        if first >> 32 == IPV4_MAPPED {
            (Ipv4Addr::from_bits(first as u32).into(), bits - IPV4_MAPPED_BITS)
        } else {
            (Ipv6Addr::from_bits(first).into(), bits)
        }
    }

    /// The client of this address, where all addresses with the same leading bits are one
    /// client. More bits than an address has are all of them.
    #[inline]
    pub fn within(ip: IpAddr, ipv4_bits: u8, ipv6_bits: u8) -> Self {
        let ip = mapped(ip);
        let (ip, bits) = match ip >> 32 {
            IPV4_MAPPED | NAT64 => {
                ((IPV4_MAPPED << 32) | u128::from(ip as u32), IPV4_MAPPED_BITS + ipv4_bits.min(32))
            }
            _ if ip >> 112 == SIX_TO_FOUR => (ip, ipv6_bits.min(SIX_TO_FOUR_BITS)),
            _ => (ip, ipv6_bits.min(128)),
        };
        let first = ip & u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
        let width = NonZeroU64::MIN.saturating_add(bits.into());
        Self { lower: first as u64, upper: (first >> 64) as u64, width }
    }
}

/// The upper 96 bits of an IPv4 address written as IPv6.
const IPV4_MAPPED: u128 = 0xffff;
const IPV4_MAPPED_BITS: u8 = 96;
/// The upper 96 bits of an IPv4 address that NAT64 has translated, `64:ff9b::/96` (RFC 6052).
const NAT64: u128 = 0x0064_ff9b_0000_0000_0000_0000;
/// The upper 16 bits of a 6to4 address, `2002::/16` (RFC 3056).
const SIX_TO_FOUR: u128 = 0x2002;
/// What belongs to one IPv4 address of it.
const SIX_TO_FOUR_BITS: u8 = 48;

/// The IPv4 address that NAT64 has made this address of.
#[cfg(feature = "rules")]
pub(crate) fn nat64(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    (ip.to_bits() >> 32 == NAT64).then(|| Ipv4Addr::from_bits(ip.to_bits() as u32))
}

/// An address of either family as the number of an IPv6 one.
#[inline]
fn mapped(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, bits) = self.network();
        let whole = if first.is_ipv4() { 32 } else { 128 };
        if bits == whole { write!(f, "{first}") } else { write!(f, "{first}/{bits}") }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({self})")
    }
}

/// The signed-in user, as the application's authentication has found them.
///
/// Middleware reads it from the request's extensions; put it there once the user is
/// known, never from what the request says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct User(Arc<str>);

impl User {
    /// The user of this name or number.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// The user among these, if the application has put one there.
    #[cfg(feature = "tower")]
    #[inline]
    pub(crate) fn of(extensions: &http::Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// The name or number.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The caller, for everything that runs within [`Caller::scope`].
///
/// ```
/// use tidegate::{Caller, User};
///
/// let ann = Caller::new().user(User::new("ann"));
/// ann.enter(|| assert_eq!(Caller::current().user_id().unwrap().as_str(), "ann"));
/// assert!(Caller::current().user_id().is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    pub(crate) client: Option<Client>,
    pub(crate) user: Option<User>,
}

thread_local! {
    static CLIENT: Cell<Option<Client>> = const { Cell::new(None) };
    static USER: Cell<Option<User>> = const { Cell::new(None) };
}

impl Caller {
    /// No client and no user.
    pub fn new() -> Self {
        Self::default()
    }

    /// From this client.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// On behalf of this user.
    #[must_use]
    pub fn user(mut self, user: User) -> Self {
        self.user = Some(user);
        self
    }

    /// The client, if it is known.
    pub fn client_ip(&self) -> Option<Client> {
        self.client
    }

    /// The user, if they are known.
    pub fn user_id(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// The current caller; without client and user outside a scope.
    pub fn current() -> Self {
        Self::with_current(Self::clone)
    }

    pub(crate) fn with_current<R>(read: impl FnOnce(&Self) -> R) -> R {
        let mut current = Self::new();
        current.swap_with_current();
        let read = read(&current);
        current.swap_with_current();
        read
    }

    /// At the end of a thread there is no caller any more.
    #[inline]
    fn swap_with_current(&mut self) {
        let _ = USER.try_with(|user| self.user = user.replace(self.user.take()));
        self.client = CLIENT.replace(self.client);
    }

    /// Runs `f` as this caller.
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        let mut caller = self.clone();
        let _entered = Entered::new(&mut caller);
        f()
    }

    /// Runs a future as this caller, under any executor. What it spawns starts without:
    /// wrap that too.
    pub fn scope<F>(self, future: F) -> CallerScope<F> {
        CallerScope { caller: self, future: Some(future) }
    }
}

/// Makes a caller the current one until it is dropped, by a panic, too.
pub(crate) struct Entered<'a> {
    /// Holds the caller before, as long as the other one is the current one.
    caller: &'a mut Caller,
}

impl<'a> Entered<'a> {
    /// None without client and user: the caller before stays.
    #[cfg(feature = "tower")]
    #[inline(always)]
    pub(crate) fn known(caller: &'a mut Caller) -> Option<Self> {
        if caller.client.is_some() || caller.user.is_some() { Some(Self::new(caller)) } else { None }
    }

    #[inline(always)]
    fn new(caller: &'a mut Caller) -> Self {
        caller.swap_with_current();
        Self { caller }
    }
}

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.caller.swap_with_current();
    }
}

pin_project_lite::pin_project! {
    /// The future of [`Caller::scope`].
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is awaited"]
    pub struct CallerScope<F> {
        caller: Caller,
        // None once it was dropped, which is before the rest.
        #[pin]
        future: Option<F>,
    }

    impl<F> PinnedDrop for CallerScope<F> {
        // What it holds may read the caller while it is dropped, too.
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            // At the end of a thread there is no caller any more.
            if USER.try_with(|_| ()).is_ok() {
                this.caller.enter(|| this.future.set(None));
            }
        }
    }
}

impl<F: Future> Future for CallerScope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        match this.future.as_pin_mut() {
            Some(future) => this.caller.enter(|| future.poll(context)),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_ends_when_what_runs_in_it_panics() {
        let ann = Caller::new().user(User::new("ann"));
        let panicked = std::panic::catch_unwind(|| ann.enter(|| panic!("inside")));
        assert!(panicked.is_err());
        assert_eq!(Caller::current(), Caller::new());
    }

    #[test]
    fn what_a_scope_holds_knows_the_caller_when_it_is_dropped() {
        struct Asks(Arc<std::sync::Mutex<Vec<Caller>>>);
        impl Drop for Asks {
            fn drop(&mut self) {
                self.0.lock().unwrap().push(Caller::current());
            }
        }
        let ann = Caller::new().user(User::new("ann"));
        let seen = Arc::default();
        let asks = || Asks(Arc::clone(&seen));
        // Never polled; dropped while it waits; and done.
        drop(ann.clone().scope({
            let asks = asks();
            async move { drop(asks) }
        }));
        let mut waits = Box::pin(ann.clone().scope({
            let asks = asks();
            async move {
                std::future::pending::<()>().await;
                drop(asks);
            }
        }));
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        drop(waits);
        let mut done = Box::pin(ann.clone().scope(async { drop(asks()) }));
        assert!(done.as_mut().poll(&mut context).is_ready());
        drop(done);
        assert_eq!(*seen.lock().unwrap(), vec![ann; 3]);
        assert_eq!(Caller::current(), Caller::new());
    }

    #[test]
    fn networks_of_any_width_have_one_text() {
        let at = |ip: &str, v4, v6| Client::within(ip.parse().unwrap(), v4, v6).to_string();
        assert_eq!(at("203.0.113.9", 24, 64), "203.0.113.0/24");
        assert_eq!(at("203.0.113.9", 0, 64), "0.0.0.0/0");
        assert_eq!(at("2001:db8:1:2:3::", 32, 48), "2001:db8:1::/48");
        assert_eq!(at("2001:db8::1", 32, 200), "2001:db8::1");
        assert_eq!(at("2001:db8::1", 32, 0), "::/0");
        assert_eq!(at("::ffff:203.0.113.9", 32, 64), "203.0.113.9");
    }

    #[test]
    fn addresses_made_of_an_ipv4_address_are_counted_by_it() {
        let at = |ip: &str, v4, v6| Client::within(ip.parse().unwrap(), v4, v6).to_string();
        assert_eq!(at("64:ff9b::203.0.113.9", 32, 64), "203.0.113.9");
        assert_eq!(at("64:ff9b::cb00:710a", 24, 128), "203.0.113.0/24");
        assert_eq!(at("64:ff9b::10.0.0.1", 32, 64), "10.0.0.1");
        // A site of 6to4 is one client, unless more of them are to be one.
        assert_eq!(at("2002:cb00:7109:1::1", 32, 64), "2002:cb00:7109::/48");
        assert_eq!(at("2002:cb00:7109:ffff::1", 32, 128), "2002:cb00:7109::/48");
        assert_eq!(at("2002:cb00:710a::1", 32, 64), "2002:cb00:710a::/48");
        assert_eq!(at("2002:cb00:7109::1", 32, 32), "2002:cb00::/32");
        // Where the IPv4 address stands in these, if it does, is not known, or anybody's word.
        assert_eq!(at("64:ff9b:1::203.0.113.9", 32, 64), "64:ff9b:1::/64");
        assert_eq!(at("64:ff9b:0:0:0:1:cb00:7109", 32, 64), "64:ff9b::/64");
        assert_eq!(at("2001:0:4136:e378:8000:63bf:3fff:fdd2", 32, 64), "2001:0:4136:e378::/64");
        assert_eq!(at("::203.0.113.9", 32, 64), "::/64");
    }
}
