//! Where a machine's prices come from, and how it gets there.

use crate::arguments::{NetworkChoice, Run};
use anyhow::{Context, Result, bail};
use nom_build::PriceFeed;
use nom_image::manifest::BundleManifest;
use nom_provider::meter::{Charge, Meter};
use nom_provider::{Config, Provider, Source};
use nom_vmm::{MachineConfig, Namespace, namespace, relay};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, ToSocketAddrs};
use std::path::Path;
use std::str::FromStr;

/// The computer that runs the machine, in QEMU's user-mode network.
const HOST: Ipv4Addr = namespace::HOST;

/// Prices where none are given: what bandwidth costs first in the paper (nom, section 6), in $/Gbit.
const DEFAULT: &str = "network_out=1";

/// A provider of prices: one that runs elsewhere, or this process's own.
pub struct Prices {
    address: SocketAddrV4,
    /// It ends with this.
    own: Option<Provider>,
}

/// Whether the machine is to have prices.
///
/// # Errors
/// If they are asked for and cannot be had.
pub fn wanted(options: &Run, bundle: Option<&BundleManifest>) -> Result<bool> {
    let asked = options.watch || options.provider.is_some() || options.prices.is_some();
    let Some(bundle) = bundle else {
        if asked {
            bail!("{}: expected a manifest, since an image cannot be given prices", options.app);
        }
        return Ok(false);
    };
    let earns = bundle.applications.iter().any(|application| application.utility.is_some());
    match &options.provider {
        None if earns && options.detach => {
            eprintln!("note: without --provider nobody tells a machine in the background the prices");
            Ok(false)
        }
        Some(_) if options.detach && options.network == NetworkChoice::Tap => {
            bail!("--provider: a machine in the background reaches it with --network user only")
        }
        _ => Ok(asked || earns),
    }
}

impl Prices {
    /// The provider that is asked for, or else a new one.
    ///
    /// # Errors
    /// If it has no address, or cannot be started.
    pub fn open(options: &Run) -> Result<Prices> {
        match &options.provider {
            None => Prices::start(options.prices.clone()),
            Some(provider) => Ok(Prices { address: provider.resolve()?, own: None }),
        }
    }

    fn start(source: Option<Source>) -> Result<Prices> {
        let source = source.map_or_else(|| Source::schedule(DEFAULT), Ok)?;
        let own = Provider::start(Config { sources: vec![source], ..Config::default() })?;
        let SocketAddr::V4(address) = own.address() else {
            bail!("the provider listens at {}, expected an IPv4 address", own.address());
        };
        eprintln!("prices: http://{address}");
        Ok(Prices { address, own: Some(own) })
    }

    /// Where this process finds it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Meters the first network device of the machine `name`, which is for `activity`, into the ledger of
    /// this process's own provider. Whoever runs another meters by itself: it has the operator's token.
    ///
    /// # Errors
    /// If the device cannot be watched.
    pub fn meter(
        &self,
        name: &str,
        activity: &str,
        namespace: Option<&Namespace>,
        directory: &Path,
        config: &mut MachineConfig,
    ) -> Result<Option<Meter>> {
        let Some(own) = &self.own else {
            return Ok(None);
        };
        let charge = Charge {
            provider: self.url(),
            token: own.token().to_owned(),
            machine: name.to_owned(),
            activity: activity.to_owned(),
        };
        let meter = match namespace {
            Some(namespace) => Meter::tap(namespace, namespace::DEVICE, charge)?,
            None => {
                let (meter, tapped) = Meter::user(directory, "network0", charge)?;
                config.extra_arguments.extend(tapped.arguments());
                meter
            }
        };
        Ok(Some(meter))
    }

    /// What `priced` is to know in the machine `name`, whose network device number `network` is for it alone.
    /// From a `namespace` a relay leads to the provider, as long as this process lives.
    ///
    /// # Errors
    /// If there can be no relay.
    pub fn feed(&self, name: &str, network: usize, namespace: Option<&Namespace>) -> Result<PriceFeed> {
        let provider = match namespace {
            Some(namespace) => {
                let entrance = namespace.listen()?;
                let port = entrance.local_addr()?.port();
                relay(entrance, self.address.into());
                SocketAddrV4::new(HOST, port)
            }
            None => from_the_machine(self.address),
        };
        Ok(PriceFeed { provider, machine: name.to_owned(), network })
    }
}

/// An address as a machine sees it: this computer is [`HOST`] there.
fn from_the_machine(address: SocketAddrV4) -> SocketAddrV4 {
    let own = address.ip().is_loopback() || address.ip().is_unspecified();
    if own { SocketAddrV4::new(HOST, address.port()) } else { address }
}

/// Address of a provider, as people type it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderAddress {
    host: String,
    port: u16,
}

impl FromStr for ProviderAddress {
    type Err = String;

    /// Reads `HOST:PORT` or `http://HOST:PORT`.
    fn from_str(text: &str) -> Result<ProviderAddress, String> {
        let expected = || "expected HOST:PORT or http://HOST:PORT, as `nom provider` prints it".to_owned();
        if text.starts_with("https:") {
            return Err("machines ask by plain HTTP: expected http://HOST:PORT".to_owned());
        }
        let place = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let (host, port) = place.rsplit_once(':').ok_or_else(expected)?;
        let legal = |character: char| character.is_ascii_alphanumeric() || "-._".contains(character);
        if host.is_empty() || !host.chars().all(legal) {
            return Err(expected());
        }
        let port = port.parse().ok().filter(|&port| port != 0).ok_or_else(expected)?;
        Ok(ProviderAddress { host: host.to_owned(), port })
    }
}

impl fmt::Display for ProviderAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.host, self.port)
    }
}

impl ProviderAddress {
    /// Its IPv4 address: QEMU's user-mode network leads nowhere else.
    fn resolve(&self) -> Result<SocketAddrV4> {
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
            assert_eq!(address.to_string(), "localhost:8080");
        }
        for text in ["", ":80", "localhost", "localhost:0", "localhost:x", "http://a b:80", "http://a/b:80"] {
            let error = text.parse::<ProviderAddress>().expect_err(text);
            assert!(error.contains("HOST:PORT"), "{error}");
        }
        assert!("https://a:80".parse::<ProviderAddress>().expect_err("refused").contains("plain HTTP"));
    }

    #[test]
    fn this_computer_has_another_address_in_the_machine() {
        let seen = |text: &str| from_the_machine(text.parse().expect("an address")).to_string();
        assert_eq!(seen("127.0.0.1:80"), "10.0.2.2:80");
        assert_eq!(seen("192.0.2.1:80"), "192.0.2.1:80");
    }
}
