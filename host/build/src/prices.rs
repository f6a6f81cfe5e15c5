//! A machine that knows prices: `priced` beside the applications that earn.

use crate::Project;
use anyhow::{Context, Result, bail};
use nom_abi::layout::{APPLICATIONS_MAX, CHANNELS_MAX};
use nom_image::manifest::{self, Application, BundleManifest, Peer};
use std::net::SocketAddrV4;

/// Name of the application that publishes prices.
pub use nom_abi::priced::NAME as PRICED;

/// Shared memory of a channel between `priced` and an application; a report has 168 bytes.
const CHANNEL_BYTES: u64 = 64 << 10;
/// PCI base and sub class of Ethernet controllers.
pub const NETWORK_CLASS: u32 = 0x02_0000;

/// Where `priced` gets prices, and what it calls the machine there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceFeed {
    /// The provider, as the machine reaches it by `network`.
    pub provider: SocketAddrV4,
    /// The machine's name.
    pub machine: String,
    /// The machine's key there, with which it reports.
    pub key: Option<String>,
    /// Which of the machine's network devices is for `priced` alone, counted from 0.
    pub network: usize,
}

impl Project {
    /// The same bundle with `priced` as its last application, and a channel from it to each application that
    /// has a utility function or a network device: whoever serves reports what that costs, and brings.
    ///
    /// `priced` never ends, so the machine is made to end with the first application, unless the bundle
    /// says itself which are essential.
    ///
    /// # Errors
    /// If `priced` is no application of this checkout, the bundle has one already, or it is full.
    pub fn with_priced(&self, bundle: BundleManifest, feed: &PriceFeed) -> Result<BundleManifest> {
        let path = self.root().join("apps").join(PRICED);
        let mut own = manifest::load(&path)?.applications;
        let priced = own.pop().with_context(|| format!("{} has no application", path.display()))?;
        add(bundle, priced, feed)
    }
}

/// Whether an application may have something to report.
fn serves(application: &Application) -> bool {
    application.utility.is_some() || application.devices.iter().any(|device| device.class == NETWORK_CLASS)
}

fn add(mut bundle: BundleManifest, mut priced: Application, feed: &PriceFeed) -> Result<BundleManifest> {
    let applications = &mut bundle.applications;
    if applications.iter().any(|application| application.name == priced.name) {
        bail!("the bundle has an application `{PRICED}` already: expected none, it is added with prices");
    }
    if applications.len() == APPLICATIONS_MAX {
        bail!("no room for `{PRICED}`: the bundle has {APPLICATIONS_MAX} applications already");
    }
    let serving = applications.iter().enumerate().filter(|(_, application)| serves(application));
    priced.peers.extend(serving.map(|(number, _)| Peer { application: number, bytes: CHANNEL_BYTES }));
    let channels: usize = applications.iter().map(|application| application.peers.len()).sum();
    if channels + priced.peers.len() > CHANNELS_MAX {
        bail!("no room for the channels of `{PRICED}`: a bundle has {CHANNELS_MAX} at most");
    }
    priced.environment.extend(
        [
            ("provider", feed.provider.to_string()),
            ("machine", feed.machine.clone()),
            ("network", feed.network.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    priced.environment.extend(feed.key.iter().map(|key| ("key".to_owned(), key.clone())));
    if applications.iter().all(|application| !application.essential) {
        applications[0].essential = true;
    }
    applications.push(priced);
    Ok(bundle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn bundle(text: &str) -> BundleManifest {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("bundle.toml");
        let utility = "{ unit = 'Gbit', term = [{ function = 'value', alpha = 20 }] }";
        std::fs::write(&path, text.replace("UTILITY", utility)).expect("written");
        manifest::load(Path::new(&path)).unwrap_or_else(|error| panic!("{error}"))
    }

    fn priced() -> Application {
        bundle("name = 'priced'\nprogram = 'nom-priced'\nenvironment = { network = '0', log = 'x' }")
            .applications
            .remove(0)
    }

    fn feed() -> PriceFeed {
        let provider = "10.0.2.2:8080".parse().expect("an address");
        PriceFeed { provider, machine: "shop-1".into(), key: Some("secret".into()), network: 1 }
    }

    const SHOP: &str = "applications = [
        { name = 'log', program = 'log' },
        { name = 'web', program = 'web', utility = UTILITY },
        { name = 'db', program = 'db', utility = UTILITY },
        { name = 'cache', program = 'cache', devices = [{ class = 'network' }] },
    ]";

    #[test]
    fn priced_is_told_of_the_provider_and_talks_to_whoever_earns_or_serves() {
        let made = add(bundle(SHOP), priced(), &feed()).expect("there is room");
        let [.., priced] = made.applications.as_slice() else { panic!("{made:?}") };
        let environment: Vec<(&str, &str)> =
            priced.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            environment,
            [
                ("key", "secret"),
                ("log", "x"),
                ("machine", "shop-1"),
                ("network", "1"),
                ("provider", "10.0.2.2:8080")
            ]
        );
        let peers: Vec<usize> = priced.peers.iter().map(|peer| peer.application).collect();
        assert_eq!(peers, [1, 2, 3], "who earns, and who serves");
    }

    #[test]
    fn the_machine_still_ends_when_its_application_does() {
        let essential = |made: BundleManifest| -> Vec<bool> {
            made.applications.iter().map(|application| application.essential).collect()
        };
        let made = add(bundle(SHOP), priced(), &feed()).expect("there is room");
        assert_eq!(essential(made), [true, false, false, false, false]);
        let said = SHOP.replace("'db', program", "'db', essential = true, program");
        let made = add(bundle(&said), priced(), &feed()).expect("there is room");
        assert_eq!(essential(made), [false, false, true, false, false], "the bundle said which");
    }

    #[test]
    fn a_bundle_without_room_is_refused() {
        let entries: Vec<String> = (0..64).map(|n| format!("{{ name = 'a{n}', program = 'a' }}")).collect();
        let full = bundle(&format!("applications = [{}]", entries.join(", ")));
        assert!(add(full, priced(), &feed()).expect_err("refused").to_string().contains("64"));
        let own = bundle("name = 'priced'\nprogram = 'mine'");
        assert!(add(own, priced(), &feed()).expect_err("refused").to_string().contains("already"));
    }
}
