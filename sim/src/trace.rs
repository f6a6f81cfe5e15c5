//! What happened, as a number that tells two runs apart, and as lines that people read.

use nom_net::frame::{Packet, protocol};
use nom_net::tcp::segment::{Flags, Segment};
use siphasher::sip::SipHasher13;
use std::fmt::Write as _;
use std::hash::Hasher as _;
use std::io::{BufWriter, Stdout, Write as _};

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrived.
    Arrived,
    /// The network lost it.
    Lost,
    /// Its link was too slow, and the queue before it full.
    Crowded,
    /// It arrived, and the device had no room or memory for it.
    Overrun,
}

/// Listens to everything that happens.
#[derive(Debug)]
pub struct Trace {
    hash: SipHasher13,
    /// Where lines go as they come, so that they are there when a run fails.
    out: Option<BufWriter<Stdout>>,
}

impl Trace {
    /// A trace of nothing, which is printed if that is wanted.
    pub fn new(is_printed: bool) -> Trace {
        Trace {
            hash: SipHasher13::new_with_keys(0, 0),
            out: is_printed.then(|| BufWriter::new(std::io::stdout())),
        }
    }

    /// A frame from `from` to `to` meets its fate.
    pub fn frame(&mut self, now_ns: u64, from: &str, to: &str, fate: Fate, frame: &[u8]) {
        self.hash.write_u64(now_ns);
        self.hash.write(from.as_bytes());
        self.hash.write(to.as_bytes());
        self.hash.write_u8(fate as u8);
        self.hash.write(frame);
        if let Some(out) = &mut self.out {
            let what = match fate {
                Fate::Arrived => "",
                Fate::Lost => "  lost",
                Fate::Crowded => "  crowded out",
                Fate::Overrun => "  overrun",
            };
            let (second, nano) = (now_ns / 1_000_000_000, now_ns % 1_000_000_000);
            let written =
                writeln!(out, "{second:5}.{nano:09}  {from:>12} > {to:<12} {}{what}", describe(frame));
            if written.is_err() {
                // Nobody reads on.
                self.out = None;
            }
        }
    }

    /// The number so far.
    pub fn hash(&self) -> u64 {
        self.hash.finish()
    }
}

/// One line about a frame.
fn describe(frame: &[u8]) -> String {
    let ether_type = frame.get(12..14).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let packet = match ether_type {
        0x0800 => Packet::parse_v4(frame),
        0x86dd => Packet::parse_v6(frame),
        0x0806 => return format!("ARP {} bytes", frame.len()),
        other => return format!("type {other:#06x} {} bytes", frame.len()),
    };
    let Ok(packet) = packet else { return format!("malformed {} bytes", frame.len()) };
    let bytes = frame.get(packet.start..).unwrap_or_default();
    match packet.protocol {
        protocol::TCP => describe_segment(bytes, packet.len),
        protocol::UDP if bytes.len() >= 4 => {
            let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            format!("UDP {} > {} len {}", port(0), port(2), packet.len)
        }
        other => format!("protocol {other} len {}", packet.len),
    }
}

fn describe_segment(bytes: &[u8], len: usize) -> String {
    let Some((ports, segment, _)) = Segment::parse(bytes, len) else { return "TCP malformed".to_owned() };
    let mut line = format!("TCP {} > {} ", ports.from, ports.to);
    for (flag, letter) in
        [(Flags::SYN, 'S'), (Flags::FIN, 'F'), (Flags::RST, 'R'), (Flags::PSH, 'P'), (Flags::ACK, '.')]
    {
        if segment.flags.any(flag) {
            line.push(letter);
        }
    }
    let _ = write!(line, " seq {} len {}", segment.seq.0, segment.len);
    if segment.flags.any(Flags::ACK) {
        let _ = write!(line, " ack {}", segment.ack.0);
    }
    let _ = write!(line, " win {}", segment.window);
    line
}
