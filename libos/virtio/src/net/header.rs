//! The header in front of every frame (section 5.1.6).

use nom_port::nic::{Checksum, PartialChecksum, Segmentation};

/// Bytes of the header, which the modern interface always has whole.
pub(super) const BYTES: usize = 12;

/// The checksum is not finished.
const NEEDS_CHECKSUM: u8 = 1;
/// The checksum was checked.
const DATA_VALID: u8 = 2;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;

/// The header of a frame to send, whose headers take `head_bytes`.
#[inline]
pub(super) fn outgoing(
    checksum: Option<PartialChecksum>,
    segmentation: Option<Segmentation>,
    head_bytes: usize,
) -> [u8; BYTES] {
    // Flags, kind of segmentation, length of headers, payload of a segment, start and place of the checksum:
    // made as words, so that they are written as words.
    let (mut front, mut back) = (0u64, 0u32);
    if let Some(PartialChecksum { start, offset }) = checksum {
        front = u64::from(NEEDS_CHECKSUM) | u64::from(start) << 48;
        back = offset.into();
    }
    if let Some(Segmentation { payload_max, is_ipv6 }) = segmentation {
        let kind = if is_ipv6 { GSO_TCP6 } else { GSO_TCP4 };
        front |= u64::from(kind) << 8 | (head_bytes as u64 & 0xffff) << 16 | u64::from(payload_max) << 32;
    }
    let mut header = [0; BYTES];
    header[..8].copy_from_slice(&front.to_le_bytes());
    header[8..].copy_from_slice(&back.to_le_bytes());
    header
}

/// What the header of a received frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Incoming {
    pub checksum: Checksum,
    /// Buffers that the frame fills.
    pub buffers: u16,
}

/// Reads the header of a received frame; `None` if `bytes` is too short for one.
#[inline]
pub(super) fn incoming(bytes: &[u8]) -> Option<Incoming> {
    let header: &[u8; BYTES] = bytes.first_chunk()?;
    // A checksum that is not finished was not needed: the frame never left the computer.
    let is_good = header[0] & (NEEDS_CHECKSUM | DATA_VALID) != 0;
    Some(Incoming {
        checksum: if is_good { Checksum::Good } else { Checksum::Unknown },
        buffers: u16::from_le_bytes([header[10], header[11]]),
    })
}
