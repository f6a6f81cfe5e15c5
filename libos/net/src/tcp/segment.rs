//! A segment without its payload: what the header says, in both directions (RFC 9293 section 3.1).

use super::sequence::Seq;
use core::ops::BitOr;
use smoltcp::wire::{TcpOption, TcpPacket};

/// Bytes of timestamps, with two no-operations in front of them (RFC 7323 appendix A).
pub const STAMPS: usize = 12;

/// Control bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Hand over what has arrived.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgement field means something.
    pub const ACK: Flags = Flags(0x10);

    /// Whether any of `other` is set.
    pub const fn any(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// These but not `other`.
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// RFC 7323 timestamps: the sender's clock, and the latest of ours that it saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval.
    pub value: u32,
    /// TSecr.
    pub echo: u32,
}

/// Ranges of a selective acknowledgement (RFC 2018), each from its first byte to the one after its last.
pub type SackRanges = [Option<(Seq, Seq)>; 3];

/// Options that the stack speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Largest segment that the sender takes; on SYN only.
    pub mss: Option<u16>,
    /// How far its window is shifted; on SYN only.
    pub scale: Option<u8>,
    /// Whether it takes selective acknowledgements; on SYN only.
    pub sack_permitted: bool,
    /// Selective acknowledgement.
    pub sack: SackRanges,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
}

/// The 4 bytes in front of the values in the form in which nearly all stacks send timestamps (RFC 7323
/// appendix A).
const TIMESTAMPS_ALIGNED: [u8; 4] = [1, 1, 8, 10];

impl Options {
    /// Options as they stand in a header; `None` if one has a length that it cannot have.
    fn parse(mut bytes: &[u8]) -> Option<Options> {
        let mut options = Options::default();
        if let ([head @ .., _, _, _, _, _, _, _, _], 12) = (bytes, bytes.len())
            && *head == TIMESTAMPS_ALIGNED
        {
            options.timestamps = Some(Timestamps { value: be32(bytes, 4), echo: be32(bytes, 8) });
            return Some(options);
        }
        while !bytes.is_empty() {
            let (rest, option) = TcpOption::parse(bytes).ok()?;
            match option {
                TcpOption::EndOfList => break,
                TcpOption::MaxSegmentSize(mss) => options.mss = Some(mss),
                TcpOption::WindowScale(scale) => options.scale = Some(scale),
                TcpOption::SackPermitted => options.sack_permitted = true,
                TcpOption::SackRange(ranges) => {
                    options.sack = ranges.map(|range| range.map(|(from, to)| (Seq(from), Seq(to))));
                }
                TcpOption::TimeStamp { tsval, tsecr } => {
                    options.timestamps = Some(Timestamps { value: tsval, echo: tsecr });
                }
                TcpOption::NoOperation | TcpOption::Unknown { .. } => {}
            }
            bytes = rest;
        }
        Some(options)
    }

    fn sack_option(&self) -> Option<TcpOption<'static>> {
        let ranges = self.sack.map(|range| range.map(|(from, to)| (from.0, to.0)));
        self.sack[0].map(|_| TcpOption::SackRange(ranges))
    }

    /// Bytes that they take in a header, padding included.
    pub fn len(&self) -> usize {
        let sum = usize::from(self.mss.is_some()) * 4
            + usize::from(self.scale.is_some()) * 4
            + usize::from(self.sack_permitted) * 4
            + usize::from(self.timestamps.is_some()) * STAMPS;
        // Nearly always nothing was received too early.
        let Some(_) = self.sack[0] else { return sum };
        sum + self.sack_option().map_or(0, |option| 2 + option.buffer_len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes them into `bytes`, which is [`Options::len`] long.
    fn emit(&self, bytes: &mut [u8]) {
        // Nearly always timestamps are all there is.
        if let (Some(stamps), Some(bytes)) = (self.timestamps, bytes.as_mut_array::<12>()) {
            bytes[..4].copy_from_slice(&TIMESTAMPS_ALIGNED);
            bytes[4..8].copy_from_slice(&stamps.value.to_be_bytes());
            bytes[8..].copy_from_slice(&stamps.echo.to_be_bytes());
            return;
        }
        // What is left between them are no-operations.
        bytes.fill(1);
        let mut at = 0;
        let mut put = |lead: usize, option: TcpOption<'_>| {
            option.emit(&mut bytes[at + lead..]);
            at += lead + option.buffer_len();
        };
        if let Some(mss) = self.mss {
            put(0, TcpOption::MaxSegmentSize(mss));
        }
        if let Some(scale) = self.scale {
            put(1, TcpOption::WindowScale(scale));
        }
        if self.sack_permitted {
            put(2, TcpOption::SackPermitted);
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            put(2, TcpOption::TimeStamp { tsval: value, tsecr: echo });
        }
        if let Some(option) = self.sack_option() {
            put(2, option);
        }
    }
}

/// A segment's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of the first byte, or of SYN.
    pub seq: Seq,
    /// The next byte expected, if ACK is set.
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Window, not yet scaled.
    pub window: u16,
    /// Options.
    pub options: Options,
    /// Bytes of payload.
    pub len: u32,
}

/// Ports in front of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Where it comes from.
    pub from: u16,
    /// Where it goes to.
    pub to: u16,
}

/// Bytes of a TCP header without options.
pub const HEADER_LEN: usize = 20;

