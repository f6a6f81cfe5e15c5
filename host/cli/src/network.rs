//! What a machine's first network device is connected to.

use crate::arguments::{NetworkChoice, Run};
use crate::ports::{self, Forwards};
use anyhow::{Context, Result, bail, ensure};
use nom_build::prices::NETWORK_CLASS;
use nom_image::manifest::{Application, BundleManifest};
use nom_vmm::bridge::{self, Port, Subnet};
use nom_vmm::{Forward, Namespace, Network, namespace, relay, relay_datagrams};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

/// Variable of this command's environment: the bridge's addresses, if others than the usual ones.
const BRIDGE: &str = "NOM_BRIDGE";

/// What of this computer a machine is connected to; it is removed when dropped.
#[derive(Debug)]
pub enum Attachment {
    /// Nothing: QEMU's user-mode network.
    User,
    /// A network namespace of the machine's own.
    Namespace(Namespace),
    /// A port of the bridge.
    Bridge(Port),
}

impl Attachment {
    /// Makes what is asked for.
    ///
    /// # Errors
    /// If it cannot be made, or other options ask for something else.
    pub fn make(options: &Run, name: &str) -> Result<Attachment> {
        if let (Some(address), true) = (options.address, options.network != NetworkChoice::Bridge) {
            bail!(
                "--address {address}: expected --network bridge, where a machine has an address of its own"
            );
        }
        match options.network {
            NetworkChoice::User => Ok(Attachment::User),
            NetworkChoice::Tap => {
                if let Some(port) = options.publish.first() {
                    bail!("-p {port}: --network tap publishes no port; expected --network user or bridge");
                }
                Attachment::namespace_of(name, options.cpus)
            }
            NetworkChoice::Bridge => Attachment::port_of(name, options.cpus, options.address),
        }
    }

    /// Makes again what the machine was connected to when it ran before, where `networks` say so.
    ///
    /// # Errors
    /// If it cannot be made: another machine has the address, for example.
    pub fn again(name: &str, networks: &mut [Network]) -> Result<Attachment> {
        for network in networks {
            let attachment = match *network {
                Network::User { .. } => continue,
                Network::Tap { queues, .. } => Attachment::namespace_of(name, queues)?,
                Network::Bridge { address, queues, .. } => Attachment::port_of(name, queues, Some(address))?,
            };
            network.clone_from(&attachment.network().expect("it is none of the user mode's"));
            return Ok(attachment);
        }
        Ok(Attachment::User)
    }

    fn namespace_of(name: &str, queues: u32) -> Result<Attachment> {
        // One pair of queues for each core, as the driver wants them.
        let made = Namespace::create(name, queues).context("--network tap")?;
        eprintln!("network: {} from `ip netns exec {} COMMAND`", namespace::GUEST, made.name());
        Ok(Attachment::Namespace(made))
    }

    fn port_of(name: &str, queues: u32, address: Option<Ipv4Addr>) -> Result<Attachment> {
        let subnet = match std::env::var(BRIDGE) {
            Ok(text) => text.parse().map_err(|error| anyhow::anyhow!("{BRIDGE}={error}"))?,
            Err(_) => Subnet::default(),
        };
        let made = Port::create(name, queues, address, subnet).context("--network bridge")?;
        eprintln!("network: {} from this computer and its neighbours on {}", made.address(), bridge::NAME);
        Ok(Attachment::Bridge(made))
    }

    /// The namespace, if it is one.
    pub fn namespace(&self) -> Option<&Namespace> {
        match self {
            Attachment::Namespace(namespace) => Some(namespace),
            Attachment::User | Attachment::Bridge(_) => None,
        }
    }

    fn network(&self) -> Option<Network> {
        match self {
            Attachment::User => None,
            Attachment::Namespace(namespace) => Some(namespace.network()),
            Attachment::Bridge(port) => Some(port.network()),
        }
    }

    /// Tells the applications that have the network device where they are, if they cannot know.
    pub fn address(&self, bundle: &mut BundleManifest) {
        if let Attachment::Bridge(port) = self {
            let address = format!("{}/{},{}", port.address(), bridge::PREFIX, port.host());
            for application in bundle.applications.iter_mut().filter(|one| wants_network(one)) {
                application.environment.insert("ip".to_owned(), address.clone());
            }
        }
    }

    /// The network devices that the applications ask for, and the ports that lead to the bridge. Says where
    /// ports are to be found.
    pub fn networks(&self, options: &Run, bundle: Option<&BundleManifest>) -> (Vec<Network>, Vec<Forward>) {
        if let Attachment::Namespace(namespace) = self {
            return (vec![namespace.network()], Vec::new());
        }
        let Forwards { forwards, notes } = ports::forwards(&options.publish, bundle, ports::is_taken);
        notes.iter().for_each(|note| eprintln!("{note}"));
        match self.network() {
            Some(network) => (vec![network], forwards),
            None => (user_network(forwards, bundle).into_iter().collect(), Vec::new()),
        }
    }

    /// Leads ports of this computer to the machine on the bridge, as long as this process lives.
    ///
    /// # Errors
    /// Names the port that is taken.
    pub fn publish(&self, forwards: &[Forward]) -> Result<()> {
        let Attachment::Bridge(port) = self else { return Ok(()) };
        forwards.iter().try_for_each(|forward| publish(forward, port.address()))
    }
}

fn publish(forward: &Forward, machine: Ipv4Addr) -> Result<()> {
    let entrance =
        SocketAddr::new(forward.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), forward.host);
    let target = SocketAddr::new(machine.into(), forward.guest);
    let refused = || format!("-p {forward}: cannot listen at {entrance}");
    ensure!(forward.guest != 0, "-p {forward}: a machine has no port 0");
    if forward.udp {
        relay_datagrams(UdpSocket::bind(entrance).with_context(refused)?, target);
    } else {
        relay(TcpListener::bind(entrance).with_context(refused)?, target);
    }
    Ok(())
}

/// Whether an application's manifest asks for a network device.
pub fn wants_network(application: &Application) -> bool {
    application.devices.iter().any(|device| device.class == NETWORK_CLASS)
}

/// A network device, if a port is forwarded or an application may have one.
fn user_network(forwards: Vec<Forward>, bundle: Option<&BundleManifest>) -> Option<Network> {
    let wanted = bundle.iter().flat_map(|bundle| &bundle.applications).any(wants_network);
    (wanted || !forwards.is_empty()).then_some(Network::User { forwards })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarded_port_brings_a_network() {
        assert_eq!(user_network(Vec::new(), None), None);
        let forward = Forward { address: None, host: 8080, guest: 80, udp: true };
        let network = user_network(vec![forward], None).expect("a network");
        assert_eq!(network.forwards(), [forward]);
    }

    #[test]
    fn a_port_that_cannot_be_published_is_named() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let host = taken.local_addr().expect("bound").port();
        let forward = Forward { address: Some(Ipv4Addr::LOCALHOST.into()), host, guest: 80, udp: false };
        let error = publish(&forward, Ipv4Addr::LOCALHOST).expect_err("taken").to_string();
        assert!(error.contains(&format!("127.0.0.1:{host}")), "{error}");
    }
}
