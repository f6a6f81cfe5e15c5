//! What a device makes of a packet: cuts large segments, finishes checksums, asserts what a stack owes.

use crate::memory::Memory;
use nom_net::checksum;
use nom_port::nic::{Outgoing, Properties, gather};

/// Appends the frames that a device of these properties makes of a packet.
///
/// # Panics
/// If the stack asks for what the device does not offer, or hands over a frame that is too long for the link.
pub fn frames(packet: &Outgoing<Memory>, properties: &Properties, out: &mut Vec<Vec<u8>>) {
    let offloads = properties.offloads;
    assert!(packet.checksum.is_none() || offloads.checksum, "a checksum that the device does not finish");
    let payload = gather(&packet.payload);
    let Some(cut) = packet.segmentation else {
        return out.push(finished(packet, &packet.head, &payload, properties));
    };
    let is_offered = if cut.is_ipv6 { offloads.segment_tcp6 } else { offloads.segment_tcp4 };
    assert!(is_offered, "a large segment for a device that does not cut it");
    let pieces = payload.chunks(cut.payload_max.into());
    let last = pieces.len() - 1;
    for (index, piece) in pieces.enumerate() {
        let head = head_of_piece(packet, index, index == last, piece.len());
        out.push(finished(packet, &head, piece, properties));
    }
}

fn put(head: &mut [u8], at: usize, value: u16) {
    head[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// One piece of a large segment: lengths, sequence number, flags and pseudo-header sum are its own.
fn head_of_piece(packet: &Outgoing<Memory>, index: usize, is_last: bool, piece: usize) -> Vec<u8> {
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

fn finished(packet: &Outgoing<Memory>, head: &[u8], payload: &[u8], properties: &Properties) -> Vec<u8> {
    let mut bytes = [head, payload].concat();
    let most = usize::from(properties.mtu) + 14;
    assert!(bytes.len() <= most, "a frame of {} bytes on a link of at most {most}", bytes.len());
    if let Some(partial) = packet.checksum {
        let start = usize::from(partial.start);
        let at = start + usize::from(partial.offset);
        let sum = !checksum::sum(&bytes[start..]);
        put(&mut bytes, at, sum);
    }
    bytes
}
