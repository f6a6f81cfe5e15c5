//! Why a device cannot be used.

use core::fmt;
use nom_port::device::Refused;

/// Why a device cannot be used, or did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The PCI function is another device: its vendor and device identifier.
    OtherDevice(u32),
    /// It has no usable virtio structure of this name (section 4.1.4).
    NoCapability(&'static str),
    /// It offers no modern interface (section 6: VIRTIO_F_VERSION_1).
    NotModern,
    /// It refuses the features with these bits, which it offered (section 3.1.1, step 5).
    FeaturesRefused(u64),
    /// It never left the reset (section 4.1.4.3.2).
    NoReset,
    /// It has no queue of this number.
    NoQueue(u16),
    /// It has no interrupt vector for the queue of this number.
    NoVector(u16),
    /// It says that it has that many queue pairs, which no device can have (section 5.1.4.1).
    BadPairs(u16),
    /// It has met an error from which only a reset helps (section 2.1.2: DEVICE_NEEDS_RESET).
    NeedsReset,
    /// It used what it was not lent, or more than it was lent (section 2.7.8).
    BrokeRules,
    /// It broke again and again: as often within a minute as is put up with.
    BrokeOften(usize),
    /// Memory for devices is exhausted.
    OutOfMemory,
    /// Its configuration changed whenever it was read.
    Unsettled,
    /// It did not answer a command in time: class and command (section 5.1.6.5).
    NoAnswer(u8, u8),
    /// It refused a command: class and command.
    CommandRefused(u8, u8),
    /// The command needs a feature that was not negotiated; its name.
    NotOffered(&'static str),
    /// The world refused.
    World(Refused),
}

/// The result of an operation on a device.
pub type Result<T> = core::result::Result<T, Error>;

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        Error::World(refused)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::OtherDevice(id) => write!(out, "{:04x}:{:04x} is another device", id & 0xffff, id >> 16),
            Error::NoCapability(name) => write!(out, "the device has no usable {name} structure"),
            Error::NotModern => out.write_str("the device has no modern virtio interface"),
            Error::FeaturesRefused(bits) => write!(out, "the device refuses the features {bits:#x}"),
            Error::NoReset => out.write_str("the device does not come out of its reset"),
            Error::NoQueue(queue) => write!(out, "the device has no queue {queue}"),
            Error::NoVector(queue) => write!(out, "the device has no interrupt vector for queue {queue}"),
            Error::BadPairs(pairs) => {
                write!(out, "the device says it has {pairs} queue pairs: expected 1 to 32767")
            }
            Error::NeedsReset => out.write_str("the device says that only a reset helps"),
            Error::BrokeRules => out.write_str("the device uses buffers that it was not given"),
            Error::BrokeOften(times) => write!(out, "the device broke {times} times in a minute"),
            Error::OutOfMemory => out.write_str("there is no memory left for the device"),
            Error::Unsettled => out.write_str("the device's configuration does not settle"),
            Error::NoAnswer(class, command) => {
                write!(out, "the device does not answer command {class}.{command}")
            }
            Error::CommandRefused(class, command) => {
                write!(out, "the device refuses command {class}.{command}")
            }
            Error::NotOffered(feature) => write!(out, "the device does not offer {feature}"),
            Error::World(refused) => refused.fmt(out),
        }
    }
}

impl core::error::Error for Error {}
