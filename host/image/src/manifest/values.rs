//! The values that a manifest's fields take: each type knows its range and says what it expects.

use super::{Port, Protocol};
use nom_abi::layout::{CHANNEL_STRIDE, CORES_MAX};
use nom_abi::memory::FRAME_BYTES;
use nom_abi::syscall::Syscall;
use nom_economy::controller::BatchingDelays;
use nom_service::AddressPrefix;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::str::FromStr;

/// Longest name, in bytes: the board holds 32 with at least one zero behind it.
pub(super) const NAME_BYTES_MAX: usize = 31;
/// Largest share weight.
pub(super) const WEIGHT_MAX: u32 = 10_000;
/// PCI class code of Ethernet controllers.
pub(super) const NETWORK_CLASS: u32 = 0x02_0000;

/// A value written as one TOML string or integer.
pub(super) trait Scalar: Sized {
    /// What the value must be, for error messages.
    const EXPECTED: &'static str;

    fn from_integer(_: i64) -> Option<Self> {
        None
    }

    fn from_text(_: &str) -> Option<Self> {
        None
    }
}

struct ScalarVisitor<T>(PhantomData<T>);

impl<T: Scalar> Visitor<'_> for ScalarVisitor<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(T::EXPECTED)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        T::from_integer(value).ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<T, E> {
        T::from_text(value).ok_or_else(|| E::invalid_value(Unexpected::Str(value), &self))
    }
}

macro_rules! scalars {
    ($($type:ty),+) => {
        $(impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(ScalarVisitor(PhantomData))
            }
        })+
    };
}
scalars!(
    Name, CallBit, Text, Clients, Count, Micros, Service, Variable, Cores, Weight, Size, RegionSize, Class,
    PciId, Port
);

/// Name of an application.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(pub String);

impl Scalar for Name {
    const EXPECTED: &'static str = "a name of 1 to 31 ASCII letters, digits, `-`, `_` or `.`";

    fn from_text(text: &str) -> Option<Self> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        ((1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(legal)).then(|| Name(text.to_owned()))
    }
}

/// A system call, as the bit of its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallBit(pub u32);

impl Scalar for CallBit {
    const EXPECTED: &'static str = "the name of a system call in docs/abi.md";

    fn from_text(text: &str) -> Option<Self> {
        let call = Syscall::ALL.iter().find(|call| call.name == text)?;
        Some(CallBit(1 << call.call as u32))
    }
}

/// A string that can end with a zero byte: an argument or the value of an environment variable.
#[derive(Clone, Debug)]
pub(super) struct Text(pub String);

impl Scalar for Text {
    const EXPECTED: &'static str = "a string without zero bytes";

    fn from_text(text: &str) -> Option<Self> {
        (!text.contains('\0')).then(|| Text(text.to_owned()))
    }
}

/// A port at which an application serves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service(pub u16);

impl Scalar for Service {
    const EXPECTED: &'static str = "a whole number from 1 to 65535";

    fn from_integer(value: i64) -> Option<Self> {
        u16::try_from(value).ok().filter(|port| *port > 0).map(Service)
    }
}

/// A number of something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count(pub NonZeroU32);

impl Scalar for Count {
    const EXPECTED: &'static str = "a whole number from 1 to 4294967295";

    fn from_integer(value: i64) -> Option<Self> {
        u32::try_from(value).ok().and_then(NonZeroU32::new).map(Count)
    }
}

/// A batching delay, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Micros(pub u32);

impl Scalar for Micros {
    const EXPECTED: &'static str = "a whole number from 0 to 10000";

    fn from_integer(value: i64) -> Option<Self> {
        u32::try_from(value).ok().filter(|micros| *micros <= BatchingDelays::MAX_MICROS).map(Micros)
    }
}

/// Addresses of clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clients(pub AddressPrefix);

impl Scalar for Clients {
    const EXPECTED: &'static str =
        "an address such as \"10.0.0.7\", or a prefix such as \"10.0.0.0/8\" or \"2001:db8::/32\"";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok().map(Clients)
    }
}

/// Name of an environment variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Variable(pub String);

impl Scalar for Variable {
    const EXPECTED: &'static str = "the name of an environment variable, without `=` and zero bytes";

    fn from_text(text: &str) -> Option<Self> {
        (!text.is_empty() && !text.contains(['=', '\0'])).then(|| Variable(text.to_owned()))
    }
}

/// Most cores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cores(pub u32);

impl Scalar for Cores {
    const EXPECTED: &'static str = "a whole number from 1 to 64";

    fn from_integer(value: i64) -> Option<Self> {
        bounded(value, 1, CORES_MAX as u32).map(Cores)
    }
}

/// Share weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weight(pub u32);

impl Scalar for Weight {
    const EXPECTED: &'static str = "a whole number from 1 to 10000";

