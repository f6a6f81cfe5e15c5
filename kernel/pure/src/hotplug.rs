//! Native PCI Express hot-plug: devices that come and go behind ports.
//!
//! The driver looks at levels (is a device present, is the button pressed) whenever it is called, so that
//! no event is lost however interrupts are merged. Source: PCI Express Base Specification 5.0, sections
//! 6.7 and 7.5.3.9 to 7.5.3.11.
//!
//! ```text
//!             presence: power on           settled: enumerate [Arrived]
//!   Empty ------------------------> Settling -----------------------> Occupied
//!     ^                                                               |      | button
//!     |                                            presence lost      |      | [RemovalRequested]
//!     |                                              [Left]           v      v
//!     +---------------------------- Vacated <----------------------- Empty  Leaving
//!       presence lost (or button)            all ejected: power off [Left]  |
//!                                         <---------------------------------+
//! ```

#[cfg(test)]
mod tests;

use crate::bars::Window;
use crate::machine::Registers;
use crate::msix::Message;
use crate::pci::{Address, Bus, Config, Ecam, Pci, Port};

/// What happened behind a port. One bit for each index on the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// These devices are new on the board, switched off.
    Arrived(u64),
    /// Somebody wants to take these devices out: tell their owners, release them, then [`Pci::eject`]
    /// each.
    RemovalRequested(u64),
    /// These devices are gone. Their entries stay, so that they can be taken from their owners and
    /// detached from their domains, until [`Pci::forget`], which comes before the next
    /// [`Pci::next_event`].
    Left(u64),
}

/// A port's slot; by default there is none, or one where nothing comes or goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    state: State,
    /// Board time at which a state that is to pass by itself does so, in nanoseconds.
    ready_ns: u64,
    /// Devices that are still to be ejected, one bit for each index on the board.
    leaving: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing can be plugged in or out.
    #[default]
    Fixed,
    /// No device is present.
    Empty,
    /// Power is on; the device is not ready to be configured.
    Settling,
    /// The devices are on the board.
    Occupied,
    /// Removal was requested and not every device is ejected.
    Leaving,
    /// Power was switched off; that the devices left is still to be reported.
    Unpowered,
    /// Power is off, and the device may still be physically present.
    Vacated,
}

/// Wait between power and configuration, in nanoseconds (6.6.1: 100 ms after the link is up).
const SETTLE_NS: u64 = 100_000_000;

/// Offsets in the PCI Express capability (7.5.3).
mod offset {
    pub const FLAGS: u16 = 0x02;
    pub const SLOT_CAPABILITIES: u16 = 0x14;
    pub const SLOT_CONTROL: u16 = 0x18;
    pub const SLOT_STATUS: u16 = 0x1a;
}

/// Slot control.
mod control {
    /// Events of button and presence, and their interrupt.
    pub const ENABLE: u16 = 1 << 0 | 1 << 3 | 1 << 5;
    pub const INDICATOR: u16 = 3 << 8;
    pub const INDICATOR_ON: u16 = 1 << 8;
    pub const INDICATOR_OFF: u16 = 3 << 8;
    pub const POWER_OFF: u16 = 1 << 10;
}

/// Slot status.
mod status {
    pub const BUTTON: u16 = 1 << 0;
    pub const PRESENCE_CHANGED: u16 = 1 << 3;
    pub const PRESENT: u16 = 1 << 6;
    /// Bits that are cleared by writing ones: all events.
    pub const EVENTS: u16 = 0x011f;
}

impl Slot {
    /// Whether nothing can be plugged in or out.
    pub fn is_fixed(&self) -> bool {
        self.state == State::Fixed
    }

    /// The slot of a port whose PCI Express capability is at `express`.
    pub(crate) fn of_port<R: Registers>(config: &mut Config<R>, express: u16) -> Slot {
        const HAS_SLOT: u16 = 1 << 8;
        const HOT_PLUG: u32 = 1 << 6;
        let can_hot_plug = express != 0
            && config.read16(express + offset::FLAGS) & HAS_SLOT != 0
            && config.read32(express + offset::SLOT_CAPABILITIES) & HOT_PLUG != 0;
        if !can_hot_plug {
            return Slot::default();
        }
        let present = config.read16(express + offset::SLOT_STATUS) & status::PRESENT != 0;
        Slot { state: if present { State::Occupied } else { State::Empty }, ..Slot::default() }
    }
}

impl Port {
    /// The slot's status; clears the events in `clear` that it shows. Only those that were read as set are
    /// cleared: another would be lost.
    fn take_status(&self, config: &mut Config<impl Registers>, clear: u16) -> u16 {
        let at = self.function.express + offset::SLOT_STATUS;
        let status = config.read16(at);
        config.write16(at, status & clear);
        status
    }

    /// Has the slot pass to a state, with power for a device that settles there, and none otherwise.
    fn pass(&mut self, ecam: &Ecam, registers: &mut impl Registers, state: State) {
        let is_on = state == State::Settling;
        self.slot.state = state;
        self.slot.ready_ns = registers.now_ns() + if is_on { SETTLE_NS } else { 0 };
        let config = &mut ecam.config(registers, self.function.address);
        let at = self.function.express + offset::SLOT_CONTROL;
        let others = config.read16(at) & !(control::POWER_OFF | control::INDICATOR);
        let power = if is_on { control::INDICATOR_ON } else { control::INDICATOR_OFF | control::POWER_OFF };
        config.write16(at, others | power);
    }
}

