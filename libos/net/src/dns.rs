//! Questions and answers of the domain name system (RFC 1035, RFC 3596); the stack carries them by UDP.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use smoltcp::wire::{
    DnsFlags, DnsOpcode, DnsPacket, DnsQueryType, DnsQuestion, DnsRcode, DnsRecord, DnsRecordData, DnsRepr,
};

/// Where servers listen.
pub const SERVER_PORT: u16 = 53;

/// Which addresses are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4 (A records).
    V4,
    /// IPv6 (AAAA records).
    V6,
}

impl Family {
    fn kind(self) -> DnsQueryType {
        match self {
            Family::V4 => DnsQueryType::A,
            Family::V6 => DnsQueryType::Aaaa,
        }
    }
}

/// Why a name has no addresses for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// It is no name: labels have 1 to 63 bytes, all of it at most 253.
    BadName,
    /// Nobody is known who could be asked.
    NoServer,
    /// Too many questions are open, or no port is free for one.
    Full,
    /// There is no such name.
    NoSuchName,
    /// The server could not say.
    Failed,
    /// No server answered.
    TimedOut,
}

impl core::fmt::Display for ResolveError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            ResolveError::BadName => "no domain name: labels have 1 to 63 bytes, all of it at most 253",
            ResolveError::NoServer => "no name server is known",
            ResolveError::Full => "too many questions are open, or no port is free for one",
            ResolveError::NoSuchName => "there is no such name",
            ResolveError::Failed => "the name server could not say",
            ResolveError::TimedOut => "no name server answered",
        })
    }
}

impl core::error::Error for ResolveError {}

/// A name as it stands in messages.
///
/// # Errors
/// [`ResolveError::BadName`].
pub fn encode(name: &str) -> Result<Vec<u8>, ResolveError> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() || name.len() > 253 {
        return Err(ResolveError::BadName);
    }
    let mut bytes = Vec::with_capacity(name.len() + 2);
    for label in name.split('.') {
        if label.is_empty() || label.len() > 63 {
            return Err(ResolveError::BadName);
        }
        bytes.push(label.len() as u8);
        bytes.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
    }
    bytes.push(0);
    Ok(bytes)
}

/// The message that asks for the addresses of an encoded name.
pub fn question(transaction: u16, name: &[u8], family: Family) -> Vec<u8> {
    let question = DnsQuestion { name, type_: family.kind() };
    let flags = DnsFlags::RECURSION_DESIRED;
    let repr = DnsRepr { transaction_id: transaction, opcode: DnsOpcode::Query, flags, question };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut DnsPacket::new_unchecked(&mut bytes[..]));
    bytes
}

/// What a message says about an encoded name; `None` if it answers another question.
pub fn answer(
    bytes: &[u8],
    transaction: u16,
    name: &[u8],
    family: Family,
) -> Option<Result<Vec<IpAddr>, ResolveError>> {
    let packet = DnsPacket::new_checked(bytes).ok()?;
    let is_response = packet.flags().contains(DnsFlags::RESPONSE) && packet.opcode() == DnsOpcode::Query;
    if packet.transaction_id() != transaction || !is_response || packet.question_count() != 1 {
        return None;
    }
    let (rest, asked) = DnsQuestion::parse(packet.payload()).ok()?;
    if asked.type_ != family.kind() || canonical(&packet, asked.name)? != name {
        return None;
    }
    Some(match packet.rcode() {
        DnsRcode::NoError => {
            // A name whose addresses were cut off seems to have none.
            let is_whole = !packet.flags().contains(DnsFlags::TRUNCATED);
            let found = addresses(&packet, rest, name, family);
            found.filter(|found| is_whole || !found.is_empty()).ok_or(ResolveError::Failed)
        }
        DnsRcode::NXDomain => Err(ResolveError::NoSuchName),
        _ => Err(ResolveError::Failed),
    })
}

