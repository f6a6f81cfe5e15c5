//! What a device asserts of a packet before and after it has made frames of it: what a stack owes.

use crate::memory::Memory;
use nom_port::nic::{Outgoing, Properties};

/// Appends the frames that a device of these properties makes of a packet.
///
/// # Panics
/// If the stack asks for what the device does not offer, or hands over a frame that is too long for the link.
pub fn frames(packet: &Outgoing<Memory>, properties: &Properties, out: &mut Vec<Vec<u8>>) {
    let offloads = properties.offloads;
    assert!(packet.checksum.is_none() || offloads.checksum, "a checksum that the device does not finish");
    if let Some(cut) = packet.segmentation {
        let is_offered = if cut.is_ipv6 { offloads.segment_tcp6 } else { offloads.segment_tcp4 };
        assert!(is_offered, "a large segment for a device that does not cut it");
    }
    let frames = nom_wire::frames(packet);
    assert!(!frames.is_empty(), "a large segment without payload");
    let most = usize::from(properties.mtu) + 14;
    for frame in &frames {
        assert!(frame.len() <= most, "a frame of {} bytes on a link of at most {most}", frame.len());
    }
    out.extend(frames);
}
