//! A virtio network device behind a PCI function (sections 4.1 and 5.1), or without PCI (section 4.2).

use super::{DeviceQueue, FakeMemory, Lent, QueueSetup};
use nom_port::device::{PciFunction, Refused, Registers};
use std::cell::RefCell;
use std::rc::Rc;

/// Where the structures lie in region 4; the device's configuration not at the start of a page.
const COMMON: u64 = 0;
const CONFIG: u64 = 0x2008;
const NOTIFY: u64 = 0x3000;
const DISTANCE: u64 = 4;
const REGION: u8 = 4;
/// Without PCI, where its registers lie in the page that is region 0: as with QEMU, not at its start.
const PLACE: u64 = 0xe00;
const MMIO_NOTIFY: u64 = PLACE + 0x50;
const MMIO_CONFIG: u64 = PLACE + 0x100;

/// What a device is like.
#[derive(Clone, Debug)]
pub struct FakeOptions {
    /// Offered to the driver.
    pub features: u64,
    /// Queue pairs that it has.
    pub pairs: u16,
    /// Entries of each queue, at most.
    pub queue_size: u16,
    /// Interrupt vectors.
    pub vectors: u16,
    /// Most bytes of a packet, as its configuration says.
    pub mtu: u16,
    /// Its address.
    pub mac: [u8; 6],
    /// Its answer to commands on the control queue.
    pub answer: u8,
    /// Does not accept what the driver does.
    pub is_stubborn: bool,
    /// Its configuration changes at each look.
    pub is_restless: bool,
    /// Vendor and device, as the first word of its configuration space.
    pub identifier: u32,
    /// Queue pairs that its configuration claims, if not those that it has.
    pub claims: Option<u16>,
    /// What its configuration is, if not a network device's.
    pub config: Option<Vec<u8>>,
    /// Places of its table of queues for what is received, and bytes of a key; its kinds of packets are all.
    pub rss: (u16, u8),
    /// No PCI: version of its registers, and the kind of device.
    pub mmio: Option<(u32, u32)>,
}

/// Features of a device that has all that the driver can use.
pub const ALL_FEATURES: u64 = 0x5_30c7_99ab | 1 << 33;

impl Default for FakeOptions {
    fn default() -> FakeOptions {
        FakeOptions {
            features: ALL_FEATURES,
            pairs: 4,
            queue_size: 64,
            vectors: 16,
            mtu: 1500,
            mac: [2, 3, 5, 7, 11, 13],
            answer: 0,
            is_stubborn: false,
            is_restless: false,
            identifier: 0x1041_1af4,
            claims: None,
            config: None,
            rss: (128, 40),
            mmio: None,
        }
    }
}

/// Registers of one queue, and the queue once it is enabled.
#[derive(Debug)]
struct Slot {
    size: u16,
    vector: u16,
    addresses: [u32; 6],
    queue: Option<DeviceQueue>,
    kicks: u64,
}

#[derive(Debug)]
struct Device {
    options: FakeOptions,
    memory: FakeMemory,
    status: u8,
    generation: u8,
    driver_features: u64,
    feature_select: [u32; 2],
    select: u16,
    slots: Vec<Slot>,
    /// Vectors with their bits.
    bound: Vec<(u16, u8)>,
    config_vector: u16,
    /// Interrupt status without PCI: an edge comes when it is no longer 0.
    pending: u32,
    interrupts: u64,
    commands: Vec<Vec<u8>>,
    /// Queue pairs that it receives into, as it was told last.
    pairs_in_use: u16,
    /// By what hash and table it spreads frames, if it was told.
    spread: Option<Spread>,
    resets: u64,
    server: Option<Server>,
}

/// Answers a request, of which there is room for so many bytes; nothing is no answer.
type Answer = dyn FnMut(&[u8], usize) -> Option<Vec<u8>>;

/// What answers each request on queue 0, of a device that is for requests.
struct Server(Box<Answer>);

impl std::fmt::Debug for Server {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Server")
    }
}

