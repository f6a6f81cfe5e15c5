//! The network's interfaces as programs see them (netdevice(7)): the loopback, and that of the application's
//! device.

use crate::call::Call;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use linux_raw_sys::net as abi;
use nom_app::sockets::Network;
use nom_fs::Errno;

/// Requests (linux/sockios.h).
const GET_NAME: u32 = 0x8910;
const GET_ALL: u32 = 0x8912;
const GET_FLAGS: u32 = 0x8913;
const GET_ADDRESS: u32 = 0x8915;
const GET_BROADCAST: u32 = 0x8919;
const GET_MASK: u32 = 0x891b;
const GET_METRIC: u32 = 0x891d;
const GET_MTU: u32 = 0x8921;
const GET_HARDWARE: u32 = 0x8927;
const GET_INDEX: u32 = 0x8933;
const GET_QUEUE: u32 = 0x8942;
/// Those that change something.
const CHANGES: [u32; 9] = [0x8914, 0x8916, 0x891a, 0x891c, 0x891e, 0x8922, 0x8923, 0x8924, 0x8943];

/// Bytes of a name, and of `struct ifreq`, whose other part is what is said of it.
pub(crate) const NAME_BYTES: usize = 16;
const REQUEST_BYTES: usize = 40;
/// Bytes of the largest packet of the network, and of those that stay in the machine.
pub(crate) const NETWORK_MTU: u32 = 1500;
const LOOPBACK_MTU: u32 = 65_536;
/// Frames that wait in a device's queue on Linux.
const QUEUE_LEN: u32 = 1000;

/// An interface of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    /// Its number, from 1.
    pub index: u32,
    /// Its name.
    pub name: &'static [u8],
    /// `ARPHRD_*`.
    pub hardware: u16,
    /// `IFF_*`.
    pub flags: u32,
    /// Bytes of the largest packet.
    pub mtu: u32,
    /// Addresses with the length of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// Flags of an interface (netdevice(7)): up and running, and what kind it is.
const UP: u32 = 0x1_0041;
const BROADCAST: u32 = 2;
/// The numbers of the one that leads to the machine itself, and of that of the application's device.
pub(crate) const LOOPBACK_INDEX: u32 = 1;
pub(crate) const DEVICE_INDEX: u32 = 2;
/// That it leads to the machine itself.
pub(crate) const LOOPBACK: u32 = 8;
const MULTICAST: u32 = 0x1000;

/// The interface of a name, which ends at a zero, if there is one.
///
/// # Errors
/// `ENODEV`.
pub(crate) fn interface_named(network: Option<&Network>, name: &[u8]) -> Result<Interface, Errno> {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    interfaces(network).into_iter().find(|interface| interface.name == name).ok_or(Errno::ENODEV)
}

/// The interface of a number.
///
/// # Errors
/// `ENODEV`.
pub(crate) fn interface_numbered(network: Option<&Network>, index: u32) -> Result<Interface, Errno> {
    interfaces(network).into_iter().find(|interface| interface.index == index).ok_or(Errno::ENODEV)
}

/// All of them: the loopback, and that of the application's device.
pub(crate) fn interfaces(network: Option<&Network>) -> Vec<Interface> {
    let mut all = Vec::from([Interface {
        index: LOOPBACK_INDEX,
        name: b"lo",
        hardware: 772,
        flags: UP | LOOPBACK,
        mtu: LOOPBACK_MTU,
        addresses: Vec::from([(Ipv4Addr::LOCALHOST.into(), 8), (Ipv6Addr::LOCALHOST.into(), 128)]),
    }]);
    if let Some(network) = network {
        let addresses = network.with(|sockets| {
            let own = &sockets.stack().config().addresses;
            own.iter().map(|cidr| (cidr.address, cidr.prefix)).collect()
        });
        let flags = UP | BROADCAST | MULTICAST;
        all.push(Interface {
            index: DEVICE_INDEX,
            name: b"eth0",
            hardware: 1,
            flags,
            mtu: NETWORK_MTU,
            addresses,
        });
    }
    all
}

