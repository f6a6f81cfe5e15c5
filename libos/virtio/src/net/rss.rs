//! Receive-side scaling (section 5.1.6.5.7): which queue pair gets a frame is a matter of a keyed hash of its
//! addresses and ports, by a table that the driver writes.
//!
//! Without it a device is to send a flow's frames to the pair that sent for it last (section 5.1.6.5.5),
//! which suits a server whose flows move from core to core better; but those that offer this need not,
//! and may then send all frames to one pair.

use super::control::{Command, DATA_MAX};
use crate::error::Result;
use crate::transport::Transport;
use alloc::vec::Vec;
use nom_port::device::Registers;

/// Bytes of the key that the hash is made with. Every device takes that many.
pub const KEY_BYTES: usize = 40;
/// Places of the table, at most: as many as most devices have.
const PLACES_MAX: u16 = 128;
/// What is hashed with its ports: TCP and UDP over IPv4 and IPv6. What has none, or is a fragment, goes to
/// the first pair, so that fragments meet.
const KINDS: u32 = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5;
pub(super) const CONFIGURE: Command = Command(4, 1);

/// What the device takes, and the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rss {
    kinds: u32,
    places: u16,
    key: [u8; KEY_BYTES],
}

impl Rss {
    /// What a device that has it takes, as its configuration says (section 5.1.4); nothing if it is of no
    /// use.
    pub fn read<R: Registers>(transport: &Transport<R>, key: [u8; KEY_BYTES]) -> Result<Option<Rss>> {
        let config = transport.config::<24>()?;
        let [.., key_max, low, high, a, b, c, d] = config;
        let places = u16::from_le_bytes([low, high]).min(PLACES_MAX);
        let kinds = u32::from_le_bytes([a, b, c, d]) & KINDS;
        let is_usable = usize::from(key_max) >= KEY_BYTES && places > 0 && kinds != 0;
        Ok(is_usable.then(|| Rss { kinds, places: 1 << places.ilog2(), key }))
    }

    /// The command's data that spreads frames over the first `pairs` queue pairs; `None` if the table has not
    /// a place for each.
    pub fn spread(&self, pairs: u16) -> Option<Vec<u8>> {
        const NO_HASH: u16 = 0;
        if pairs == 0 || pairs > self.places {
            return None;
        }
        let mut data = Vec::with_capacity(DATA_MAX);
        data.extend(self.kinds.to_le_bytes());
        data.extend((self.places - 1).to_le_bytes());
        data.extend(NO_HASH.to_le_bytes());
        data.extend((0..self.places).flat_map(|place| (place % pairs).to_le_bytes()));
        data.extend(pairs.to_le_bytes());
        data.push(KEY_BYTES as u8);
        data.extend(self.key);
        Some(data)
    }
}
