//! Frames of the model: Ethernet (RFC 894), ARP (RFC 826), IPv4 (RFC 791) and TCP (RFC 9293 section 3.1).

use std::net::Ipv4Addr;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

/// A segment, without its ports' addresses.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    pub from: u16,
    pub to: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    /// The option of a SYN; 0 if there is none.
    pub mss: u16,
    pub text: Vec<u8>,
}

impl Segment {
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// SEG.LEN: bytes of text, with SYN and FIN.
    pub fn len(&self) -> u32 {
        self.text.len() as u32 + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }
}

/// An ARP packet, as far as the model wants to know.
pub struct Arp {
    pub is_request: bool,
    pub sender: ([u8; 6], Ipv4Addr),
    pub target: Ipv4Addr,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}

fn address_at(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32_at(bytes, at))
}

/// The sum of RFC 1071, not yet inverted.
fn sum(bytes: &[u8], start: u32) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b)));
    let mut sum = words.fold(start, |sum, word| sum + word);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn pseudo_header(from: Ipv4Addr, to: Ipv4Addr, len: usize) -> u32 {
    let addresses = [from.octets(), to.octets()].concat();
    u32::from(sum(&addresses, 6 + len as u32))
}

/// Reads an ARP packet for IPv4 over Ethernet.
pub fn parse_arp(frame: &[u8]) -> Option<Arp> {
    let arp = frame.get(14..42)?;
    if frame[12..14] != [8, 6] || arp[..6] != [0, 1, 8, 0, 6, 4] {
        return None;
    }
    let sender = (arp[8..14].try_into().ok()?, address_at(arp, 14));
    Some(Arp { is_request: u16_at(arp, 6) == 1, sender, target: address_at(arp, 24) })
}

/// Makes an ARP packet; without a target's Ethernet address, a request to all.
pub fn arp(from: ([u8; 6], Ipv4Addr), to: Ipv4Addr, to_mac: Option<[u8; 6]>) -> Vec<u8> {
    let operation = if to_mac.is_some() { 2 } else { 1 };
    let mut frame =
        [&to_mac.unwrap_or([255; 6])[..], &from.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation]].concat();
    frame.extend([&from.0[..], &from.1.octets(), &to_mac.unwrap_or_default(), &to.octets()].concat());
    frame
}

/// Reads a TCP segment and who sent it to `to`; `None` of anything else, and of what is damaged.
pub fn parse_tcp(frame: &[u8], to: Ipv4Addr) -> Option<(Ipv4Addr, Segment)> {
    let packet = frame.get(14..)?;
    if frame[12..14] != [8, 0] || packet.len() < 40 || packet[0] >> 4 != 4 {
        return None;
    }
    let header = usize::from(packet[0] & 15) * 4;
    let total = usize::from(u16_at(packet, 2));
    let is_sound = header >= 20 && total <= packet.len() && total >= header + 20;
    if !is_sound || sum(&packet[..header], 0) != 0xffff || packet[9] != 6 {
        return None;
    }
    // No fragments: who is told DF sends none.
    if u16_at(packet, 6) & 0x3fff != 0 || address_at(packet, 16) != to {
        return None;
    }
    let (from, segment) = (address_at(packet, 12), &packet[header..total]);
    let text = usize::from(segment[12] >> 4) * 4;
    if sum(segment, pseudo_header(from, to, segment.len())) != 0xffff || text < 20 || text > segment.len() {
        return None;
    }
    let segment = Segment {
        from: u16_at(segment, 0),
        to: u16_at(segment, 2),
        seq: u32_at(segment, 4),
        ack: u32_at(segment, 8),
        flags: segment[13],
        window: u16_at(segment, 14),
        mss: mss(&segment[20..text]),
        text: segment[text..].to_vec(),
    };
    Some((from, segment))
}

/// The option of a maximum segment size (RFC 9293 section 3.2); others are skipped.
fn mss(mut options: &[u8]) -> u16 {
    loop {
        match options {
            [2, 4, high, low, ..] => return u16::from_be_bytes([*high, *low]),
            [1, rest @ ..] => options = rest,
            [kind, len, ..] if *kind > 1 && *len >= 2 && usize::from(*len) <= options.len() => {
                options = &options[usize::from(*len)..];
            }
            _ => return 0,
        }
    }
}

/// Makes the frame of a segment.
pub fn tcp(macs: ([u8; 6], [u8; 6]), from: Ipv4Addr, to: Ipv4Addr, id: u16, segment: &Segment) -> Vec<u8> {
    let options = if segment.mss > 0 { 4 } else { 0 };
    let len = 20 + options + segment.text.len();
    let mut frame = [&macs.1[..], &macs.0, &[8, 0, 0x45, 0]].concat();
    frame.extend((20 + len as u16).to_be_bytes());
    frame.extend(id.to_be_bytes());
    frame.extend([0x40, 0, 64, 6, 0, 0]);
    frame.extend([from.octets(), to.octets()].concat());
    let check = !sum(&frame[14..34], 0);
    frame[24..26].copy_from_slice(&check.to_be_bytes());
    frame.extend([segment.from.to_be_bytes(), segment.to.to_be_bytes()].concat());
    frame.extend([segment.seq.to_be_bytes(), segment.ack.to_be_bytes()].concat());
    frame.extend([((20 + options) as u8) << 2, segment.flags]);
    frame.extend(segment.window.to_be_bytes());
    frame.extend([0; 4]);
    if segment.mss > 0 {
        frame.extend([2, 4]);
        frame.extend(segment.mss.to_be_bytes());
    }
    frame.extend(&segment.text);
    let check = !sum(&frame[34..], pseudo_header(from, to, len));
    frame[50..52].copy_from_slice(&check.to_be_bytes());
    frame
}
