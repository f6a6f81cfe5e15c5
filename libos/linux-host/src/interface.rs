//! What Linux can be asked of a network interface of the process's namespace, by `ioctl`s with a `struct
//! ifreq`.
//!
//! `docs/safety/libos-linux-host.md` says why the unsafe calls are sound; its conditions are referred to by
//! number.

use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, Updater, ioctl};
use rustix::net::{AddressFamily, SocketType, socket};
use std::ffi::c_int;
use std::os::fd::AsFd;

/// `SIOCGIFMTU`, `SIOCGIFHWADDR` and `SIOCETHTOOL` (linux/sockios.h).
const GET_MTU: Opcode = 0x8921;
const GET_ADDRESS: Opcode = 0x8927;
const ETHTOOL: Opcode = 0x8946;
/// `ETHTOOL_STXCSUM` (linux/ethtool.h): whether the interface may finish checksums.
const SET_TX_CHECKSUM: u32 = 0x17;

/// Bytes of an interface's name with its terminator (`IFNAMSIZ`).
pub(crate) const NAME_BYTES: usize = 16;

/// `struct ifreq` (linux/if.h): a name, and a union of which an address of 24 bytes is the largest.
#[repr(C, align(8))]
pub(crate) struct Request {
    name: [u8; NAME_BYTES],
    data: [u8; 24],
}

impl Request {
    /// A request about `name`, which must leave room for its terminator.
    pub fn about(name: &str) -> Request {
        let mut request = Request { name: [0; NAME_BYTES], data: [0; 24] };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        request
    }

    /// Puts `bytes` where the union starts.
    pub fn put(&mut self, bytes: &[u8]) {
        self.data[..bytes.len()].copy_from_slice(bytes);
    }

    /// Makes the request of `file`.
    ///
    /// # Safety
    /// `OPCODE` takes a pointer to a `struct ifreq`, and reads and writes nothing else of this program than
    /// what the caller put a pointer to into it, which is valid for it.
    pub unsafe fn make<const OPCODE: Opcode>(&mut self, file: impl AsFd) -> Result<()> {
        // SAFETY: a `Request` has the layout of a `struct ifreq`, any bytes are a value of it (condition 1),
        // and the caller vouches for the opcode.
        unsafe { ioctl(file, Updater::<OPCODE, Request>::new(self)) }
    }
}

/// Whether `name` can be an interface's.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() < NAME_BYTES
}

/// Its Ethernet address. `name` is one ([`is_name`]), as for all that follow.
pub(crate) fn address(name: &str) -> Result<[u8; 6]> {
    let mut request = Request::about(name);
    // SAFETY: SIOCGIFHWADDR takes a `struct ifreq` (condition 1).
    unsafe { request.make::<GET_ADDRESS>(any()?) }?;
    // A `struct sockaddr`: the family, then the address.
    let [_, _, mac @ ..] = *request.data.first_chunk::<8>().expect("24 bytes are more than 8");
    Ok(mac)
}

/// Most bytes of its IP packets.
pub(crate) fn mtu(name: &str) -> Result<u16> {
    let mut request = Request::about(name);
    // SAFETY: SIOCGIFMTU takes a `struct ifreq` (condition 1).
    unsafe { request.make::<GET_MTU>(any()?) }?;
    let mtu = c_int::from_ne_bytes(*request.data.first_chunk().expect("24 bytes are more than 4"));
    u16::try_from(mtu).map_err(|_| Errno::RANGE)
}

/// Its number in the namespace.
pub(crate) fn number(name: &str) -> Result<u32> {
    rustix::net::netdevice::name_to_index(any()?, name)
}

/// The other end of a virtual Ethernet pair, if it is in the same namespace and `/sys` shows that one.
pub(crate) fn peer(name: &str) -> Option<String> {
    let own = number(name).ok()?;
    let other = link(name).filter(|other| *other != own)?; // What is no end of a pair is its own other end.
    let found = rustix::net::netdevice::index_to_name(any().ok()?, other).ok()?;
    // A number is of one namespace, and this one's may be of another device than the peer's.
    (link(&found)? == own).then_some(found)
}

/// The number, in its namespace, of the device at the other end of this one, as sysfs has it.
fn link(name: &str) -> Option<u32> {
    std::fs::read_to_string(format!("/sys/class/net/{name}/iflink")).ok()?.trim().parse().ok()
}

/// Has Linux finish the checksums of what it sends by this interface before it sends it.
pub(crate) fn finish_checksums(name: &str) -> Result<()> {
    // `struct ethtool_value`: the command and its value.
    let mut value = [SET_TX_CHECKSUM, 0];
    let mut request = Request::about(name);
    request.put(&(value.as_mut_ptr().expose_provenance() as u64).to_ne_bytes());
    // SAFETY: SIOCETHTOOL takes a `struct ifreq` with a pointer to what its command takes, and this one takes
    // an `ethtool_value`, which lives until it returns (condition 4).
    unsafe { request.make::<ETHTOOL>(any()?) }
}

/// A file that the kernel takes such requests of.
fn any() -> Result<std::os::fd::OwnedFd> {
    socket(AddressFamily::INET, SocketType::DGRAM, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_every_namespace_has_is_asked() {
        assert_eq!(address("lo"), Ok([0; 6]));
        assert_eq!(mtu("lo"), Err(Errno::RANGE), "65,536 is one more than any packet of IP has");
        assert_eq!(mtu("no such one"), Err(Errno::NODEV));
    }

    #[test]
    fn a_name_leaves_room_for_its_end() {
        assert!(is_name("fifteen-letters") && !is_name("sixteen-letters-") && !is_name(""));
    }
}
