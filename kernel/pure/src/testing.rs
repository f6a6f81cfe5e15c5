//! What the tests of this crate share: a machine's memory that is not there, and how much to try.

use crate::frames::{BlockInfo, FrameInfo, Frames};
use crate::machine::PhysicalMemory;
use nom_abi::memory::FRAME_BYTES;
use proptest::test_runner::Config;
use std::collections::BTreeMap;

/// Frames that come into being when they are touched, full of rubbish: whoever needs zeros must write them.
#[derive(Debug, Default)]
pub struct FakeMemory {
    frames: BTreeMap<u64, Box<[u8; FRAME_BYTES as usize]>>,
}

impl FakeMemory {
    const RUBBISH: u8 = 0xa5;

    /// Memory that nobody has touched.
    pub fn new() -> FakeMemory {
        FakeMemory::default()
    }

    fn frame(&mut self, frame: u64) -> &mut [u8; FRAME_BYTES as usize] {
        self.frames.entry(frame).or_insert_with(|| Box::new([Self::RUBBISH; FRAME_BYTES as usize]))
    }

    fn byte(&self, address: u64) -> u8 {
        let frame = self.frames.get(&(address / FRAME_BYTES));
        frame.map_or(Self::RUBBISH, |frame| frame[(address % FRAME_BYTES) as usize])
    }
}

impl PhysicalMemory for FakeMemory {
    fn read(&self, address: u64) -> u64 {
        assert!(address.is_multiple_of(8), "misaligned read at {address:#x}");
        let offset = (address % FRAME_BYTES) as usize;
        let frame = self.frames.get(&(address / FRAME_BYTES));
        let bytes = frame.map_or([Self::RUBBISH; 8], |f| f[offset..offset + 8].try_into().expect("8 bytes"));
        u64::from_le_bytes(bytes)
    }

    fn write(&mut self, address: u64, value: u64) {
        assert!(address.is_multiple_of(8), "misaligned write at {address:#x}");
        self.write_bytes(address, &value.to_le_bytes());
    }

    fn read_bytes(&self, address: u64, bytes: &mut [u8]) {
        for (address, byte) in (address..).zip(bytes) {
            *byte = self.byte(address);
        }
    }

    fn write_bytes(&mut self, address: u64, bytes: &[u8]) {
        for (address, byte) in (address..).zip(bytes) {
            self.frame(address / FRAME_BYTES)[(address % FRAME_BYTES) as usize] = *byte;
        }
    }

    fn copy(&mut self, from: u64, to: u64, length: u64) {
        assert!(from + length <= to || to + length <= from, "the places overlap");
        let mut bytes = vec![0; length as usize];
        self.read_bytes(from, &mut bytes);
        self.write_bytes(to, &bytes);
    }

    fn zero_frames(&mut self, frame: u64, count: u64) {
        for frame in frame..frame + count {
            self.frame(frame).fill(0);
        }
    }
}

/// Room for the metadata of memory.
#[derive(Debug)]
pub struct Metadata {
    blocks: Vec<BlockInfo>,
    frames: Vec<FrameInfo>,
}

impl Metadata {
    /// Room for memory that ends before frame `end`.
    pub fn new(end: u64) -> Metadata {
        let blocks = Frames::blocks_for(end) as usize;
        Metadata {
            blocks: vec![BlockInfo::RESERVED; blocks],
            frames: vec![FrameInfo::default(); blocks * crate::frames::BLOCK_FRAMES as usize],
        }
    }

    /// Memory with no free frame yet.
    pub fn frames(&mut self) -> Frames<'_> {
        Frames::new(&mut self.blocks, &mut self.frames)
    }
}

/// Settings of a property test: `cases` of them, a few when Miri interprets, and no files written.
pub fn cases(cases: u32) -> Config {
    Config { cases: if cfg!(miri) { 3 } else { cases }, failure_persistence: None, ..Config::default() }
}