    fn from_integer(value: i64) -> Option<Self> {
        bounded(value, 1, WEIGHT_MAX).map(Weight)
    }
}

/// Bytes of memory, whole pages, at most what the kernel can map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size(pub u64);

/// Most memory that a machine can have: the kernel's direct map.
pub(super) const MEMORY_BYTES_MAX: u64 = 64 << 40;

impl Scalar for Size {
    const EXPECTED: &'static str = "a size such as \"64MiB\" (KiB, MiB, GiB or a number of bytes), \
         a multiple of 4096, at most 64 TiB";

    fn from_integer(value: i64) -> Option<Self> {
        whole_pages(u64::try_from(value).ok()?, MEMORY_BYTES_MAX).map(Size)
    }

    fn from_text(text: &str) -> Option<Self> {
        whole_pages(parse_size(text)?, MEMORY_BYTES_MAX).map(Size)
    }
}

/// Bytes of a stack or a channel, which are there from the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionSize(pub u64);

impl Scalar for RegionSize {
    const EXPECTED: &'static str = "a size such as \"64KiB\" (KiB, MiB, GiB or a number of bytes), \
         a multiple of 4096, at most 1 GiB";

    fn from_integer(value: i64) -> Option<Self> {
        whole_pages(u64::try_from(value).ok()?, CHANNEL_STRIDE).map(RegionSize)
    }

    fn from_text(text: &str) -> Option<Self> {
        whole_pages(parse_size(text)?, CHANNEL_STRIDE).map(RegionSize)
    }
}

/// What kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The virtio entropy device, whose PCI class says nothing.
    Entropy,
    /// A PCI class code.
    Code(u32),
}

impl Scalar for Class {
    const EXPECTED: &'static str =
        "\"network\", \"entropy\" or a PCI class code from 0x000000 to 0xfffffe (base, sub, interface)";

    fn from_integer(value: i64) -> Option<Self> {
        bounded(value, 0, 0xff_fffe).map(Class::Code)
    }

    fn from_text(text: &str) -> Option<Self> {
        match text {
            "network" => Some(Class::Code(NETWORK_CLASS)),
            "entropy" => Some(Class::Entropy),
            _ => None,
        }
    }
}

/// PCI vendor or device identifier.
#[derive(Clone, Copy, Debug)]
pub(super) struct PciId(pub u16);

impl Scalar for PciId {
    const EXPECTED: &'static str = "a PCI identifier from 0x0000 to 0xfffe";

    fn from_integer(value: i64) -> Option<Self> {
        bounded(value, 0, 0xfffe).map(|id| PciId(id as u16))
    }
}

impl Scalar for Port {
    const EXPECTED: &'static str = "[ADDRESS:]HOST:GUEST[/udp] with ports from 1 to 65535";

    fn from_text(text: &str) -> Option<Self> {
        let (text, protocol) = match text.rsplit_once('/') {
            None => (text, Protocol::Tcp),
            Some((text, "tcp")) => (text, Protocol::Tcp),
            Some((text, "udp")) => (text, Protocol::Udp),
            Some(_) => return None,
        };
        let (host, guest) = text.rsplit_once(':')?;
        let (address, host) = match host.rsplit_once(':') {
            None => (None, host),
            Some((address, host)) => {
                let address = address.strip_prefix('[').and_then(|a| a.strip_suffix(']')).unwrap_or(address);
                (Some(address.parse().ok()?), host)
            }
        };
        Some(Port { address, host: port_number(host)?, guest: port_number(guest)?, protocol })
    }
}

impl FromStr for Port {
    type Err = String;

    /// Reads `[ADDRESS:]HOST:GUEST[/udp]`; the error says what was expected.
    fn from_str(text: &str) -> Result<Port, String> {
        Port::from_text(text).ok_or_else(|| format!("`{text}`: expected {}", Port::EXPECTED))
    }
}

impl fmt::Display for Port {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(std::net::IpAddr::V6(address)) => write!(out, "[{address}]:")?,
            Some(address) => write!(out, "{address}:")?,
            None => {}
        }
        write!(out, "{}:{}", self.host, self.guest)?;
        if self.protocol == Protocol::Udp { out.write_str("/udp") } else { Ok(()) }
    }
}

/// Bytes of a size such as `64MiB`, `4KiB`, `1GiB`, `65536`, or `64M` as on the command line; `None` if it is
/// no size.
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        _ => return None,
    };
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { digits.parse::<u64>().ok()?.checked_mul(unit) } else { None }
}

fn bounded(value: i64, low: u32, high: u32) -> Option<u32> {
    u32::try_from(value).ok().filter(|value| (low..=high).contains(value))
}

fn whole_pages(bytes: u64, most: u64) -> Option<u64> {
    (bytes > 0 && bytes <= most && bytes.is_multiple_of(FRAME_BYTES)).then_some(bytes)
}

fn port_number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|&port| port != 0 && !text.starts_with('+'))
}