impl Segment {
    /// The header at the start of `bytes` of a segment of `total` bytes, and how long the header is; `None`
    /// if it is malformed.
    pub fn parse(bytes: &[u8], total: usize) -> Option<(Ports, Segment, usize)> {
        let packet = TcpPacket::new_unchecked(bytes.get(..bytes.len().min(total))?);
        if bytes.len() < HEADER_LEN || total < HEADER_LEN {
            return None;
        }
        let header_len = usize::from(packet.header_len());
        if header_len < HEADER_LEN || header_len > bytes.len().min(total) {
            return None;
        }
        let segment = Segment {
            seq: Seq(be32(bytes, 4)),
            ack: Seq(be32(bytes, 8)),
            flags: Flags(bytes[13] & 0x1f),
            window: packet.window_len(),
            options: Options::parse(&bytes[HEADER_LEN..header_len])?,
            len: (total - header_len) as u32,
        };
        Some((Ports { from: packet.src_port(), to: packet.dst_port() }, segment, header_len))
    }

    /// Ports and flags of the header at the start of `bytes`: what tells which flow it is for.
    pub fn glance(bytes: &[u8]) -> Option<(Ports, Flags)> {
        let bytes: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        Some((Ports { from: port(0), to: port(2) }, Flags(bytes[13] & 0x1f)))
    }

    /// Bytes of the header.
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Writes the header, without checksum, into `bytes`, which is [`Segment::header_len`] zeroes long.
    pub fn emit(&self, ports: Ports, bytes: &mut [u8]) {
        let words = (bytes.len() / 4) as u8;
        let (fixed, options) = bytes.split_first_chunk_mut::<HEADER_LEN>().expect("a header has 20 bytes");
        fixed[..2].copy_from_slice(&ports.from.to_be_bytes());
        fixed[2..4].copy_from_slice(&ports.to.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        [fixed[12], fixed[13]] = [words << 4, self.flags.0];
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        if !options.is_empty() {
            self.options.emit(options);
        }
    }

    /// Sequence numbers that it takes: its bytes, SYN and FIN.
    pub fn sequence_len(&self) -> u32 {
        self.len + u32::from(self.flags.any(Flags::SYN)) + u32::from(self.flags.any(Flags::FIN))
    }

    /// The sequence number after its last.
    pub fn end(&self) -> Seq {
        self.seq + self.sequence_len()
    }

    /// What answers a segment that belongs to no connection (RFC 9293 section 3.10.7.1); nothing answers a
    /// reset.
    pub fn refusal(&self) -> Option<Segment> {
        if self.flags.any(Flags::RST) {
            None
        } else if self.flags.any(Flags::ACK) {
            Some(Segment { seq: self.ack, flags: Flags::RST, ..Segment::default() })
        } else {
            Some(Segment { ack: self.end(), flags: Flags::RST | Flags::ACK, ..Segment::default() })
        }
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const PORTS: Ports = Ports { from: 4000, to: 80 };

    fn emitted(segment: Segment) -> Vec<u8> {
        let mut bytes = vec![0; segment.header_len()];
        segment.emit(PORTS, &mut bytes);
        bytes
    }

    fn range() -> impl Strategy<Value = (Seq, Seq)> {
        (any::<u32>(), any::<u32>()).prop_map(|(from, to)| (Seq(from), Seq(to)))
    }

    fn options() -> impl Strategy<Value = Options> {
        let stamps = (any::<u32>(), any::<u32>()).prop_map(|(value, echo)| Timestamps { value, echo });
        let stamps = proptest::option::of(stamps);
        let syn = (any::<u16>(), 0u8..=14, any::<bool>(), stamps.clone()).prop_map(
            |(mss, scale, sack, timestamps)| Options {
                mss: Some(mss),
                scale: Some(scale),
                sack_permitted: sack,
                timestamps,
                ..Options::default()
            },
        );
        let later = (proptest::collection::vec(range(), 0..=3), stamps).prop_map(|(ranges, timestamps)| {
            let sack = core::array::from_fn(|index| ranges.get(index).copied());
            Options { sack, timestamps, ..Options::default() }
        });
        prop_oneof![syn, later]
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed_again(
            (seq, ack, bits, window) in (any::<u32>(), any::<u32>(), 0u8..32, any::<u16>()),
            options in options(),
            len in 0u32..2000,
        ) {
            let segment = Segment { seq: Seq(seq), ack: Seq(ack), flags: Flags(bits), window, options, len };
            let bytes = emitted(segment);
            prop_assert_eq!(bytes.len() % 4, 0);
            let parsed = Segment::parse(&bytes, bytes.len() + len as usize);
            prop_assert_eq!(parsed, Some((PORTS, segment, bytes.len())));
        }

        #[test]
        fn no_bytes_make_the_parser_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            total in 0usize..100,
        ) {
            let mut bytes = bytes;
            if let Some((_, segment, len)) = Segment::parse(&bytes, total) {
                prop_assert!(len <= bytes.len() && len + segment.len as usize == total);
            }
            // Nearly all random headers fail early: make one that gets to its options.
            if let Some(offset) = bytes.get_mut(12) {
                *offset = 0xf0;
                Segment::parse(&bytes, total);
            }
        }
    }

    #[test]
    fn only_what_is_no_reset_is_refused() {
        let syn = Segment { seq: Seq(7), flags: Flags::SYN, len: 3, ..Segment::default() };
        let refusal = syn.refusal().unwrap();
        assert_eq!((refusal.seq, refusal.ack, refusal.flags), (Seq(0), Seq(11), Flags::RST | Flags::ACK));
        let ack = Segment { ack: Seq(9), flags: Flags::ACK, ..Segment::default() };
        assert_eq!(ack.refusal().map(|refusal| (refusal.seq, refusal.flags)), Some((Seq(9), Flags::RST)));
        assert_eq!(Segment { flags: Flags::RST, ..syn }.refusal(), None);
    }
}