/// How a device spreads what it receives (section 5.1.6.5.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Kinds of packets that are hashed.
    pub kinds: u32,
    /// Where the others go.
    pub unclassified: u16,
    /// Receive queues, by the hash's lowest bits.
    pub table: Vec<u16>,
    /// Of the hash.
    pub key: Vec<u8>,
}

impl Spread {
    /// The hash of the addresses and ports of a packet, one behind the other (section 5.1.6.4.3.1).
    pub fn hash(&self, input: &[u8]) -> u32 {
        let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
        let window = |at: usize| (at..at + 32).fold(0, |word, at| word << 1 | u32::from(bit(&self.key, at)));
        let set = (0..8 * input.len()).filter(|at| bit(input, *at) == 1);
        set.fold(0, |hash, at| hash ^ window(at))
    }

    /// The receive queue of a hash.
    pub fn queue(&self, hash: u32) -> u16 {
        self.table[hash as usize & (self.table.len() - 1)]
    }

    /// Reads a command's data, and the number of pairs that it says.
    fn read(data: &[u8]) -> Option<(Spread, u16)> {
        let word = |at: usize| Some(u16::from_le_bytes(*data.get(at..)?.first_chunk()?));
        let places = usize::from(word(4)?) + 1;
        let table = (0..places).map(|place| word(8 + 2 * place)).collect::<Option<Vec<u16>>>()?;
        let (pairs, behind) = (word(8 + 2 * places)?, 10 + 2 * places);
        let (&len, key) = data.get(behind..)?.split_first()?;
        let kinds = u32::from_le_bytes(*data.first_chunk()?);
        let is_sound = places.is_power_of_two() && key.len() == usize::from(len);
        is_sound
            .then(|| (Spread { kinds, unclassified: word(6).unwrap_or(0), table, key: key.to_vec() }, pairs))
    }
}

/// The function of a network device. Clones are handles on the same.
#[derive(Clone, Debug)]
pub struct FakeFunction(Rc<RefCell<Device>>);

impl FakeFunction {
    /// A device of these options that reaches `memory`; nobody has reset it yet.
    pub fn new(options: FakeOptions, memory: FakeMemory) -> FakeFunction {
        let device = Device {
            options,
            memory,
            status: 0,
            generation: 0,
            driver_features: 0,
            feature_select: [0; 2],
            select: 0,
            slots: Vec::new(),
            bound: Vec::new(),
            config_vector: 0xffff,
            pending: 0,
            interrupts: 0,
            commands: Vec::new(),
            pairs_in_use: 1,
            spread: None,
            resets: 0,
            server: None,
        };
        FakeFunction(Rc::new(RefCell::new(device)))
    }

    /// Makes another device of it.
    pub fn change(&self, change: impl FnOnce(&mut FakeOptions)) {
        change(&mut self.0.borrow_mut().options);
    }

    /// Has each request on queue 0 answered as it comes.
    pub fn serve(&self, mut answer: impl FnMut(&[u8]) -> Option<Vec<u8>> + 'static) {
        self.serve_in_room(move |request, _| answer(request));
    }

    /// Likewise, by who is told for how many bytes there is room.
    pub fn serve_in_room(&self, answer: impl FnMut(&[u8], usize) -> Option<Vec<u8>> + 'static) {
        self.0.borrow_mut().server = Some(Server(Box::new(answer)));
    }

    /// Works on queue number `queue` as the device does.
    pub fn queue<T>(&self, queue: u16, work: impl FnOnce(&mut DeviceQueue, &FakeMemory) -> T) -> T {
        let device = &mut *self.0.borrow_mut();
        let queue = device.slots[usize::from(queue)].queue.as_mut().expect("the queue is enabled");
        work(queue, &device.memory)
    }

    /// Puts a chain of queue `queue` back, with an interrupt if the driver wants one.
    pub fn put(&self, queue: u16, lent: &Lent, written: u32) {
        if self.queue(queue, |queue, _| queue.put(lent, written)) {
            self.interrupt(queue);
        }
    }

    /// Interrupts for queue `queue`.
    pub fn interrupt(&self, queue: u16) {
        let device = &mut *self.0.borrow_mut();
        device.interrupt(device.slots[usize::from(queue)].vector, 1);
    }

