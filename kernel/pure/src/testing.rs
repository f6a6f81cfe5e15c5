//! What the tests of this crate share: a machine's memory that is not there, and how much to try.

use crate::frames::{BlockInfo, FrameInfo, Frames};
use crate::ids::{AppId, CoreId};
use crate::machine::{Frame, PhysAddr, PhysicalMemory, UserAddr};
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
}

/// The parts of `length` bytes at `address`, split at frames: (frame, offset in it, bytes).
fn pieces(address: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let (mut next, end) = (address, address + length as u64);
    std::iter::from_fn(move || {
        let (frame, offset) = (next / FRAME_BYTES, next % FRAME_BYTES);
        let piece = (end - next).min(FRAME_BYTES - offset);
        next += piece;
        (piece > 0).then_some((frame, offset as usize, piece as usize))
    })
}

/// What tests, and devices, which know addresses as words, do with it.
impl FakeMemory {
    /// Reads the aligned 64-bit word at `address`.
    pub fn read(&self, address: u64) -> u64 {
        assert!(address.is_multiple_of(8), "misaligned read at {address:#x}");
        let Some(frame) = self.frames.get(&(address / FRAME_BYTES)) else {
            return u64::from_le_bytes([Self::RUBBISH; 8]);
        };
        let word = frame[(address % FRAME_BYTES) as usize..].first_chunk();
        u64::from_le_bytes(*word.expect("an aligned word does not cross a frame's end"))
    }

    /// Writes the aligned 64-bit word at `address`.
    pub fn write(&mut self, address: u64, value: u64) {
        assert!(address.is_multiple_of(8), "misaligned write at {address:#x}");
        let place = (address % FRAME_BYTES) as usize;
        self.frame(address / FRAME_BYTES)[place..place + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Fills `bytes` from `address` on.
    pub fn read_bytes(&self, address: u64, mut bytes: &mut [u8]) {
        for (frame, offset, length) in pieces(address, bytes.len()) {
            let (piece, rest) = bytes.split_at_mut(length);
            match self.frames.get(&frame) {
                Some(frame) => piece.copy_from_slice(&frame[offset..offset + length]),
                None => piece.fill(Self::RUBBISH),
            }
            bytes = rest;
        }
    }

    /// Copies `bytes` to `address`.
    pub fn write_bytes(&mut self, address: u64, mut bytes: &[u8]) {
        for (frame, offset, length) in pieces(address, bytes.len()) {
            let (piece, rest) = bytes.split_at(length);
            self.frame(frame)[offset..offset + length].copy_from_slice(piece);
            bytes = rest;
        }
    }

    /// Fills frames with zeros.
    pub fn zero_frames(&mut self, frame: Frame, count: u64) {
        for frame in frame.number()..frame.number() + count {
            self.frame(frame).fill(0);
        }
    }
}

impl PhysicalMemory for FakeMemory {
    fn read(&self, address: PhysAddr) -> u64 {
        self.read(address.word())
    }

    fn write(&mut self, address: PhysAddr, value: u64) {
        self.write(address.word(), value);
    }

    fn read_bytes(&self, address: PhysAddr, bytes: &mut [u8]) {
        self.read_bytes(address.word(), bytes);
    }

    fn write_bytes(&mut self, address: PhysAddr, bytes: &[u8]) {
        self.write_bytes(address.word(), bytes);
    }

    fn zero_frames(&mut self, frame: Frame, count: u64) {
        self.zero_frames(frame, count);
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

/// How much to try: all of it, or little enough for Miri, which interprets a thousand times slower.
pub fn effort<T>(full: T, interpreted: T) -> T {
    if cfg!(miri) { interpreted } else { full }
}

/// Settings of a property test: `cases` of them, and no files written.
pub fn cases(cases: u32) -> Config {
    Config { cases: effort(cases, 3), failure_persistence: None, ..Config::default() }
}

/// A pointer of an application's.
pub fn user(word: u64) -> UserAddr {
    UserAddr::pointer(word).expect("it is in user space")
}

/// The core with this number.
pub const fn on(number: usize) -> CoreId {
    CoreId::new(number)
}

/// The application with this number.
pub const fn app(number: usize) -> AppId {
    AppId::new(number)
}
