//! What a device makes of a packet: cuts large segments, finishes checksums.

use nom_net::checksum;
use nom_port::buffer::Buffer;
use nom_port::nic::{Outgoing, gather};

/// The frames that a device makes of one packet: cut and with checksums, as its offloads promise.
pub fn frames<B: Buffer>(packet: &Outgoing<B>) -> Vec<Vec<u8>> {
    let payload = gather(&packet.payload);
    let Some(cut) = packet.segmentation else {
        return vec![finished(packet, &packet.head, &payload)];
    };
    let pieces = payload.chunks(cut.payload_max.into());
    let count = pieces.len();
    let frame = |(index, piece): (usize, &[u8])| {
        let head = head_of_piece(packet, index, index + 1 == count, piece.len());
        finished(packet, &head, piece)
    };
    pieces.enumerate().map(frame).collect()
}

fn put(head: &mut [u8], at: usize, value: u16) {
    head[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// One piece of a large segment: lengths, sequence number, flags and pseudo-header sum are its own.
fn head_of_piece<B: Buffer>(packet: &Outgoing<B>, index: usize, is_last: bool, piece: usize) -> Vec<u8> {
    let cut = packet.segmentation.expect("only large segments are cut");
    let mut head = packet.head.to_vec();
    let tcp = usize::from(packet.checksum.expect("a large segment needs its checksum finished").start);
    let own = head.len() - tcp + piece;
    let sum = u16::from_be_bytes([head[tcp + 16], head[tcp + 17]]);
    let total = packet.len() - tcp;
    put(&mut head, tcp + 16, checksum::add(sum, checksum::add(!(total as u16), own as u16)));
    if cut.is_ipv6 {
        put(&mut head, 18, own as u16);
    } else {
        put(&mut head, 16, (own + 20) as u16);
        put(&mut head, 24, 0);
        let sum = !checksum::sum(&head[14..34]);
        put(&mut head, 24, sum);
    }
    let seq = u32::from_be_bytes(head[tcp + 4..tcp + 8].try_into().expect("4 bytes"));
    let seq = seq.wrapping_add(index as u32 * u32::from(cut.payload_max));
    head[tcp + 4..tcp + 8].copy_from_slice(&seq.to_be_bytes());
    if !is_last {
        // FIN and PSH belong to the last piece.
        head[tcp + 13] &= !0x09;
    }
    head
}

fn finished<B: Buffer>(packet: &Outgoing<B>, head: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = [head, payload].concat();
    if let Some(partial) = packet.checksum {
        let start = usize::from(partial.start);
        let at = start + usize::from(partial.offset);
        let sum = !checksum::sum(&bytes[start..]);
        put(&mut bytes, at, sum);
    }
    bytes
}
