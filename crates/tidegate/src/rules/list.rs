//! Allow and deny lists, by network and by key.

use crate::rules::facts::Facts;
use crate::rules::key::secret::stored_key;
use crate::rules::network::{NetworkError, Networks};
use crate::rules::rule::Listed;
use std::collections::HashSet;

/// A list of networks and keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    networks: Networks,
    keys: HashSet<Box<[u8]>>,
}

impl List {
    /// The list as it was written. Each key with its secrets digested, whether it was written whole
    /// or by its digest: one form, with and without `show_keys`.
    pub(crate) fn parse(listed: &Listed) -> Result<Self, NetworkError> {
        let networks = Networks::parse(&listed.networks)?;
        Ok(Self { networks, keys: listed.keys.iter().map(|key| stored_key(key).into()).collect() })
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|key| &**key)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.keys.is_empty()
    }

    pub(crate) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// True if the client of a request is in one of its networks. Without networks the client's
    /// address is not computed.
    pub(crate) fn has_client_of(&self, facts: &dyn Facts) -> bool {
        !self.networks.is_empty() && facts.client().is_some_and(|client| self.networks.meet(client))
    }

    /// The same for an allow list, which exempts no client with an address that no translator
    /// makes.
    pub(crate) fn exempts_client_of(&self, facts: &dyn Facts) -> bool {
        self.has_client_of(facts) && !facts.is_client_forged()
    }

    /// True if it has this key, of which the secrets are digested.
    pub(crate) fn has_key(&self, key: &[u8]) -> bool {
        !self.keys.is_empty() && self.keys.contains(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Client;

    fn parse(networks: &[&str]) -> Result<List, NetworkError> {
        let networks = networks.iter().map(ToString::to_string).collect();
        List::parse(&Listed { networks, keys: Vec::new() })
    }

    fn list(networks: &[&str]) -> List {
        parse(networks).unwrap()
    }

    struct From(Option<Client>);

    impl Facts for From {
        fn client(&self) -> Option<Client> {
            self.0
        }
    }

    fn has(list: &List, ip: &str) -> bool {
        list.has_client_of(&From(Some(Client::new(ip.parse().unwrap()))))
    }

    #[test]
    fn a_network_has_its_addresses() {
        let office = list(&["10.0.0.0/8", "203.0.113.7", "2001:db8::/32"]);
        assert!(has(&office, "10.200.3.4"));
        assert!(has(&office, "203.0.113.7"));
        assert!(!has(&office, "203.0.113.8"));
        assert!(has(&office, "::ffff:10.1.1.1"));
        assert!(has(&office, "2001:db8:ffff::1"));
        assert!(!has(&office, "2001:db9::1"));
        assert!(!list(&["0.0.0.0/0"]).has_client_of(&From(None)));
    }

    #[test]
    fn one_ipv6_address_means_the_client_that_it_is_counted_as() {
        let one = list(&["2001:db8::5"]);
        assert!(has(&one, "2001:db8::5"));
        assert!(has(&one, "2001:db8::6"));
        assert!(!has(&one, "2001:db8:0:1::5"));
    }

    #[test]
    fn a_list_means_the_client_that_an_address_is_counted_as() {
        let denied = list(&["203.0.113.7", "64:ff9b::198.51.100.7", "2002:c000:201:5::/64"]);
        assert!(has(&denied, "64:ff9b::203.0.113.7"));
        assert!(has(&denied, "198.51.100.7"));
        assert!(!has(&denied, "64:ff9b::203.0.113.8"));
        assert!(has(&denied, "2002:c000:201:6::1"));
        assert!(!has(&denied, "2002:c000:202::1"));
    }

    #[test]
    fn what_is_not_a_network_is_an_error() {
        for text in ["10.0.0.0/33", "10.0.0/8", "::/129", "x", "10.0.0.0/-1", ""] {
            let error = parse(&[text]).unwrap_err().to_string();
            assert!(error.contains("is not a network: write one such as"), "{error}");
        }
    }
}
