//! Virtqueues from the device's side (sections 2.7 and 2.8).

use super::FakeMemory;

/// Memory that the driver lends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where the device sees it.
    pub bus: u64,
    /// Its length.
    pub bytes: u32,
    /// Whether the device writes to it, rather than reads it.
    pub is_writable: bool,
}

/// A chain that the device has taken and not used yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lent {
    /// By which the driver knows it.
    pub id: u16,
    /// Places that it takes in the ring.
    pub places: u16,
    /// In order: what is read comes before what is written.
    pub pieces: Vec<Piece>,
}

impl Lent {
    /// What the driver lent for reading.
    pub fn read(&self, memory: &FakeMemory) -> Vec<u8> {
        let readable = self.pieces.iter().filter(|piece| !piece.is_writable);
        readable.flat_map(|piece| memory.read(piece.bus, piece.bytes as usize)).collect()
    }

    /// Writes as much of `bytes` as there is room for, and returns how much that is.
    pub fn write(&self, memory: &FakeMemory, bytes: &[u8]) -> usize {
        let mut written = 0;
        for piece in self.pieces.iter().filter(|piece| piece.is_writable) {
            let part = &bytes[written..bytes.len().min(written + piece.bytes as usize)];
            memory.write(piece.bus, part);
            written += part.len();
        }
        written
    }
}

/// A position in a packed ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    place: u16,
    wrap: bool,
}

/// What a driver tells the device about a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueSetup {
    /// Bus addresses of its descriptor, driver and device area.
    pub areas: [u64; 3],
    /// Its entries.
    pub size: u16,
    /// Packed rather than split.
    pub is_packed: bool,
    /// Either side may name the event that it waits for.
    pub event_index: bool,
}

/// Bus addresses of the areas of a queue.
#[derive(Clone, Copy, Debug)]
struct Areas {
    descriptors: u64,
    driver: u64,
    device: u64,
}

/// One virtqueue, device's side.
#[derive(Debug)]
pub struct DeviceQueue {
    memory: FakeMemory,
    areas: Areas,
    size: u16,
    is_packed: bool,
    event_index: bool,
    /// Split: chains taken, and used.
    taken: u16,
    used: u16,
    /// Packed: where the next chain is taken, and where the next used one is written.
    take: Turn,
    put: Turn,
}

impl DeviceQueue {
    /// The queue that a driver has set up in `memory`.
    pub fn new(memory: FakeMemory, setup: QueueSetup) -> DeviceQueue {
        let QueueSetup { areas: [descriptors, driver, device], size, is_packed, event_index } = setup;
        let areas = Areas { descriptors, driver, device };
        let start = Turn { place: 0, wrap: true };
        let (take, put) = (start, start);
        DeviceQueue { memory, areas, size, is_packed, event_index, taken: 0, used: 0, take, put }
    }

    /// The next chain that the driver made available.
    pub fn take(&mut self) -> Option<Lent> {
        let lent = if self.is_packed { self.take_packed() } else { self.take_split() }?;
        let first_writable = lent.pieces.iter().position(|piece| piece.is_writable);
        let ordered =
            first_writable.is_none_or(|first| lent.pieces[first..].iter().all(|piece| piece.is_writable));
        assert!(ordered, "what the device reads comes first: {lent:?}");
        assert!(lent.pieces.iter().all(|piece| piece.bytes > 0), "an empty descriptor: {lent:?}");
        Some(lent)
    }

    fn take_split(&mut self) -> Option<Lent> {
        if self.memory.read16(self.areas.driver + 2) == self.taken {
            return None;
        }
        let entry = self.areas.driver + 4 + 2 * u64::from(self.taken % self.size);
        let id = self.memory.read16(entry);
        self.taken = self.taken.wrapping_add(1);
        let table = self.areas.descriptors;
        let first = self.descriptor(table, id);
        if first.flags & 4 != 0 {
            assert_eq!(first.flags, 4, "an indirect descriptor is alone and read");
            let pieces = self.follow(first.bus, 0, first.bytes / 16);
            return Some(Lent { id, places: 1, pieces });
        }
        let pieces = self.follow(table, id, self.size.into());
        Some(Lent { id, places: pieces.len() as u16, pieces })
    }

    /// The chain from entry `at` of a table of `count`.
    fn follow(&self, table: u64, mut at: u16, count: u32) -> Vec<Piece> {
        let mut pieces = Vec::new();
        loop {
            assert!(u32::from(at) < count && pieces.len() < count as usize, "a chain leaves its table");
            let raw = self.descriptor(table, at);
            assert_eq!(raw.flags & !3, 0, "flags in the middle of a chain");
            pieces.push(raw.piece());
            if raw.flags & 1 == 0 {
                return pieces;
            }
            at = raw.third;
        }
    }

