//! Where a provider is.

use anyhow::{Context, Result};
use std::fmt;
use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs};
use std::str::FromStr;

/// Address of a provider, as people type it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderAddress {
    host: String,
    port: u16,
    tls: bool,
}

impl FromStr for ProviderAddress {
    type Err = String;

    /// Reads `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`.
    fn from_str(text: &str) -> Result<ProviderAddress, String> {
        let expected = || "expected HOST:PORT or http[s]://HOST:PORT, as `nom provider` prints it".to_owned();
        let secure = text.strip_prefix("https://");
        let place = secure.or(text.strip_prefix("http://")).unwrap_or(text).trim_end_matches('/');
        let (host, port) = place.rsplit_once(':').ok_or_else(expected)?;
        let legal = |character: char| character.is_ascii_alphanumeric() || "-._".contains(character);
        if host.is_empty() || !host.chars().all(legal) {
            return Err(expected());
        }
        let port = port.parse().ok().filter(|&port| port != 0).ok_or_else(expected)?;
        Ok(ProviderAddress { host: host.to_owned(), port, tls: secure.is_some() })
    }
}

impl fmt::Display for ProviderAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.host, self.port)
    }
}

impl ProviderAddress {
    /// Its name, or its address as text.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether it speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Its IPv4 address: QEMU's user-mode network leads nowhere else.
    ///
    /// # Errors
    /// If it has none.
    pub fn resolve(&self) -> Result<SocketAddrV4> {
        let addresses = (self.host.as_str(), self.port).to_socket_addrs();
        let mut addresses = addresses.with_context(|| format!("--provider {self}"))?;
        let ipv4 = addresses.find_map(|address| match address {
            SocketAddr::V4(address) => Some(address),
            SocketAddr::V6(_) => None,
        });
        ipv4.with_context(|| format!("--provider {self}: has no IPv4 address"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_an_address_or_a_url() {
        for text in ["localhost:8080", "http://localhost:8080", "http://localhost:8080/"] {
            let address: ProviderAddress = text.parse().expect(text);
            assert_eq!((address.to_string().as_str(), address.is_tls()), ("localhost:8080", false));
        }
        let secure: ProviderAddress = "https://bills.example:80/".parse().expect("TLS");
        assert_eq!((secure.host(), secure.is_tls()), ("bills.example", true));
        for text in ["", ":80", "localhost", "localhost:0", "localhost:x", "http://a b:80", "http://a/b:80"] {
            let error = text.parse::<ProviderAddress>().expect_err(text);
            assert!(error.contains("HOST:PORT"), "{error}");
        }
    }
}