impl Pci {
    /// Makes every port with a slot send what `message` says for its number and address, when something
    /// happens there. Call [`Pci::next_event`] afterwards, and at each such interrupt, until it returns
    /// `None`.
    pub fn enable_hotplug<R: Registers>(
        &mut self,
        registers: &mut R,
        mut message: impl FnMut(&mut R, usize, Address) -> Option<Message>,
    ) {
        for (number, port) in self.ports.iter().enumerate().filter(|(_, port)| !port.slot.is_fixed()) {
            let Some(message) = message(registers, number, port.function.address) else { continue };
            let express = port.function.express;
            let config = &mut self.ecam.config(registers, port.function.address);
            // The port's interrupt message number (7.5.3.2).
            let number = config.read16(express + offset::FLAGS) >> 9 & 0x1f;
            port.function.signal_by(config, number, message);
            // Devices that were there at power-on may show as changes.
            port.take_status(config, status::EVENTS & !status::BUTTON);
            let before = config.read16(express + offset::SLOT_CONTROL);
            config.write16(express + offset::SLOT_CONTROL, before | control::ENABLE);
        }
    }

    /// The next thing that happened behind any port; call again until `None`, at each interrupt and when
    /// [`Pci::deadline_ns`] has passed.
    pub fn next_event(&mut self, registers: &mut impl Registers) -> Option<Event> {
        (0..self.ports.len()).find_map(|index| self.step(registers, index))
    }

    /// Board time at which [`Pci::next_event`] must be called though no interrupt came; all ones: never.
    pub fn deadline_ns(&self) -> u64 {
        let passing = |port: &&Port| matches!(port.slot.state, State::Settling | State::Unpowered);
        self.ports.iter().filter(passing).map(|port| port.slot.ready_ns).min().unwrap_or(u64::MAX)
    }

    /// Lets a device go whose removal was requested: switches off the power of its slot once every device
    /// behind the port is ejected. Does nothing if no removal was requested, so that it may follow every
    /// release.
    pub fn eject(&mut self, registers: &mut impl Registers, index: usize) {
        let mask = 1_u64.checked_shl(index as u32).unwrap_or(0);
        let is_leaving =
            |port: &&mut Port| port.slot.state == State::Leaving && port.slot.leaving & mask != 0;
        let Some(port) = self.ports.iter_mut().find(is_leaving) else { return };
        port.slot.leaving &= !mask;
        if port.slot.leaving == 0 {
            port.pass(&self.ecam, registers, State::Unpowered);
        }
    }

    /// Moves one port's slot as far as it goes without saying anything, or to the next event.
    fn step(&mut self, registers: &mut impl Registers, index: usize) -> Option<Event> {
        let mut port = self.ports[index];
        let mut event = None;
        while event.is_none() && !port.slot.is_fixed() {
            let before = port.slot.state;
            event = self.advance(registers, &mut port);
            if port.slot.state == before {
                break;
            }
        }
        self.ports[index] = port;
        event
    }

    /// One transition of the diagram above, if one is due.
    fn advance(&mut self, registers: &mut impl Registers, port: &mut Port) -> Option<Event> {
        let ecam = self.ecam;
        let status = port.take_status(
            &mut ecam.config(registers, port.function.address),
            match port.slot.state {
                // A press of the button while a device settles waits until it has.
                State::Settling => status::EVENTS & !status::BUTTON,
                // What comes after the power went off belongs to the next device.
                State::Unpowered => 0,
                _ => status::EVENTS,
            },
        );
        let (present, has) = (status & status::PRESENT != 0, |bits| status & bits != 0);
        match port.slot.state {
            State::Empty if present => port.pass(&ecam, registers, State::Settling),
            State::Settling if !present => port.pass(&ecam, registers, State::Empty),
            State::Settling if registers.now_ns() >= port.slot.ready_ns => {
                return self.arrive(registers, port);
            }
            State::Occupied | State::Leaving if !present || has(status::PRESENCE_CHANGED) => {
                // If another device took its place, that one keeps the power.
                if !present {
                    port.pass(&ecam, registers, State::Empty);
                }
                return self.leave(port, State::Empty);
            }
            State::Occupied if has(status::BUTTON) => return self.request_removal(registers, port),
            State::Unpowered => return self.leave(port, State::Vacated),
            State::Vacated if !present => port.slot.state = State::Empty,
            State::Vacated if has(status::BUTTON) => port.pass(&ecam, registers, State::Settling),
            _ => {}
        }
        None
    }

    /// Puts the devices behind a port on the board.
    fn arrive(&mut self, registers: &mut impl Registers, port: &mut Port) -> Option<Event> {
        port.slot.state = State::Occupied;
        if self.devices_behind(port) != 0 {
            // It came while the buses were being enumerated, and is on the board already.
            return None;
        }
        let mut window = Window::new(port.window.base, port.window.end);
        self.scan(registers, Bus::link(port.secondary), &mut window);
        let devices = self.devices_behind(port);
        (devices != 0).then_some(Event::Arrived(devices))
    }

    /// Asks for the devices behind a port; one that never came to the board can go at once.
    fn request_removal(&self, registers: &mut impl Registers, port: &mut Port) -> Option<Event> {
        let devices = self.devices_behind(port);
        (port.slot.leaving, port.slot.state) = (devices, State::Leaving);
        if devices == 0 {
            port.pass(&self.ecam, registers, State::Unpowered);
        }
        (devices != 0).then_some(Event::RemovalRequested(devices))
    }

    fn leave(&self, port: &mut Port, next: State) -> Option<Event> {
        let devices = self.devices_behind(port);
        (port.slot.leaving, port.slot.state) = (0, next);
        (devices != 0).then_some(Event::Left(devices))
    }
}
