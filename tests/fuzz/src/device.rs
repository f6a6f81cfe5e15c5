//! A device whose other side is the fuzzer.

use nom_net::checksum;
use nom_net::frame::{Ethernet, Packet, protocol};
use nom_net::{Cidr, Config};
use nom_port::nic::Offloads;
pub use nom_wire::{Device, Memory};

pub const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const THEIR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

/// Room behind a received frame, for answers in place.
const SPARE: usize = 1024;

/// A device that says that transport checksums of received frames are good if `is_sum_good`: a fuzzer does
/// not find them.
pub fn device(is_sum_good: bool) -> Device {
    let device = Device { piece: usize::MAX, spare: SPARE, ..Device::new(OUR_MAC[5], Offloads::default()) };
    device.port.borrow_mut().is_sum_good = is_sum_good;
    device
}

/// Frames that were sent since the last call, each of them sound.
pub fn take_sent(device: &Device) -> Vec<Vec<u8>> {
    let sent = device.take_sent();
    sent.iter().for_each(|frame| check(frame));
    sent
}

/// What is the same in every run.
pub fn config() -> Config {
    let addresses = vec![
        Cidr { address: [10, 0, 0, 1].into(), prefix: 24 },
        Cidr { address: [0xfd00, 0, 0, 0, 0, 0, 0, 1].into(), prefix: 64 },
    ];
    let (gateway4, nameservers) = (Some([10, 0, 0, 2].into()), vec![[10, 0, 0, 2].into()]);
    Config { addresses, gateway4, nameservers, ..Config::new([1, 2, 3, 4]) }
}

/// A report about groups stands behind a router's alert, the only extension header that is sent.
fn behind_alert(packet: Packet) -> Packet {
    if packet.protocol != 0 {
        return packet;
    }
    Packet { protocol: protocol::ICMPV6, start: packet.start + 8, len: packet.len - 8, ..packet }
}

/// A frame of ours has our address, whole headers and right checksums.
fn check(frame: &[u8]) {
    let ethernet = Ethernet::parse(frame).expect("a whole Ethernet header");
    assert_eq!(ethernet.from, OUR_MAC, "{frame:02x?}");
    let packet = match frame[12..14] {
        [8, 0] => Packet::parse_v4(frame),
        [0x86, 0xdd] => Packet::header_v6(frame).map(behind_alert),
        _ => return,
    };
    let Ok(packet) = packet else { panic!("a bad header was sent: {frame:02x?}") };
    assert!(packet.start + packet.len <= frame.len().max(60), "a cut packet was sent: {frame:02x?}");
    let transport = &frame[packet.start..packet.start + packet.len];
    let sum = match packet.protocol {
        protocol::ICMP => 0,
        other => checksum::pseudo_header(packet.from, packet.to, other, packet.len),
    };
    let sum = checksum::add(sum, checksum::sum(transport));
    assert_eq!(sum, 0xffff, "a bad checksum was sent: {frame:02x?}");
}
