//! The TAP device itself: opening it. `docs/safety/libos-linux-host.md` says why its unsafe calls are sound,
//! and its conditions are referred to by number.

use crate::interface::{self, Request};
use crate::nic::{NicError, Way};
use nom_port::nic::{Offloads, Properties};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, Result};
use rustix::ioctl::{IntegerSetter, Opcode, ioctl, opcode};
use std::ffi::{c_int, c_uint};
use std::os::fd::OwnedFd;

/// Where Linux has its TAP devices.
const CLONE_DEVICE: &str = "/dev/net/tun";

/// `TUNSETIFF` and `TUNSETOFFLOAD` (linux/if_tun.h).
const ATTACH: Opcode = opcode::write::<c_int>(b'T', 202);
const SET_OFFLOADS: Opcode = opcode::write::<c_uint>(b'T', 208);

/// `IFF_TAP | IFF_NO_PI | IFF_VNET_HDR`: Ethernet frames, each behind a header of virtio and nothing else.
const FLAGS: u16 = PLAIN | 0x4000;
/// `IFF_TAP | IFF_NO_PI`: Ethernet frames and nothing else.
const PLAIN: u16 = 0x0002 | 0x1000;
/// `IFF_MULTI_QUEUE`: the device has several queues, and each file is one.
const SEVERAL: u16 = 0x0100;
/// `TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6`: frames may come with unfinished checksums, and uncut.
const OFFLOADS: usize = 0x01 | 0x02 | 0x04;

/// Attaches to up to `queues` queues of the TAP device `name`, which is made if there is none, and asks
/// what it is. A device that was made for one queue has one, and one that was made for several can be used
/// by one.
pub(super) fn attach(name: &str, queues: usize) -> std::result::Result<(Vec<OwnedFd>, Properties), NicError> {
    let failed = |step| move |errno| NicError { way: Way::Tap, name: name.to_owned(), step, errno };
    if !interface::is_name(name) {
        return Err(failed("name it")(Errno::NAMETOOLONG));
    }
    let (wanted, other) = if queues > 1 { (SEVERAL, 0) } else { (0, SEVERAL) };
    // Linux refuses to see a device as what it was not made to be.
    let (first, kind) = match queue(name, wanted) {
        Err(error) if error.errno == Errno::INVAL => (queue(name, other)?, other),
        outcome => (outcome?, wanted),
    };
    let mut files = vec![first];
    if kind == SEVERAL {
        let further = (1..queues).map(|_| queue(name, SEVERAL));
        files.extend(further.collect::<std::result::Result<Vec<_>, _>>()?);
    }
    let properties = Properties {
        mac: address(name).map_err(failed("ask for its address"))?,
        mtu: interface::mtu(name).map_err(failed("ask for its MTU"))?,
        offloads: Offloads { checksum: true, segment_tcp4: true, segment_tcp6: true },
    };
    Ok((files, properties))
}

/// The other end of the cable of a TAP device that is there, as a switch has it: each call takes or gives one
/// Ethernet frame, complete and no longer than the device's MTU allows.
///
/// # Errors
/// If the process may not do that, or there is no such device.
pub fn plug(name: &str) -> std::result::Result<OwnedFd, NicError> {
    if !interface::is_name(name) {
        return Err(NicError {
            way: Way::Tap,
            name: name.to_owned(),
            step: "name it",
            errno: Errno::NAMETOOLONG,
        });
    }
    open_queue(name, PLAIN)
}

/// A queue of the TAP device `name`, which fits a `struct ifreq`, with `flags` besides the usual ones.
fn queue(name: &str, flags: u16) -> std::result::Result<OwnedFd, NicError> {
    let file = open_queue(name, FLAGS | flags)?;
    // SAFETY: TUNSETOFFLOAD takes a number and no pointer (condition 2).
    let offload = unsafe { ioctl(&file, IntegerSetter::<SET_OFFLOADS>::new_usize(OFFLOADS)) };
    let step = "switch offloads on";
    offload.map_err(|errno| NicError { way: Way::Tap, name: name.to_owned(), step, errno })?;
    Ok(file)
}

fn open_queue(name: &str, flags: u16) -> std::result::Result<OwnedFd, NicError> {
    let failed = |step| move |errno| NicError { way: Way::Tap, name: name.to_owned(), step, errno };
    let how = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(CLONE_DEVICE, how, Mode::empty()).map_err(failed("open /dev/net/tun"))?;
    let mut request = Request::about(name);
    request.put(&flags.to_ne_bytes());
    // SAFETY: TUNSETIFF takes a `struct ifreq` (condition 1).
    unsafe { request.make::<ATTACH>(&file) }.map_err(failed("attach to it"))?;
    Ok(file)
}

/// The address of our end. The kernel's end has its own; ours is its neighbour, so the same at each start.
fn address(name: &str) -> Result<[u8; 6]> {
    let [rest @ .., last] = interface::address(name)?;
    let [a, b, c, d, e] = rest;
    Ok([a, b, c, d, e, last ^ 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_interface_can_have_is_refused() {
        for name in ["", "sixteen-bytes-is"] {
            let error = attach(name, 1).expect_err(name);
            assert!(error.to_string().contains("1 to 15 bytes"), "{error}");
        }
    }

    #[test]
    fn who_may_not_is_told_what_it_takes() {
        let error =
            NicError { way: Way::Tap, name: "tap0".to_owned(), step: "attach to it", errno: Errno::PERM };
        let text = error.to_string();
        assert!(text.starts_with("TAP device `tap0`: cannot attach to it: "), "{text}");
        assert!(text.ends_with("it takes root, or CAP_NET_ADMIN"), "{text}");
    }
}
