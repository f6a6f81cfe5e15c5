//! IPv6 extension headers (RFC 8200 section 4): walked one after the other, in a loop that ends.
//!
//! Nothing that they ask for is spoken but padding and the router's alert; what is not known is skipped or
//! refused as its sender says.

use crate::frame::{Drop, ETHERNET, Packet, protocol};
use core::net::IpAddr;

/// Headers of one packet that are looked at; who sends more wants work, not an answer (RFC 8504 section 5.3).
const HEADERS_MAX: usize = 8;
/// Where in an IPv6 header the next header is named.
const NEXT_HEADER: usize = 6;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;

const REFUSED: Drop = |counters| &mut counters.dropped_extension;
const MALFORMED: Drop = |counters| &mut counters.dropped_malformed;

/// What is behind a packet's extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// A protocol that the stack speaks.
    Upper(Packet),
    /// The header of a fragment, at the start of this packet.
    Fragment(Packet),
    /// The headers are longer than what is there.
    Cut,
    /// What its sender is to be told.
    Problem(Problem),
}

/// An ICMPv6 parameter problem (RFC 4443 section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// 0: a field is wrong; 1: a header is not known; 2: an option is not known; 3: the headers are cut.
    pub code: u8,
    /// Where in the packet, from the IPv6 header.
    pub pointer: u32,
}

/// Goes through the extension headers of `packet`, which stands in the frame `bytes`.
///
/// # Errors
/// Why the frame is to be dropped in silence.
pub fn walk(bytes: &[u8], packet: Packet) -> Result<Walk, Drop> {
    let end = bytes.len().min(packet.start + packet.len);
    let (mut at, mut next, mut named_at) = (packet.start, packet.protocol, NEXT_HEADER);
    let mut problem = None;
    for number in 0..=HEADERS_MAX {
        let here = Packet { protocol: next, start: at, len: packet.start + packet.len - at, ..packet };
        match next {
            protocol::TCP | protocol::UDP | protocol::ICMPV6 => return upper(bytes, here, problem),
            protocol::FRAGMENT => return Ok(problem.map_or(Walk::Fragment(here), Walk::Problem)),
            HOP_BY_HOP if number == 0 => {}
            ROUTING | DESTINATION => {}
            // No next header: the end.
            59 => return problem.map(Walk::Problem).ok_or(REFUSED),
            _ => return Ok(Walk::Problem(problem.unwrap_or(complain(1, named_at)))),
        }
        let Some(header) = bytes.get(at..end).and_then(whole) else { return Ok(Walk::Cut) };
        let place = at - ETHERNET;
        let found = if next == ROUTING { route(header, place) } else { options(header, place, packet.to)? };
        problem = problem.or(found);
        (next, named_at, at) = (header[0], place, at + header.len());
    }
    Err(REFUSED)
}

/// One header, as long as it says.
fn whole(rest: &[u8]) -> Option<&[u8]> {
    rest.get(..8 * (1 + usize::from(*rest.get(1)?)))
}

fn complain(code: u8, pointer: usize) -> Problem {
    Problem { code, pointer: pointer as u32 }
}

/// An error is never the answer to an error (RFC 4443 section 2.4 (e.1)).
fn upper(bytes: &[u8], packet: Packet, problem: Option<Problem>) -> Result<Walk, Drop> {
    let kind = bytes.get(packet.start);
    match problem {
        None => Ok(Walk::Upper(packet)),
        Some(_) if packet.protocol == protocol::ICMPV6 && kind.is_none_or(|kind| *kind < 128) => Err(REFUSED),
        Some(problem) => Ok(Walk::Problem(problem)),
    }
}

/// A way that the packet has gone to its end means nothing more; no other is taken (section 4.4, RFC 5095).
fn route(header: &[u8], place: usize) -> Option<Problem> {
    (header[3] != 0).then(|| complain(0, place + 2))
}

/// Goes through options (section 4.2): what the highest bits of one that is not known say is done.
fn options(header: &[u8], place: usize, to: IpAddr) -> Result<Option<Problem>, Drop> {
    const PAD_ONE: u8 = 0;
    const PAD: u8 = 1;
    const ROUTER_ALERT: u8 = 5;
    let mut at = 2;
    while at < header.len() {
        let kind = header[at];
        if kind == PAD_ONE {
            at += 1;
            continue;
        }
        let len = usize::from(*header.get(at + 1).ok_or(MALFORMED)?);
        if at + 2 + len > header.len() {
            return Err(MALFORMED);
        }
        let is_known = matches!(kind, PAD | ROUTER_ALERT);
        match kind >> 6 {
            1 if !is_known => return Err(REFUSED),
            3 if to.is_multicast() => return Err(REFUSED),
            2 | 3 => return Ok(Some(complain(2, place + at))),
            _ => at += 2 + len,
        }
    }
    Ok(None)
}

