//! Packet mode (ioctl_tty(2), `TIOCPKT`): each read of the master says first whether bytes follow, or what
//! happened to the terminal. So programs that carry a terminal over a network learn what was flushed or held.

use core::cell::Cell;
use linux_raw_sys::general as abi;

/// The first byte of a packet whose rest is output.
pub(super) const DATA: u8 = abi::TIOCPKT_DATA as u8;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketStatus {
    bit: u8,
    /// What was told before and is true no more.
    instead_of: u8,
}

impl PacketStatus {
    /// What was typed and not read is forgotten.
    pub const FLUSH_READ: PacketStatus = PacketStatus::of(abi::TIOCPKT_FLUSHREAD, 0);
    /// What was written and not read is forgotten.
    pub const FLUSH_WRITE: PacketStatus = PacketStatus::of(abi::TIOCPKT_FLUSHWRITE, 0);
    /// Output waits.
    pub const STOP: PacketStatus = PacketStatus::of(abi::TIOCPKT_STOP, abi::TIOCPKT_START);
    /// Output goes on.
    pub const START: PacketStatus = PacketStatus::of(abi::TIOCPKT_START, abi::TIOCPKT_STOP);
    /// `^S` and `^Q` hold output and let it go on.
    pub const FLOW: PacketStatus = PacketStatus::of(abi::TIOCPKT_DOSTOP, abi::TIOCPKT_NOSTOP);
    /// They do not.
    pub const NO_FLOW: PacketStatus = PacketStatus::of(abi::TIOCPKT_NOSTOP, abi::TIOCPKT_DOSTOP);

    const fn of(bit: u32, instead_of: u32) -> PacketStatus {
        PacketStatus { bit: bit as u8, instead_of: instead_of as u8 }
    }
}

/// Whether the master reads packets, and what it was not told yet.
#[derive(Debug, Default)]
pub(super) struct Packets {
    untold: Cell<Option<u8>>,
}

impl Packets {
    /// It reads packets from now on; nothing of before is told.
    pub fn begin(&self) {
        self.untold.set(self.untold.get().or(Some(0)));
    }

    /// It reads bytes alone from now on.
    pub fn end(&self) {
        self.untold.set(None);
    }

    /// Whether it reads packets.
    pub fn are_on(&self) -> bool {
        self.untold.get().is_some()
    }

    /// Something happened.
    pub fn tell(&self, what: PacketStatus) {
        self.untold.set(self.untold.get().map(|untold| untold & !what.instead_of | what.bit));
    }

    /// Whether there is something to tell.
    pub fn has_status(&self) -> bool {
        self.untold.get().is_some_and(|untold| untold != 0)
    }

    /// What happened, once.
    pub fn take(&self) -> Option<u8> {
        let untold = self.untold.get().filter(|untold| *untold != 0)?;
        self.untold.set(Some(0));
        Some(untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_told_once_and_only_to_who_asked() {
        let packets = Packets::default();
        packets.tell(PacketStatus::STOP);
        assert!(!packets.has_status() && packets.take().is_none());
        packets.begin();
        assert!(!packets.has_status(), "nothing of before");
        packets.tell(PacketStatus::STOP);
        packets.tell(PacketStatus::FLUSH_READ);
        packets.begin();
        packets.tell(PacketStatus::START);
        assert_eq!(packets.take(), Some(0b1001), "going on takes the place of having stopped");
        assert_eq!(packets.take(), None);
        packets.end();
        assert!(!packets.are_on());
    }
}
