//! By which names a provider may be asked.
//!
//! A web page can have its own name lead to this computer ("DNS rebinding"), and its browser then takes what
//! the provider answers for the page's own. Such requests have the page's name in their header `Host`. An
//! address as such cannot be made to lead elsewhere, so that every address is good.

use std::net::{IpAddr, SocketAddr};

/// The name of a computer for itself.
const OWN: &str = "localhost";

/// Names of a provider.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// Addresses, `localhost` and these names.
    pub fn new(names: &[String]) -> Hosts {
        Hosts(names.iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Whether a header `Host` has one of them, with a port or without.
    pub fn has(&self, host: &str) -> bool {
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        if let Some((address, _port)) = bracketed {
            return address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6());
        }
        let name = host.rsplit_once(':').map_or(host, |(name, _port)| name).to_ascii_lowercase();
        name.parse::<IpAddr>().is_ok()
            || host.parse::<SocketAddr>().is_ok()
            || name == OWN
            || self.0.contains(&name)
    }

    /// For people.
    pub fn expected(&self) -> String {
        let names: String = self.0.iter().map(|name| format!(", {name}")).collect();
        format!("an address, {OWN}{names}: further names are those of `hosts` in the configuration")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_own_names_are_good_and_strange_names_are_not() {
        let hosts = Hosts::new(&["Bills.example".into()]);
        for good in [
            "127.0.0.1:7070",
            "10.0.2.2",
            "[::1]:7070",
            "[::1]",
            "localhost:1",
            "LOCALHOST",
            "bills.example:80",
        ] {
            assert!(hosts.has(good), "{good}");
        }
        for strange in [
            "",
            "evil.example:7070",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[evil]:1",
            "[::1",
            "x:1",
        ] {
            assert!(!hosts.has(strange), "{strange}");
        }
        assert!(hosts.expected().contains("bills.example"));
    }
}
