//! Virtio structures in configuration space (section 4.1.4).

use crate::error::{Error, Result};
use nom_port::device::PciFunction;

/// Where configuration space says its first capability is (PCI 3.0, section 6.7).
const FIRST: u16 = 0x34;
const VENDOR_SPECIFIC: u8 = 9;
/// A list has at most that many entries: 4 bytes each, behind the header. One that is longer runs in a
/// circle.
const ENTRIES_MAX: usize = 48;
/// Base address registers of a function.
const BARS: u8 = 6;

/// A kind of structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Common = 1,
    Notify = 2,
    Device = 4,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Common => "common configuration",
            Kind::Notify => "notification",
            Kind::Device => "device configuration",
        }
    }
}

/// Where a structure lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capability {
    pub bar: u8,
    pub offset: u64,
    pub bytes: u64,
    /// Bytes between the registers of two queues; of a notification structure.
    pub distance: u32,
}

impl Capability {
    /// The first capability of a kind that names a memory region and is at least `bytes_min` long: a driver
    /// takes the first that it can use (section 4.1.4.1).
    pub(super) fn find(function: &impl PciFunction, kind: Kind, bytes_min: u64) -> Result<Capability> {
        let mut at = next(function.config(FIRST));
        for _ in 0..ENTRIES_MAX {
            if at == 0 {
                break;
            }
            let [id, following, _, found] = function.config(at).to_le_bytes();
            if id == VENDOR_SPECIFIC && found == kind as u8 {
                let capability = Capability::read(function, at);
                if capability.bar < BARS && capability.bytes >= bytes_min {
                    return Ok(capability);
                }
            }
            at = next(following.into());
        }
        Err(Error::NoCapability(kind.name()))
    }

    fn read(function: &impl PciFunction, at: u16) -> Capability {
        let word = |offset: u16| function.config(at.saturating_add(offset));
        Capability { bar: word(4) as u8, offset: word(8).into(), bytes: word(12).into(), distance: word(16) }
    }
}

fn next(pointer: u32) -> u16 {
    (pointer & 0xfc) as u16
}
