//! Native PCI Express hot-plug: devices that come and go behind ports.
//!
//! Source: PCI Express Base Specification 5.0, section 6.7 and 7.5.3.9 to 7.5.3.11.
//!
//! ```text
//!            presence            settled, enumerated             attention button
//!  Empty ---------------> Settling ----------------> Occupied --------------------> Leaving
//!    ^                                     [Arrived]     |      [RemovalRequested]     |
//!    |                        presence lost              |                             | eject
//!    +---------------------------------------------------+----------- Off <------------+
//!                                 [Left]
//! ```

use crate::machine::Registers;
use crate::msix::Message;
use crate::pci::Pci;

/// What happened behind a port. `devices` has one bit for each index on the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// These devices are new on the board, switched off.
    Arrived {
        /// Indices on the board.
        devices: u64,
    },
    /// Somebody wants to take these devices out: tell their owners, release them, then call
    /// [`Pci::eject`].
    RemovalRequested {
        /// Indices on the board.
        devices: u64,
    },
    /// These devices are gone; their entries are free already. Their owners lose them now, if they have
    /// not let go before.
    Left {
        /// Indices on the board.
        devices: u64,
    },
}

/// A port's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    state: State,
    since_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing can be plugged here.
    Fixed,
    Empty,
    Settling,
    Occupied,
    Leaving,
    Off,
}

impl Slot {
    /// No slot.
    pub const FIXED: Slot = Slot {
        state: State::Fixed,
        since_ns: 0,
    };
}

impl Pci {
    /// Whether any port can see devices come and go.
    pub fn has_slots(&self) -> bool {
        unimplemented!()
    }

    /// Makes every port with a slot send `message` when something happens there. Call
    /// [`Pci::next_event`] afterwards, and at each such interrupt.
    pub fn enable_hotplug(&mut self, registers: &mut impl Registers, message: Message) {
        let _ = (registers, message);
        unimplemented!()
    }

    /// The next thing that happened behind any port; call again until `None`, at each interrupt and when
    /// [`Pci::deadline_ns`] has passed.
    pub fn next_event(&mut self, registers: &mut impl Registers) -> Option<Event> {
        let _ = registers;
        unimplemented!()
    }

    /// Board time at which [`Pci::next_event`] must be called though no interrupt came; all ones: never.
    pub fn deadline_ns(&self) -> u64 {
        unimplemented!()
    }

    /// Lets a device go whose removal was requested: switches off the power of its slot, once all
    /// functions behind the port are ejected. Does nothing if no removal was requested.
    pub fn eject(&mut self, registers: &mut impl Registers, index: usize) {
        let _ = (registers, index);
        unimplemented!()
    }
}