    /// Says that only a reset helps, by an interrupt about the configuration (section 2.1.2).
    pub fn break_down(&self) {
        let device = &mut *self.0.borrow_mut();
        device.status |= 64;
        device.interrupt(device.config_vector, 2);
    }

    /// Has pair `pair` receive `frame` behind `header`, whose number of buffers is put right. `false` if the
    /// driver has lent too little.
    pub fn deliver(&self, pair: u16, mut header: [u8; 12], frame: &[u8]) -> bool {
        let (mut chains, mut room) = (Vec::new(), 0);
        while room < 12 + frame.len() {
            let Some(lent) = self.queue(2 * pair, |queue, _| queue.take()) else { return false };
            room += lent.pieces.iter().map(|piece| piece.bytes as usize).sum::<usize>();
            chains.push(lent);
        }
        header[10..].copy_from_slice(&(chains.len() as u16).to_le_bytes());
        let bytes = [&header[..], frame].concat();
        let mut rest = &bytes[..];
        let filled: Vec<usize> = chains
            .iter()
            .map(|lent| {
                let written = self.queue(2 * pair, |_, memory| lent.write(memory, rest));
                rest = &rest[written..];
                written
            })
            .collect();
        for (lent, written) in chains.iter().zip(filled) {
            self.put(2 * pair, lent, written as u32);
        }
        true
    }

    /// Takes what pair `pair` sends, without giving it back.
    pub fn take_sent(&self, pair: u16) -> Option<(Lent, Vec<u8>)> {
        self.queue(2 * pair + 1, |queue, memory| {
            let lent = queue.take()?;
            let bytes = lent.read(memory);
            Some((lent, bytes))
        })
    }

    /// All that pair `pair` has sent: header and frame each.
    pub fn sent(&self, pair: u16) -> Vec<Vec<u8>> {
        let next = || {
            let (lent, bytes) = self.take_sent(pair)?;
            self.put(2 * pair + 1, &lent, 0);
            Some(bytes)
        };
        std::iter::from_fn(next).collect()
    }

    /// Interrupts since the last call, as bits.
    pub fn interrupts(&self) -> u64 {
        std::mem::take(&mut self.0.borrow_mut().interrupts)
    }

    /// Notifications of queue `queue` so far.
    pub fn kicks(&self, queue: u16) -> u64 {
        self.0.borrow().slots[usize::from(queue)].kicks
    }

    /// Commands that came on the control queue.
    pub fn commands(&self) -> Vec<Vec<u8>> {
        self.0.borrow().commands.clone()
    }

    /// Whether it works on queue `queue`: the driver has set it up, and the device is not broken.
    pub fn is_live(&self, queue: u16) -> bool {
        let device = self.0.borrow();
        let is_enabled = device.slots.get(usize::from(queue)).is_some_and(|slot| slot.queue.is_some());
        is_enabled && device.status & (4 | 64) == 4
    }

    /// Queue pairs that it receives into: 1, until it is told otherwise (section 5.1.6.5.5).
    pub fn pairs_in_use(&self) -> u16 {
        self.0.borrow().pairs_in_use
    }

    /// How it spreads what it receives, if it was told a hash.
    pub fn spread(&self) -> Option<Spread> {
        self.0.borrow().spread.clone()
    }

    /// Its status, as the driver would read it.
    pub fn status(&self) -> u8 {
        self.0.borrow().status
    }

    /// Features that the driver has accepted.
    pub fn driver_features(&self) -> u64 {
        self.0.borrow().driver_features
    }

    /// How often it was reset.
    pub fn resets(&self) -> u64 {
        self.0.borrow().resets
    }
}

/// A vendor capability of 20 bytes.
fn capability(next: u8, kind: u8, bar: u8, offset: u64, bytes: u32, extra: u32) -> [u8; 20] {
    let mut raw = [0; 20];
    raw[..5].copy_from_slice(&[9, next, 20, kind, bar]);
    raw[8..12].copy_from_slice(&(offset as u32).to_le_bytes());
    raw[12..16].copy_from_slice(&bytes.to_le_bytes());
    raw[16..].copy_from_slice(&extra.to_le_bytes());
    raw
}

