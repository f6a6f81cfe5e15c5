//! Memory that driver and device see.

use nom_port::device::{Dma, DmaBlock};
use std::alloc::{Layout, alloc_zeroed};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::rc::Rc;

/// Bus addresses begin above 4 GiB, so that a driver that forgets their upper half is found out.
const FIRST_BUS: u64 = 0x12_0000_0000;
const PAGE: usize = 4096;

/// All memory of a test. Clones are the same memory. What is not released is never freed: a driver leaves its
/// rings behind.
#[derive(Clone, Debug)]
pub struct FakeMemory(Rc<RefCell<Blocks>>);

#[derive(Debug)]
struct Blocks {
    blocks: Vec<DmaBlock>,
    left: usize,
    next_bus: u64,
}

impl FakeMemory {
    /// Memory that gives out up to `bytes`.
    pub fn new(bytes: usize) -> FakeMemory {
        FakeMemory(Rc::new(RefCell::new(Blocks { blocks: Vec::new(), left: bytes, next_bus: FIRST_BUS })))
    }

    /// Bytes that are given out.
    pub fn held(&self) -> usize {
        self.0.borrow().blocks.iter().map(|block| block.bytes).sum()
    }

    /// Address of `bytes` at `bus`, which must lie in one block: a real device would be stopped by an IOMMU.
    fn at(&self, bus: u64, bytes: usize) -> *mut u8 {
        let inside =
            |block: &&DmaBlock| bus >= block.bus && bus + bytes as u64 <= block.bus + block.bytes as u64;
        let blocks = self.0.borrow();
        let block = blocks.blocks.iter().find(inside);
        let block = block.unwrap_or_else(|| panic!("{bytes} bytes at bus address {bus:#x} are no memory"));
        // SAFETY: the offset is inside the block.
        unsafe { block.pointer.as_ptr().add((bus - block.bus) as usize) }
    }

    /// What lies at `bus`.
    pub fn read(&self, bus: u64, bytes: usize) -> Vec<u8> {
        let mut target = vec![0; bytes];
        // SAFETY: `at` checked that the source is memory, which is initialised; the target is other memory.
        unsafe { self.at(bus, bytes).copy_to_nonoverlapping(target.as_mut_ptr(), bytes) };
        target
    }

    /// Writes to `bus`.
    pub fn write(&self, bus: u64, bytes: &[u8]) {
        // SAFETY: as in `read`; that nobody has a reference to what is overwritten is what the tests, under
        // Miri, show.
        unsafe { self.at(bus, bytes.len()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// The 16 bits at `bus`.
    pub fn read16(&self, bus: u64) -> u16 {
        u16::from_le_bytes(self.read(bus, 2).try_into().unwrap())
    }

    /// The 32 bits at `bus`.
    pub fn read32(&self, bus: u64) -> u32 {
        u32::from_le_bytes(self.read(bus, 4).try_into().unwrap())
    }

    /// The 64 bits at `bus`.
    pub fn read64(&self, bus: u64) -> u64 {
        u64::from_le_bytes(self.read(bus, 8).try_into().unwrap())
    }

    /// Writes 16 bits to `bus`.
    pub fn write16(&self, bus: u64, value: u16) {
        self.write(bus, &value.to_le_bytes());
    }

    /// Writes 32 bits to `bus`.
    pub fn write32(&self, bus: u64, value: u32) {
        self.write(bus, &value.to_le_bytes());
    }
}

impl Dma for FakeMemory {
    fn allocate(&mut self, bytes: usize) -> Option<DmaBlock> {
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        let mut blocks = self.0.borrow_mut();
        blocks.left = blocks.left.checked_sub(bytes)?;
        // A hole behind every block, so that what runs over is found out; and no address twice.
        let bus = blocks.next_bus;
        blocks.next_bus += (bytes + PAGE) as u64;
        let layout = Layout::from_size_align(bytes, PAGE).unwrap();
        // SAFETY: the size is not 0.
        let pointer = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        blocks.blocks.push(DmaBlock { pointer, bus, bytes });
        blocks.blocks.last().copied()
    }

    fn release(&mut self, block: DmaBlock) {
        let mut blocks = self.0.borrow_mut();
        let index = blocks.blocks.iter().position(|known| *known == block).expect("it was given out");
        blocks.blocks.swap_remove(index);
        blocks.left += block.bytes;
        let layout = Layout::from_size_align(block.bytes, PAGE).unwrap();
        // SAFETY: it was allocated with this layout, and is given back once, since it was among the blocks.
        unsafe { std::alloc::dealloc(block.pointer.as_ptr(), layout) };
    }
}

/// Bus addresses and lengths of the first blocks that were given out.
pub fn first_blocks(memory: &FakeMemory, count: usize) -> Vec<(u64, usize)> {
    memory.0.borrow().blocks.iter().take(count).map(|block| (block.bus, block.bytes)).collect()
}
