//! What is behind the names in `/dev`.

use super::node::OpenNode;
use super::open::Stream;
use super::ready::Events;
use core::cell::RefCell;
use nom_app::port::world::Entropy as _;
use nom_fs::{CONSOLE, Errno, FULL, NULL, NodeId, NodeType, RANDOM, URANDOM, ZERO};
use nom_sys::port::Entropy;

/// What a device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    /// Takes everything, has nothing.
    Null,
    /// Has zeros.
    Zero,
    /// Has zeros, takes nothing.
    Full,
    /// Has random bytes.
    Random,
    /// The machine's console, from which nothing comes.
    Console,
}

impl DeviceKind {
    /// The device of a number.
    ///
    /// # Errors
    /// `ENXIO` if there is none.
    pub fn of_number(number: u64) -> Result<DeviceKind, Errno> {
        match number {
            NULL => Ok(DeviceKind::Null),
            ZERO => Ok(DeviceKind::Zero),
            FULL => Ok(DeviceKind::Full),
            RANDOM | URANDOM => Ok(DeviceKind::Random),
            CONSOLE => Ok(DeviceKind::Console),
            _ => Err(Errno::ENXIO),
        }
    }
}

/// A device that is open.
pub(crate) struct Device {
    kind: DeviceKind,
    /// What it was opened as, which stays though its name goes.
    opened: Option<OpenNode>,
    entropy: RefCell<Entropy>,
}

impl Device {
    /// One that was opened by a name, or not.
    pub fn new(kind: DeviceKind, opened: Option<OpenNode>) -> Device {
        Device { kind, opened, entropy: RefCell::new(Entropy::new()) }
    }
}

impl Stream for Device {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        match self.kind {
            DeviceKind::Null | DeviceKind::Console => return Ok(0),
            DeviceKind::Zero | DeviceKind::Full => target.fill(0),
            DeviceKind::Random => self.entropy.borrow_mut().fill(target),
        }
        Ok(target.len())
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.kind {
            DeviceKind::Full => return Err(Errno::ENOSPC),
            DeviceKind::Console => nom_sys::console::write(bytes),
            DeviceKind::Null | DeviceKind::Zero | DeviceKind::Random => {}
        }
        Ok(bytes.len())
    }

    fn ready(&self) -> Events {
        Events::ALWAYS
    }

    fn kind(&self) -> NodeType {
        NodeType::Character
    }

    fn takes_offsets(&self) -> bool {
        self.kind != DeviceKind::Console
    }

    fn is_zeros(&self) -> bool {
        self.kind == DeviceKind::Zero
    }

    fn node(&self) -> Option<NodeId> {
        self.opened.as_ref().map(|opened| opened.node)
    }
}