impl PciFunction for FakeFunction {
    type Registers = FakeRegisters;

    fn config(&self, offset: u16) -> u32 {
        assert!(offset.is_multiple_of(4) && offset < 4096, "configuration space at {offset:#x}");
        let mut space = [0; 512];
        space[..4].copy_from_slice(&self.0.borrow().options.identifier.to_le_bytes());
        space[0x34] = 0x40;
        // Not a vendor's; in no region; too short; then those that count.
        space[0x40..0x42].copy_from_slice(&[5, 0x50]);
        space[0x50..0x64].copy_from_slice(&capability(0x64, 1, 7, 0, 0x38, 0));
        space[0x64..0x78].copy_from_slice(&capability(0x78, 1, 0, 0, 8, 0));
        space[0x78..0x8c].copy_from_slice(&capability(0x8c, 1, REGION, COMMON, 0x38, 0));
        space[0x8c..0xa0].copy_from_slice(&capability(0xa0, 4, REGION, CONFIG, 24, 0));
        space[0xa0..0xb4].copy_from_slice(&capability(0, 2, REGION, NOTIFY, 0x1000, DISTANCE as u32));
        let at = usize::from(offset);
        space.get(at..at + 4).map_or(0, |word| u32::from_le_bytes(word.try_into().unwrap()))
    }

    fn mmio(&self) -> Option<u64> {
        self.0.borrow().options.mmio.map(|_| PLACE)
    }

    fn map(&mut self, bar: u8, offset: u64, bytes: u64) -> Result<FakeRegisters, Refused> {
        let region = if self.mmio().is_some() { 0 } else { REGION };
        if bar != region {
            return Err(Refused("NoSuchRegion"));
        }
        Ok(FakeRegisters { device: self.0.clone(), offset, bytes })
    }

    fn bind_interrupt(&mut self, vector: u16, bit: u8) -> Result<(), Refused> {
        let device = &mut *self.0.borrow_mut();
        if vector >= device.options.vectors || bit > 63 {
            return Err(Refused("NoSuchInterrupt"));
        }
        device.bound.retain(|(other, _)| *other != vector);
        device.bound.push((vector, bit));
        Ok(())
    }
}

/// Registers of the fake device.
#[derive(Debug)]
pub struct FakeRegisters {
    device: Rc<RefCell<Device>>,
    offset: u64,
    bytes: u64,
}

impl FakeRegisters {
    fn read(&self, offset: u64, bytes: u64) -> u64 {
        assert!(offset.is_multiple_of(bytes) && offset + bytes <= self.bytes, "register {offset:#x}");
        let device = &mut *self.device.borrow_mut();
        match self.offset {
            COMMON => device.read_common(offset, bytes),
            CONFIG => device.config(offset as usize, bytes as usize),
            PLACE if bytes == 4 => device.read_mmio(offset),
            MMIO_CONFIG => device.config(offset as usize, bytes as usize),
            _ => panic!("notification registers are not read"),
        }
    }

    fn write(&self, offset: u64, bytes: u64, value: u64) {
        assert!(offset.is_multiple_of(bytes) && offset + bytes <= self.bytes, "register {offset:#x}");
        let device = &mut *self.device.borrow_mut();
        match self.offset {
            COMMON => device.write_common(offset, bytes, value),
            NOTIFY => {
                assert_eq!((bytes, offset), (2, DISTANCE * value), "a queue's own register");
                device.notify(value as u16);
            }
            PLACE if bytes == 4 => device.write_mmio(offset, value as u32),
            MMIO_NOTIFY if bytes == 4 => device.notify(value as u16),
            _ => panic!("the configuration is not written"),
        }
    }
}

