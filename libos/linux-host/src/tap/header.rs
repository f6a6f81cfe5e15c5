//! The header in front of every frame: `struct virtio_net_hdr` in the computer's own byte order, as
//! `IFF_VNET_HDR` has it (Linux, Documentation/networking/tuntap.rst; virtio 1.2, section 5.1.6).

use nom_port::nic::{Checksum, PartialChecksum, Segmentation};

/// Bytes of the header.
pub(super) const BYTES: usize = 10;

/// The checksum is not finished.
const NEEDS_CHECKSUM: u8 = 1;
/// The checksum was checked.
const DATA_VALID: u8 = 2;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;

/// The header of a frame to send, whose headers take `head_bytes`.
pub(super) fn outgoing(
    checksum: Option<PartialChecksum>,
    segmentation: Option<Segmentation>,
    head_bytes: usize,
) -> [u8; BYTES] {
    let mut header = [0; BYTES];
    let mut put = |at: usize, value: u16| header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    if let Some(Segmentation { payload_max, .. }) = segmentation {
        put(2, head_bytes as u16);
        put(4, payload_max);
    }
    if let Some(PartialChecksum { start, offset }) = checksum {
        put(6, start);
        put(8, offset);
        header[0] = NEEDS_CHECKSUM;
    }
    header[1] = match segmentation {
        None => 0,
        Some(Segmentation { is_ipv6: false, .. }) => GSO_TCP4,
        Some(Segmentation { is_ipv6: true, .. }) => GSO_TCP6,
    };
    header
}

/// What the header of a received frame says about its checksum.
pub(super) fn checksum(header: &[u8; BYTES]) -> Checksum {
    // A checksum that is not finished was not needed: the frame never left the computer.
    let is_good = header[0] & (NEEDS_CHECKSUM | DATA_VALID) != 0;
    if is_good { Checksum::Good } else { Checksum::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_of_the_kernel_is_where_it_looks() {
        assert_eq!(outgoing(None, None, 54), [0; BYTES]);
        let checksum = PartialChecksum { start: 34, offset: 16 };
        let segmentation = |is_ipv6| Some(Segmentation { payload_max: 0x5b4, is_ipv6 });
        let words = |header: [u8; BYTES]| -> Vec<u16> {
            header[2..].chunks(2).map(|word| u16::from_ne_bytes([word[0], word[1]])).collect()
        };
        let header = outgoing(Some(checksum), segmentation(false), 66);
        assert_eq!((header[..2].to_vec(), words(header)), (vec![1, 1], vec![66, 0x5b4, 34, 16]));
        assert_eq!(outgoing(Some(checksum), segmentation(true), 86)[..2], [1, 4]);
        assert_eq!(words(outgoing(Some(checksum), None, 66)), [0, 0, 34, 16]);
    }

    #[test]
    fn only_a_checksum_that_somebody_answers_for_is_good() {
        for (flags, expected) in
            [(0, Checksum::Unknown), (1, Checksum::Good), (2, Checksum::Good), (4, Checksum::Unknown)]
        {
            let mut header = [0; BYTES];
            header[0] = flags;
            assert_eq!(self::checksum(&header), expected);
        }
    }
}
