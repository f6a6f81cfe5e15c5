//! Where a machine's prices come from, and how it gets there.

use crate::arguments::{NetworkChoice, Run};
use crate::credentials::Registration;
use crate::reach;
use anyhow::{Result, bail};
use nom_build::PriceFeed;
use nom_image::manifest::BundleManifest;
use nom_proto::account::MachineKeys;
use nom_provider::meter::Charge;
use nom_provider::{Config, Provider, Source};
use nom_vmm::{Namespace, namespace, relay};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

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
            bail!("{}: expected a manifest, since an image cannot be given prices", options.label());
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
    /// The provider that is asked for, or else a new one. To one that speaks TLS the way leads through this
    /// process.
    ///
    /// # Errors
    /// If it has no address or not the certificate that is expected, or cannot be started.
    pub fn open(options: &Run) -> Result<Prices> {
        let Some(provider) = &options.provider else { return Prices::start(options.prices.clone()) };
        let address = provider.resolve()?;
        let address = match provider.is_tls() {
            false => address,
            true => reach::open(address, provider.host(), &options.credentials.pin()?)?,
        };
        Ok(Prices { address, own: None })
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

    /// The keys of the machine `name`: those that are given, or new ones of a machine that is registered for
    /// as long as it runs.
    ///
    /// # Errors
    /// If the provider refuses the machine, or who may register it is not known.
    pub fn keys(&self, options: &Run, name: &str) -> Result<(MachineKeys, Option<Registration>)> {
        if let Some(own) = &self.own {
            return Ok((own.register(name, None)?, None));
        }
        if let Some(keys) = options.credentials.given()? {
            return Ok((keys, None));
        }
        let (keys, registration) = options.credentials.register(&self.url(), name)?;
        Ok((keys, Some(registration)))
    }

    /// Whom the meter of a machine charges, which is for `activity`.
    pub fn charge(&self, keys: &MachineKeys, activity: &str) -> Charge {
        Charge {
            provider: self.url(),
            key: keys.meter_key.clone(),
            machine: keys.name.clone(),
            activity: activity.to_owned(),
        }
    }

    /// What `priced` is to know in the machine of these keys, whose network device number `network` is for it
    /// alone. From a `namespace` a relay leads to the provider, as long as this process lives.
    ///
    /// # Errors
    /// If there can be no relay.
    pub fn feed(
        &self,
        keys: &MachineKeys,
        network: usize,
        namespace: Option<&Namespace>,
    ) -> Result<PriceFeed> {
        let provider = match namespace {
            Some(namespace) => {
                let entrance = namespace.listen()?;
                let port = entrance.local_addr()?.port();
                relay(entrance, self.address.into());
                SocketAddrV4::new(HOST, port)
            }
            None => from_the_machine(self.address),
        };
        let (machine, key) = (keys.name.clone(), Some(keys.machine_key.clone()));
        Ok(PriceFeed { provider, machine, key, network })
    }
}

/// An address as a machine sees it: this computer is [`HOST`] there.
fn from_the_machine(address: SocketAddrV4) -> SocketAddrV4 {
    let own = address.ip().is_loopback() || address.ip().is_unspecified();
    if own { SocketAddrV4::new(HOST, address.port()) } else { address }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_computer_has_another_address_in_the_machine() {
        let seen = |text: &str| from_the_machine(text.parse().expect("an address")).to_string();
        assert_eq!(seen("127.0.0.1:80"), "10.0.2.2:80");
        assert_eq!(seen("192.0.2.1:80"), "192.0.2.1:80");
    }
}
