//! Base address registers: how large a function's regions are, and where they lie.
//!
//! The kernel places every region itself, each on pages of its own: an application that maps one never
//! sees another function's registers, nor another region of the same function.
//! Source: PCI Local Bus Specification 3.0, section 6.2.5.1.

use crate::machine::Registers;
use crate::pci::{Config, Ecam, offset};
use nom_abi::memory::FRAME_BYTES;

/// Lowest address at which regions are placed. Both of QEMU's machines decode PCI there and have no RAM.
const LOWEST: u64 = 0xc000_0000;
/// From here on come interrupt controllers and firmware.
const HIGHEST: u64 = 0xfec0_0000;
/// Granularity of the addresses that bridges forward.
pub(crate) const BRIDGE_ALIGN: u64 = 1 << 20;

/// One base address register's region; all zero if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bar {
    /// Physical address of the first byte; 0 if there was no room for it.
    pub base: u64,
    /// Bytes, a power of two; 0 if absent or not memory.
    pub bytes: u64,
    /// Whether it is 64 bits wide.
    pub wide: bool,
    /// Whether reads have no side effects.
    pub prefetchable: bool,
}

impl Bar {
    /// The physical address of `length` bytes at `offset` of the region. The region may be used up to the
    /// end of its last page: it has that page to itself. `None` if the region is absent or ends before.
    pub fn pages(&self, offset: u64, length: u64) -> Option<u64> {
        let end = offset.checked_add(length)?;
        let present = self.base != 0 && self.bytes != 0;
        (present && end <= self.bytes.next_multiple_of(FRAME_BYTES)).then_some(self.base + offset)
    }
}

/// Addresses from which regions are taken, lowest first; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// First address of the window.
    pub base: u64,
    /// First address not taken yet.
    pub next: u64,
    /// End, exclusive.
    pub end: u64,
}

impl Window {
    /// The addresses `[base, end)`, none taken.
    pub const fn new(base: u64, end: u64) -> Window {
        Window { base, next: base, end }
    }

    /// The machine's addresses for PCI registers below 4 GiB: behind RAM, before the interrupt
    /// controllers, and on the near side of configuration space, for `microvm` decodes none beyond it.
    pub fn of_machine(ecam: &Ecam, low_memory_end: u64) -> Window {
        let mut base = LOWEST.max(low_memory_end.next_multiple_of(BRIDGE_ALIGN));
        let mut end = HIGHEST;
        if (base..end).contains(&ecam.base) && ecam.start() > base {
            end = ecam.start();
        } else if ecam.start() <= base && base < ecam.end() {
            base = ecam.end();
        }
        if base < end { Window::new(base, end) } else { Window::default() }
    }

    /// Takes `bytes`, aligned to `align` (a power of two). `None`, with nothing taken, if they do not fit.
    pub fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let start = self.next.checked_next_multiple_of(align)?;
        let end = start.checked_add(bytes).filter(|end| *end <= self.end)?;
        self.next = end;
        Some(start)
    }
}

/// Sizes the first `count` base address registers of a function that does not decode addresses. They are
/// left with no address.
pub(crate) fn size<R: Registers>(config: &mut Config<R>, count: usize) -> [Bar; 6] {
    let mut bars = [Bar::default(); 6];
    let mut index = 0;
    while index < count {
        bars[index] = size_one(config, index, index + 1 < count);
        index += if bars[index].wide { 2 } else { 1 };
    }
    bars
}

/// Sizes one register; `may_be_wide` says that another register follows.
fn size_one<R: Registers>(config: &mut Config<R>, index: usize, may_be_wide: bool) -> Bar {
    const IO: u32 = 1;
    const WIDE: u32 = 2 << 1;
    const PREFETCHABLE: u32 = 1 << 3;
    const FLAGS: u32 = 0xf;

    let low = probe(config, index);
    if low & IO != 0 || low & !FLAGS == 0 && low & WIDE == 0 {
        return Bar::default();
    }
    let wide = may_be_wide && low & WIDE != 0;
    let high = if wide { probe(config, index + 1) } else { u32::MAX };
    let writable = u64::from(high) << 32 | u64::from(low & !FLAGS);
    // The lowest address bit that can be written is the size.
    let bytes = if writable == 0 { 0 } else { 1 << writable.trailing_zeros() };
    Bar { base: 0, bytes, wide, prefetchable: low & PREFETCHABLE != 0 }
}

/// Bits of a register that read as one after all were written as one; the register is zero afterwards.
fn probe<R: Registers>(config: &mut Config<R>, index: usize) -> u32 {
    let register = register(index);
    config.write32(register, u32::MAX);
    let value = config.read32(register);
    config.write32(register, 0);
    value
}

/// Gives every region a place in `window`; one for which there is no room keeps base 0.
pub(crate) fn place(bars: &mut [Bar; 6], window: &mut Window) {
    for bar in bars.iter_mut().filter(|bar| bar.bytes != 0) {
        let bytes = bar.bytes.max(FRAME_BYTES);
        bar.base = window.take(bytes, bytes).unwrap_or(0);
    }
}

/// Writes the regions' places into the registers.
pub(crate) fn program<R: Registers>(config: &mut Config<R>, bars: &[Bar; 6]) {
    for (index, bar) in bars.iter().enumerate().filter(|(_, bar)| bar.bytes != 0) {
        config.write32(register(index), bar.base as u32);
        if bar.wide {
            config.write32(register(index + 1), (bar.base >> 32) as u32);
        }
    }
}

fn register(index: usize) -> u16 {
    offset::BAR0 + 4 * index as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_and_has_its_place_is_mapped() {
        let bar = |base, bytes| Bar { base, bytes, ..Bar::default() };
        assert_eq!(bar(0xd000_0000, 0x100).pages(0, 0x1000), Some(0xd000_0000), "its last page is its own");
        assert_eq!(bar(0xd000_0000, 0x2000).pages(0x1000, 0x1000), Some(0xd000_1000));
        assert_eq!(bar(0xd000_0000, 0x2000).pages(0x1000, 0x1001), None);
        assert_eq!(bar(0xd000_0000, 0x2000).pages(u64::MAX, 2), None);
        assert_eq!(bar(0, 0x1000).pages(0, 0x1000), None, "there was no room for it");
        assert_eq!(bar(0xd000_0000, 0).pages(0, 0), None, "there is none");
    }

    /// Of the addresses below 4 GiB, what is neither memory nor configuration space.
    #[test]
    fn registers_are_where_nothing_else_is() {
        let window = |base: u64, last_bus: u8, memory: u64| {
            let Window { base, end, .. } = Window::of_machine(&Ecam { base, first_bus: 0, last_bus }, memory);
            (base, end)
        };
        assert_eq!(window(0xb000_0000, 255, 1 << 30), (LOWEST, HIGHEST), "q35: it ends where they begin");
        assert_eq!(window(0xe000_0000, 255, 1 << 30), (LOWEST, 0xe000_0000), "microvm: it is behind them");
        assert_eq!(window(LOWEST, 15, 1 << 30), (LOWEST + (16 << 20), HIGHEST), "where they would begin");
        assert_eq!(window(LOWEST - (1 << 20), 1, 1 << 30), (LOWEST + (1 << 20), HIGHEST), "across that");
        assert_eq!(window(0xb000_0000, 0, 0xd123_4567), (0xd130_0000, HIGHEST), "behind memory");
        assert_eq!(window(0xb000_0000, 0, HIGHEST), (0, 0), "there is no room");
    }
}