    fn take_packed(&mut self) -> Option<Lent> {
        let mut pieces = Vec::new();
        let start = self.take;
        let mut at = start;
        loop {
            let raw = self.packed_descriptor(self.areas.descriptors, at.place);
            let is_available = (raw.flags >> 7 & 1 == 1) == at.wrap && (raw.flags >> 15 & 1 == 1) != at.wrap;
            if !is_available {
                assert!(pieces.is_empty(), "a chain was shown in part");
                return None;
            }
            at = self.step(at, 1);
            if raw.flags & 4 != 0 {
                assert!(pieces.is_empty() && raw.flags & 3 == 0, "an indirect descriptor is alone");
                let entries = 0..(raw.bytes / 16) as u16;
                pieces.extend(entries.map(|entry| self.packed_descriptor(raw.bus, entry).piece()));
            } else {
                pieces.push(raw.piece());
            }
            if raw.flags & 1 == 0 {
                let places = (at.place + self.size - start.place) % self.size;
                self.take = at;
                return Some(Lent {
                    id: raw.third,
                    places: if places == 0 { self.size } else { places },
                    pieces,
                });
            }
        }
    }

    fn step(&self, turn: Turn, count: u16) -> Turn {
        let place = turn.place + count;
        if place < self.size {
            Turn { place, ..turn }
        } else {
            Turn { place: place - self.size, wrap: !turn.wrap }
        }
    }

    /// Says that a chain was used and `written` bytes put there. `true` if the driver wants an interrupt.
    pub fn put(&mut self, lent: &Lent, written: u32) -> bool {
        self.put_raw(lent.id.into(), lent.places, written)
    }

    /// The same, for whatever nonsense.
    pub fn put_raw(&mut self, id: u32, places: u16, written: u32) -> bool {
        if self.is_packed { self.put_packed(id as u16, places, written) } else { self.put_split(id, written) }
    }

    fn put_split(&mut self, id: u32, written: u32) -> bool {
        let entry = self.areas.device + 4 + 8 * u64::from(self.used % self.size);
        self.memory.write32(entry, id);
        self.memory.write32(entry + 4, written);
        let old = self.used;
        self.used = self.used.wrapping_add(1);
        self.memory.write16(self.areas.device + 2, self.used);
        if self.event_index {
            let wanted = self.memory.read16(self.areas.driver + 4 + 2 * u64::from(self.size));
            return wanted == old;
        }
        self.memory.read16(self.areas.driver) & 1 == 0
    }

    fn put_packed(&mut self, id: u16, places: u16, written: u32) -> bool {
        let at = self.put;
        let entry = self.areas.descriptors + 16 * u64::from(at.place);
        self.memory.write32(entry + 8, written);
        self.memory.write16(entry + 12, id);
        self.memory.write16(entry + 14, if at.wrap { 0x8080 } else { 0 });
        self.put = self.step(at, places);
        let (place, flags) =
            (self.memory.read16(self.areas.driver), self.memory.read16(self.areas.driver + 2));
        match flags {
            0 => true,
            1 => false,
            2 => {
                assert!(self.event_index, "the driver names a place without being allowed to");
                // One of the places that the chain took.
                (0..places).any(|offset| {
                    let turn = self.step(at, offset);
                    place == turn.place | u16::from(turn.wrap) << 15
                })
            }
            other => panic!("event suppression flags {other}"),
        }
    }

    /// Asks to be notified of the next chain.
    pub fn want_kicks(&mut self) {
        if self.is_packed {
            let place = self.take.place | u16::from(self.take.wrap) << 15;
            self.memory.write16(self.areas.device, place);
            self.memory.write16(self.areas.device + 2, if self.event_index { 2 } else { 0 });
        } else if self.event_index {
            self.memory.write16(self.areas.device + 4 + 8 * u64::from(self.size), self.taken);
        } else {
            self.memory.write16(self.areas.device, 0);
        }
    }

    /// Asks not to be notified.
    pub fn refuse_kicks(&mut self) {
        if self.is_packed {
            self.memory.write16(self.areas.device + 2, 1);
        } else if self.event_index {
            let past = self.taken.wrapping_sub(1);
            self.memory.write16(self.areas.device + 4 + 8 * u64::from(self.size), past);
        } else {
            self.memory.write16(self.areas.device, 1);
        }
    }

    fn descriptor(&self, table: u64, index: u16) -> Raw {
        let at = table + 16 * u64::from(index);
        Raw {
            bus: self.memory.read64(at),
            bytes: self.memory.read32(at + 8),
            flags: self.memory.read16(at + 12),
            third: self.memory.read16(at + 14),
        }
    }

    /// Where a split descriptor has its flags, a packed one has its identifier, and the other way round.
    fn packed_descriptor(&self, table: u64, index: u16) -> Raw {
        let raw = self.descriptor(table, index);
        Raw { flags: raw.third, third: raw.flags, ..raw }
    }
}

/// A descriptor as it lies in memory.
struct Raw {
    bus: u64,
    bytes: u32,
    flags: u16,
    /// Next, or identifier.
    third: u16,
}

impl Raw {
    fn piece(&self) -> Piece {
        Piece { bus: self.bus, bytes: self.bytes, is_writable: self.flags & 2 != 0 }
    }
}