/// Addresses of `name` and of the names that it is another name for, in the order in which servers give them.
fn addresses(packet: &DnsPacket<&[u8]>, mut rest: &[u8], name: &[u8], family: Family) -> Option<Vec<IpAddr>> {
    let mut wanted = name.to_vec();
    let mut found = Vec::new();
    for _ in 0..packet.answer_record_count() {
        let (after, record) = DnsRecord::parse(rest).ok()?;
        rest = after;
        if canonical(packet, record.name)? != wanted {
            continue;
        }
        match (record.data, family) {
            (DnsRecordData::A(address), Family::V4) => found.push(address.into()),
            (DnsRecordData::Aaaa(address), Family::V6) => found.push(address.into()),
            (DnsRecordData::Cname(alias), _) => wanted = canonical(packet, alias)?,
            _ => {}
        }
    }
    Some(found)
}

/// A name without compression and in small letters; `None` if it is malformed.
fn canonical(packet: &DnsPacket<&[u8]>, name: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for label in packet.parse_name(name) {
        let label = label.ok()?;
        bytes.push(label.len() as u8);
        bytes.extend(label.iter().map(u8::to_ascii_lowercase));
        if bytes.len() > 255 {
            return None;
        }
    }
    bytes.push(0);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An answer: www.example.org is another name of a.example.org, which has two addresses.
    fn response(code: u8) -> Vec<u8> {
        let mut bytes = question(77, &encode("WWW.example.org.").unwrap(), Family::V4);
        bytes[2] |= 0x80;
        bytes[3] |= code;
        bytes[7] = 3;
        // Pointers: 12 is the name asked for, 16 is example.org in it.
        bytes.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 4, 1, b'a', 0xc0, 16]);
        for last in [1, 2] {
            bytes.extend([1, b'A', 0xc0, 16, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 10, 0, 0, last]);
        }
        bytes
    }

    #[test]
    fn other_names_are_followed() {
        let name = encode("www.Example.org").unwrap();
        let found = answer(&response(0), 77, &name, Family::V4);
        assert_eq!(found, Some(Ok(vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()])));
        assert_eq!(answer(&response(3), 77, &name, Family::V4), Some(Err(ResolveError::NoSuchName)));
        assert_eq!(answer(&response(2), 77, &name, Family::V4), Some(Err(ResolveError::Failed)));
    }

    #[test]
    fn a_truncated_answer_is_none_unless_it_has_addresses() {
        let name = encode("www.Example.org").unwrap();
        let mut bytes = response(0);
        bytes[2] |= 2;
        let found = answer(&bytes, 77, &name, Family::V4);
        assert_eq!(found, Some(Ok(vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()])));
        let mut empty = question(77, &name, Family::V4);
        empty[2] |= 0x80;
        assert_eq!(answer(&empty, 77, &name, Family::V4), Some(Ok(vec![])));
        empty[2] |= 2;
        assert_eq!(answer(&empty, 77, &name, Family::V4), Some(Err(ResolveError::Failed)));
    }

    #[test]
    fn what_answers_another_question_is_no_answer() {
        let name = encode("www.example.org").unwrap();
        assert_eq!(answer(&response(0), 78, &name, Family::V4), None);
        assert_eq!(answer(&response(0), 77, &name, Family::V6), None);
        assert_eq!(answer(&response(0), 77, &encode("example.org").unwrap(), Family::V4), None);
        assert_eq!(answer(&question(77, &name, Family::V4), 77, &name, Family::V4), None, "a question");
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = ["a"; 130].join(".");
        for bad in ["", ".", "a..b", &"x".repeat(64), &long] {
            assert_eq!(encode(bad), Err(ResolveError::BadName), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            (at, value, cut) in (0usize..80, any::<u8>(), 0usize..100),
            noise in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let name = encode("www.example.org").unwrap();
            let mut bytes = response(0);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            bytes.truncate(cut);
            answer(&bytes, 77, &name, Family::V4);
            answer(&noise, 77, &name, Family::V4);
        }
    }
}