impl Interface {
    /// Its address of IPv4, which is the only one that these requests know, with the length of its prefix.
    fn address(&self) -> Option<(Ipv4Addr, u8)> {
        self.addresses.iter().find_map(|(ip, prefix)| match ip {
            IpAddr::V4(ip) => Some((*ip, *prefix)),
            IpAddr::V6(_) => None,
        })
    }

    /// `struct ifreq` with its name, and what is said of it.
    fn request(&self, told: &[u8]) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..self.name.len()].copy_from_slice(self.name);
        bytes[NAME_BYTES..NAME_BYTES + told.len()].copy_from_slice(told);
        bytes
    }

    /// What a request tells of it.
    fn told(&self, request: u32) -> Result<Vec<u8>, Errno> {
        let own = || self.address().ok_or(Errno::EADDRNOTAVAIL);
        let mask = |prefix: u8| u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        Ok(match request {
            GET_FLAGS => (self.flags as u16).to_ne_bytes().to_vec(),
            GET_ADDRESS => socket_address(own()?.0),
            GET_MASK => socket_address(mask(own()?.1).into()),
            GET_BROADCAST => {
                let (ip, prefix) = own()?;
                let is_without = self.flags & BROADCAST == 0;
                let all = Ipv4Addr::from(u32::from(ip) | !mask(prefix));
                socket_address(if is_without { Ipv4Addr::UNSPECIFIED } else { all })
            }
            GET_METRIC => Vec::from([0; 4]),
            GET_MTU => self.mtu.to_ne_bytes().to_vec(),
            GET_HARDWARE => self.hardware.to_ne_bytes().to_vec(),
            GET_INDEX => self.index.to_ne_bytes().to_vec(),
            GET_QUEUE => QUEUE_LEN.to_ne_bytes().to_vec(),
            _ => return Err(Errno::ENOTTY),
        })
    }
}

/// `struct sockaddr_in` without a port.
fn socket_address(ip: Ipv4Addr) -> Vec<u8> {
    let family = (abi::AF_INET as u16).to_ne_bytes();
    [&family[..], &[0; 2], &ip.octets(), &[0; 8]].concat()
}

/// Answers what is asked of any socket about interfaces.
///
/// # Errors
/// `ENOTTY` if it is something else; `ENODEV`; `EADDRNOTAVAIL`; `EPERM` for changes; `EFAULT`.
pub(crate) fn answer(call: &Call<'_>, request: u32, argument: u64) -> Result<u64, Errno> {
    let (network, memory) = (call.family().network.as_ref(), call.memory());
    match request {
        GET_ALL => tell_all(call, &interfaces(network), argument),
        GET_NAME => {
            let index = memory.read_value::<u32>(argument.wrapping_add(NAME_BYTES as u64))?;
            let found = interface_numbered(network, index)?;
            memory.write(argument, &found.request(&index.to_ne_bytes())).map(|()| 0)
        }
        _ if CHANGES.contains(&request) => Err(Errno::EPERM),
        GET_FLAGS | GET_ADDRESS | GET_BROADCAST | GET_MASK | GET_METRIC | GET_MTU | GET_HARDWARE
        | GET_INDEX | GET_QUEUE => {
            let mut name = [0; NAME_BYTES];
            memory.read(argument, &mut name)?;
            let found = interface_named(network, &name)?;
            memory.write(argument, &found.request(&found.told(request)?)).map(|()| 0)
        }
        _ => Err(Errno::ENOTTY),
    }
}

/// `struct ifconf`: a request for each interface with an address, as many as there is room for.
fn tell_all(call: &Call<'_>, all: &[Interface], argument: u64) -> Result<u64, Errno> {
    let memory = call.memory();
    let (room, at) =
        (memory.read_value::<u32>(argument)?, memory.read_value::<u64>(argument.wrapping_add(8))?);
    let with_address = all.iter().filter_map(|one| Some(one.request(&socket_address(one.address()?.0))));
    let mut bytes = with_address.collect::<Vec<_>>().concat();
    if at != 0 {
        bytes.truncate(room as usize / REQUEST_BYTES * REQUEST_BYTES);
        memory.write(at, &bytes)?;
    }
    memory.write_value(argument, &(bytes.len() as u32)).map(|()| 0)
}
