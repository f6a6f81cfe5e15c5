//! A virtio-iommu that reads its queue and is strict about what the specification forbids.

use crate::pci::Address;
use crate::testing::FakeMemory;
use std::collections::BTreeMap;

const OK: u8 = 0;
const INVALID: u8 = 4;
const RANGE: u8 = 5;
const NO_ENTRY: u8 = 6;

/// A part of a chain: address, length, whether the device writes it.
type Part = (u64, u32, bool);

#[derive(Clone, Copy, Default)]
struct QueueRegisters {
    size: u16,
    enabled: bool,
    /// Descriptors, available ring, used ring.
    parts: [u64; 3],
    seen: u16,
}

pub struct FakeVirtioIommu {
    /// Its function and region.
    pub place: Option<(usize, usize)>,
    /// Endpoints from this identifier on exist; the identifier is the function's plus this.
    pub first_endpoint: u32,
    /// It takes requests and never answers.
    pub is_dead: bool,
    /// It does not let endpoints go.
    pub keeps: bool,
    common: [u8; 64],
    driver_features: u64,
    queues: [QueueRegisters; 2],
    bypass: bool,
    domains: BTreeMap<u32, BTreeMap<u64, (u64, u32)>>,
    endpoints: BTreeMap<u32, u32>,
    pub requests: u32,
}

impl FakeVirtioIommu {
    pub fn new(place: (usize, usize), first_endpoint: u32) -> FakeVirtioIommu {
        FakeVirtioIommu {
            place: Some(place),
            first_endpoint,
            is_dead: false,
            keeps: false,
            common: [0; 64],
            driver_features: 0,
            queues: [QueueRegisters::default(); 2],
            bypass: true,
            domains: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            requests: 0,
        }
    }

    pub fn place(&self) -> Option<(usize, usize)> {
        self.place
    }

    /// Whether DMA gets through.
    pub fn reaches(&self, function: Address, address: u64) -> bool {
        if address >> 20 == 0xfee {
            return true;
        }
        match self.endpoints.get(&(self.first_endpoint + u32::from(function.0))) {
            None => self.bypass,
            Some(domain) => {
                let mapping = self.domains[domain].range(..=address).next_back();
                mapping.is_some_and(|(_, (last, flags))| address <= *last && flags & 2 != 0)
            }
        }
    }

    /// Number of domains that live.
    pub fn domains(&self) -> usize {
        self.domains.len()
    }

    /// Reports a fault, as it does when DMA is blocked; `access` is 1 for a read and 2 for a write, or 0.
    /// Returns false if no buffer is left for it.
    pub fn report(&mut self, memory: &mut FakeMemory, endpoint: u32, address: u64, access: u32) -> bool {
        let Some((head, descriptor)) = self.pop(memory, 1) else { return false };
        let flags = 1 << 8 | access;
        let mut report = vec![2, 0, 0, 0];
        report.extend(flags.to_le_bytes());
        report.extend(endpoint.to_le_bytes());
        report.extend([0; 4]);
        report.extend(address.to_le_bytes());
        assert!(descriptor.len() == 1 && descriptor[0].2, "an event buffer is one part that is written");
        assert!(descriptor[0].1 as usize >= report.len());
        memory.write_bytes(descriptor[0].0, &report);
        self.push(memory, 1, head, report.len() as u32);
        true
    }

    pub fn read(&mut self, offset: u64, bytes: u64) -> u64 {
        let queue = &self.queues[usize::from(self.half(22)).min(1)];
        match offset {
            4 if self.common[0] == 0 => 0b111_0110,
            4 => 0b11,
            24 => u64::from(if queue.size == 0 { 256 } else { queue.size }),
            28 => queue.enabled.into(),
            30 => self.half(22).into(),
            0x2000 => 0xffff_f000,
            0x2024 => self.bypass.into(),
            0x1000 => 0,
            _ => {
                assert!(offset + bytes <= 64, "read at {offset:#x}");
                let bytes = &self.common[offset as usize..(offset + bytes) as usize];
                bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
            }
        }
    }