/// Whether the first fragment of a packet holds all its headers, as it must (section 4.5, RFC 7112).
pub fn has_all_headers(bytes: &[u8], fragment: Packet) -> bool {
    match walk(bytes, fragment) {
        Ok(Walk::Upper(packet)) => {
            let least = match packet.protocol {
                protocol::TCP => 20,
                _ => 8,
            };
            packet.len >= least
        }
        Ok(Walk::Cut) => false,
        // Whatever else is wrong is said when the packet is whole.
        _ => true,
    }
}

/// Where in the packet an IPv6 header says how long it is: what a fragment of a strange length is told.
pub const PAYLOAD_LENGTH: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::IPV6;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// A frame whose IPv6 payload is `rest`, and its packet.
    fn packet(next: u8, rest: &[u8]) -> (Vec<u8>, Packet) {
        let (from, to) =
            (IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 2]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]));
        let (start, len) = (ETHERNET + IPV6, rest.len());
        let bytes = [&[0; ETHERNET + IPV6][..], rest].concat();
        (bytes, Packet { from, to, protocol: next, start, len, hops: 64 })
    }

    fn walked(next: u8, rest: &[u8]) -> Option<Walk> {
        let (bytes, packet) = packet(next, rest);
        walk(&bytes, packet).ok()
    }

    fn problem(code: u8, pointer: u32) -> Option<Walk> {
        Some(Walk::Problem(Problem { code, pointer }))
    }

    #[test]
    fn known_headers_are_skipped_in_order() {
        let mut rest = vec![DESTINATION, 0, 5, 2, 0, 0, 1, 0]; // hop by hop: the router's alert, padding
        rest.extend([ROUTING, 0, 1, 4, 0, 0, 0, 0]); // destination options: padding
        rest.extend([protocol::UDP, 0, 0, 0, 0, 0, 0, 0]); // a way that has come to its end
        rest.extend([0; 12]);
        let Some(Walk::Upper(upper)) = walked(HOP_BY_HOP, &rest) else { panic!("refused") };
        assert_eq!((upper.protocol, upper.start, upper.len), (protocol::UDP, ETHERNET + IPV6 + 24, 12));
        rest[16] = protocol::FRAGMENT;
        assert!(matches!(walked(HOP_BY_HOP, &rest), Some(Walk::Fragment(at)) if at.len == 12));
        assert_eq!(walked(HOP_BY_HOP, &rest[..20]), Some(Walk::Cut));
    }

    #[test]
    fn what_is_not_known_is_refused_as_it_says() {
        let option = |kind| [protocol::UDP, 0, kind, 4, 0, 0, 0, 0];
        assert!(matches!(walked(DESTINATION, &option(0x1e)), Some(Walk::Upper(_))), "skipped");
        assert_eq!(walked(DESTINATION, &option(0x5e)), None, "dropped in silence");
        assert_eq!(walked(DESTINATION, &option(0x9e)), problem(2, 42));
        assert_eq!(walked(DESTINATION, &option(0xde)), problem(2, 42));
        let to_many = |kind| {
            let (bytes, packet) = packet(DESTINATION, &option(kind));
            walk(&bytes, Packet { to: [0xff02, 0, 0, 0, 0, 0, 0, 1].into(), ..packet }).ok()
        };
        assert_eq!(
            (to_many(0x9e), to_many(0xde)),
            (problem(2, 42), None),
            "the last is not for many to answer"
        );
        assert_eq!(walked(99, &[0; 8]), problem(1, 6));
        assert_eq!(
            walked(DESTINATION, &[HOP_BY_HOP, 0, 1, 4, 0, 0, 0, 0, 0, 0]),
            problem(1, 40),
            "only in front"
        );
        assert_eq!(walked(ROUTING, &[protocol::UDP, 0, 77, 1, 0, 0, 0, 0]), problem(0, 42), "a way to go on");
        assert_eq!(walked(59, &[]), None, "nothing follows");
        let error = [&[protocol::ICMPV6, 0, 0x9e, 4, 0, 0, 0, 0][..], &[1; 8]].concat();
        assert_eq!(walked(DESTINATION, &error), None, "no error answers an error");
        let many = [DESTINATION, 0, 1, 4, 0, 0, 0, 0].repeat(60);
        assert_eq!(walked(DESTINATION, &many), None, "without end");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            next: u8,
            rest in proptest::collection::vec(any::<u8>(), 0..120),
            claimed in 0usize..200,
        ) {
            let (bytes, packet) = packet(next, &rest);
            let packet = Packet { len: claimed, ..packet };
            let _ = (walk(&bytes, packet), has_all_headers(&bytes, packet));
        }
    }
}