impl Registers for FakeRegisters {
    fn read8(&self, offset: u64) -> u8 {
        self.read(offset, 1) as u8
    }
    fn read16(&self, offset: u64) -> u16 {
        self.read(offset, 2) as u16
    }
    fn read32(&self, offset: u64) -> u32 {
        self.read(offset, 4) as u32
    }
    fn read64(&self, offset: u64) -> u64 {
        self.read(offset, 8)
    }
    fn write8(&self, offset: u64, value: u8) {
        self.write(offset, 1, value.into());
    }
    fn write16(&self, offset: u64, value: u16) {
        self.write(offset, 2, value.into());
    }
    fn write32(&self, offset: u64, value: u32) {
        self.write(offset, 4, value.into());
    }
    fn write64(&self, offset: u64, value: u64) {
        self.write(offset, 8, value);
    }
}

impl Device {
    fn slot(&mut self) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(self.select))
    }

    fn interrupt(&mut self, vector: u16, reason: u32) {
        let is_mmio = self.options.mmio.is_some();
        let is_edge = !is_mmio || self.pending == 0;
        self.pending |= reason;
        let vector = if is_mmio { 0 } else { vector };
        let bits =
            self.bound.iter().filter(|(bound, _)| *bound == vector && is_edge).map(|(_, bit)| 1 << bit);
        self.interrupts |= bits.sum::<u64>();
    }

    fn read_mmio(&mut self, offset: u64) -> u64 {
        let (version, kind) = self.options.mmio.expect("it is not on PCI");
        match offset {
            0x00 => u32::from_le_bytes(*b"virt").into(),
            0x04 => version.into(),
            0x08 => kind.into(),
            0x10 => self.read_common(0x04, 4),
            0x34 => self.read_common(0x18, 2),
            0x70 => self.read_common(0x14, 1),
            0xfc => self.read_common(0x15, 1),
            _ => panic!("a read at {offset:#x}"),
        }
    }

    fn write_mmio(&mut self, offset: u64, value: u32) {
        let (place, bytes) = match offset {
            0x14 => (0x00, 4),
            0x20 => (0x0c, 4),
            0x24 => (0x08, 4),
            0x30 => (0x16, 2),
            0x38 => (0x18, 2),
            0x44 => (0x1c, 2),
            0x64 => return self.pending &= !value,
            0x70 => (0x14, 1),
            0x80 | 0x84 => (offset - 0x60, 4),
            0x90 | 0x94 => (offset - 0x68, 4),
            0xa0 | 0xa4 => (offset - 0x70, 4),
            _ => panic!("a write at {offset:#x}"),
        };
        self.write_common(place, bytes, value.into());
    }

    fn read_common(&mut self, offset: u64, bytes: u64) -> u64 {
        match (offset, bytes) {
            (0x10, 2) => self.config_vector.into(),
            (0x04, 4) => (self.options.features >> (32 * (self.feature_select[0] & 1))) & 0xffff_ffff,
            (0x14, 1) => self.status.into(),
            (0x15, 1) => {
                self.generation = self.generation.wrapping_add(self.options.is_restless.into());
                self.generation.into()
            }
            (0x18, 2) => self.slot().map_or(0, |slot| slot.size.into()),
            (0x1a, 2) => self.slot().map_or(0xffff, |slot| slot.vector.into()),
            (0x1e, 2) => self.select.into(),
            _ => panic!("a read of {bytes} bytes at {offset:#x}"),
        }
    }

    fn write_common(&mut self, offset: u64, bytes: u64, value: u64) {
        let vectors = self.options.vectors;
        match (offset, bytes) {
            (0x00, 4) => self.feature_select[0] = value as u32,
            (0x08, 4) => self.feature_select[1] = value as u32,
            (0x0c, 4) if self.feature_select[1] == 0 => self.driver_features |= value,
            (0x0c, 4) => self.driver_features |= value << 32,
            (0x10, 2) => self.config_vector = if value < vectors.into() { value as u16 } else { 0xffff },
            (0x14, 1) => self.write_status(value as u8),
            (0x16, 2) => self.select = value as u16,
            (0x18, 2) => self.slot().expect("a queue").size = value as u16,
            (0x1a, 2) => {
                let accepted = if value < vectors.into() { value as u16 } else { 0xffff };
                self.slot().expect("a queue").vector = accepted;
            }
            (0x1c, 2) => self.enable(),
            (0x20..0x38, 4) => {
                self.slot().expect("a queue").addresses[(offset - 0x20) as usize / 4] = value as u32;
            }
            _ => panic!("a write of {bytes} bytes at {offset:#x}"),
        }
    }

    fn write_status(&mut self, value: u8) {
        self.status = value;
        if value == 0 {
            self.resets += 1;
            self.driver_features = 0;
            (self.pairs_in_use, self.spread) = (1, None);
            let queues = 2 * self.options.pairs + 1;
            let size = self.options.queue_size;
            let slot = |_| Slot { size, vector: 0xffff, addresses: [0; 6], queue: None, kicks: 0 };
            self.slots = (0..queues).map(slot).collect();
        }
        if value & 8 != 0 {
            assert_eq!(self.driver_features & !self.options.features, 0, "features that were not offered");
            if self.options.is_stubborn {
                self.status &= !8;
            }
        }
    }

    fn enable(&mut self) {
        assert_eq!(self.status & 12, 8, "queues are enabled between FEATURES_OK and DRIVER_OK");
        let (features, memory) = (self.driver_features, self.memory.clone());
        let slot = self.slot().expect("a queue");
        let address = |at: usize| u64::from(slot.addresses[at]) | u64::from(slot.addresses[at + 1]) << 32;
        let setup = QueueSetup {
            areas: [address(0), address(2), address(4)],
            size: slot.size,
            is_packed: features >> 34 & 1 == 1,
            event_index: features >> 29 & 1 == 1,
        };
        let mut queue = DeviceQueue::new(memory, setup);
        queue.want_kicks();
        slot.queue = Some(queue);
    }

    fn config(&self, offset: usize, bytes: usize) -> u64 {
        let FakeOptions { mac, pairs, mtu, claims, rss: (places, key), .. } = &self.options;
        let pairs = claims.unwrap_or(*pairs);
        let mut config = [0; 24];
        config[..6].copy_from_slice(mac);
        config[6] = 1;
        config[8..10].copy_from_slice(&pairs.to_le_bytes());
        config[10..12].copy_from_slice(&mtu.to_le_bytes());
        config[17] = *key;
        config[18..20].copy_from_slice(&places.to_le_bytes());
        config[20] = 0x3f;
        if let Some(other) = &self.options.config {
            config[..other.len()].copy_from_slice(other);
        }
        config[offset..offset + bytes].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    fn notify(&mut self, queue: u16) {
        assert!(self.status & 4 != 0, "a notification before DRIVER_OK");
        let slot = &mut self.slots[usize::from(queue)];
        slot.kicks += 1;
        if let Some(Server(answer)) = self.server.as_mut().filter(|_| queue == 0) {
            let queue = slot.queue.as_mut().expect("the queue is enabled");
            while let Some(lent) = queue.take() {
                let writable = lent.pieces.iter().filter(|piece| piece.is_writable);
                let room = writable.map(|piece| piece.bytes as usize).sum();
                match answer(&lent.read(&self.memory), room) {
                    Some(bytes) => {
                        let written = lent.write(&self.memory, &bytes);
                        queue.put(&lent, written as u32);
                    }
                    None => self.status |= 64,
                }
                queue.want_kicks();
            }
            return;
        }
        if queue == 2 * self.options.pairs {
            let queue = slot.queue.as_mut().expect("the control queue is enabled");
            while let Some(lent) = queue.take() {
                let command = lent.read(&self.memory);
                match command[..] {
                    [4, 0, low, high] => {
                        (self.pairs_in_use, self.spread) = (u16::from_le_bytes([low, high]), None);
                    }
                    [4, 1, ref data @ ..] if self.options.answer == 0 => {
                        let (spread, pairs) = Spread::read(data).expect("a sound table");
                        (self.pairs_in_use, self.spread) = (pairs, Some(spread));
                    }
                    _ => {}
                }
                self.commands.push(command);
                lent.write(&self.memory, &[self.options.answer]);
                queue.put(&lent, 1);
                queue.want_kicks();
            }
        }
    }
}
