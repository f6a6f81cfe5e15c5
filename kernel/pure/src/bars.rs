//! Base address registers: sizing, and placing what firmware left unplaced.

/// One base address register's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Physical address of the first byte; 0 if it could not be placed.
    pub base: u64,
    /// Bytes, a power of two; 0 if absent or not memory.
    pub bytes: u64,
    /// Whether it is 64 bits wide.
    pub wide: bool,
    /// Whether reads have no side effects.
    pub prefetchable: bool,
}

impl Bar {
    /// No region.
    pub const ABSENT: Bar = Bar {
        base: 0,
        bytes: 0,
        wide: false,
        prefetchable: false,
    };

    /// The physical address of `length` bytes at `offset` of the region, whole pages: a region smaller
    /// than a page has the page to itself. `None` if the region is absent or ends before.
    pub fn pages(&self, offset: u64, length: u64) -> Option<u64> {
        let end = offset.checked_add(length)?;
        let present = self.base != 0 && self.bytes != 0;
        (present && end <= self.bytes.next_multiple_of(4096)).then_some(self.base + offset)
    }
}

/// Where registers can be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aperture {
    /// First address of the part below 4 GiB.
    pub base: u64,
    /// End of that part, exclusive.
    pub end: u64,
    /// First address above 4 GiB that is not RAM.
    pub high: u64,
}