    fn half(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.common[at], self.common[at + 1]])
    }

    pub fn write(&mut self, memory: &mut FakeMemory, offset: u64, bytes: u64, value: u64) {
        let selected = usize::from(self.half(22)).min(1);
        match offset {
            12 => self.driver_features |= value << (32 * u64::from(self.common[8])),
            20 if value == 0 => {
                self.common = [0; 64];
                self.driver_features = 0;
                self.queues = [QueueRegisters::default(); 2];
                self.domains.clear();
                self.endpoints.clear();
            }
            24 => self.queues[selected].size = value as u16,
            28 => self.queues[selected].enabled = value == 1,
            32..56 => {
                let part = &mut self.queues[selected].parts[(offset as usize - 32) / 8];
                let shift = (offset & 4) * 8;
                *part = *part & !(0xffff_ffff << shift) | value << shift;
            }
            0x2024 => {
                assert!(self.driver_features & 1 << 6 != 0, "bypass was not negotiated");
                self.bypass = value != 0;
            }
            0x3000 => self.serve(memory),
            0x3004 => {}
            _ => {
                assert!(offset + bytes <= 64, "write at {offset:#x}");
                let value = value.to_le_bytes();
                self.common[offset as usize..(offset + bytes) as usize]
                    .copy_from_slice(&value[..bytes as usize]);
            }
        }
    }

    /// Takes the next chain of a queue: its head and its parts.
    fn pop(&mut self, memory: &FakeMemory, queue: usize) -> Option<(u16, Vec<Part>)> {
        let it = &mut self.queues[queue];
        assert!(it.enabled && self.common[20] & 4 != 0, "the queue is not running");
        let half = |address| {
            let mut bytes = [0; 2];
            memory.read_bytes(address, &mut bytes);
            u16::from_le_bytes(bytes)
        };
        if half(it.parts[1] + 2) == it.seen {
            return None;
        }
        let head = half(it.parts[1] + 4 + u64::from(it.seen % it.size) * 2);
        it.seen = it.seen.wrapping_add(1);
        let (mut parts, mut next) = (Vec::new(), Some(head));
        while let Some(descriptor) = next {
            let at = it.parts[0] + u64::from(descriptor) * 16;
            let second = memory.read(at + 8);
            parts.push((memory.read(at), second as u32, second >> 32 & 2 != 0));
            next = (second >> 32 & 1 != 0).then_some((second >> 48) as u16);
            assert!(parts.len() <= 4, "the chain is too long");
        }
        Some((head, parts))
    }

    fn push(&mut self, memory: &mut FakeMemory, queue: usize, head: u16, length: u32) {
        let used = self.queues[queue].parts[2];
        let size = u64::from(self.queues[queue].size);
        let index = (memory.read(used) >> 16) as u16;
        let element = used + 4 + u64::from(index) % size * 8;
        memory.write_bytes(element, &u32::from(head).to_le_bytes());
        memory.write_bytes(element + 4, &length.to_le_bytes());
        memory.write_bytes(used + 2, &index.wrapping_add(1).to_le_bytes());
    }

    fn serve(&mut self, memory: &mut FakeMemory) {
        while !self.is_dead
            && let Some((head, parts)) = self.pop(memory, 0)
        {
            let [request, answer] = parts[..] else { panic!("a request has two parts") };
            assert!(!request.2 && answer.2, "the request is read and the answer written");
            let mut bytes = vec![0; request.1 as usize];
            memory.read_bytes(request.0, &mut bytes);
            let reply = [self.answer(&bytes), 0, 0, 0];
            assert_eq!(reply.len(), answer.1 as usize);
            memory.write_bytes(answer.0, &reply);
            self.push(memory, 0, head, answer.1);
            self.requests += 1;
        }
    }

    /// Carries a request out; returns its status.
    fn answer(&mut self, bytes: &[u8]) -> u8 {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let double = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        match (bytes[0], bytes.len()) {
            (1, 20) => self.attach(word(4), word(8)),
            (2, 20) => self.detach(word(4), word(8)),
            (3, 36) => self.map(word(4), double(8), double(16), double(24), word(32)),
            (4, 28) => self.unmap(word(4), double(8), double(16)),
            (kind, length) => panic!("request {kind} of {length} bytes"),
        }
    }

    fn attach(&mut self, domain: u32, endpoint: u32) -> u8 {
        if endpoint < self.first_endpoint {
            return NO_ENTRY;
        }
        if self.endpoints.contains_key(&endpoint) {
            return INVALID;
        }
        self.domains.entry(domain).or_default();
        self.endpoints.insert(endpoint, domain);
        OK
    }

    fn detach(&mut self, domain: u32, endpoint: u32) -> u8 {
        if self.keeps || self.endpoints.get(&endpoint) != Some(&domain) {
            return INVALID;
        }
        self.endpoints.remove(&endpoint);
        if !self.endpoints.values().any(|other| *other == domain) {
            self.domains.remove(&domain);
        }
        OK
    }

    fn map(&mut self, domain: u32, first: u64, last: u64, physical: u64, flags: u32) -> u8 {
        let Some(mappings) = self.domains.get_mut(&domain) else { return NO_ENTRY };
        assert_eq!(first, physical, "a bus address is not its physical address");
        if !first.is_multiple_of(4096) || last % 4096 != 4095 || last < first {
            return RANGE;
        }
        let before = mappings.range(..=last).next_back();
        if before.is_some_and(|(_, (end, _))| *end >= first) {
            return INVALID;
        }
        mappings.insert(first, (last, flags));
        OK
    }

    fn unmap(&mut self, domain: u32, first: u64, last: u64) -> u8 {
        let Some(mappings) = self.domains.get_mut(&domain) else { return NO_ENTRY };
        let touched: Vec<(u64, u64)> = mappings
            .iter()
            .filter(|(start, (end, _))| **start <= last && *end >= first)
            .map(|(start, (end, _))| (*start, *end))
            .collect();
        if touched.iter().any(|(start, end)| *start < first || *end > last) {
            return RANGE;
        }
        for (start, _) in touched {
            mappings.remove(&start);
        }
        OK
    }
}
