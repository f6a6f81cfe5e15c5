//! The kernel's half of the address space, page by page, as the processor walks it (Intel SDM vol. 3A, 4.5).

use crate::report::Report;
use core::ops::Range;
use nom_abi::layout::{
    CORES_MAX, DEVICE_MAP, DIRECT_MAP, KERNEL_IMAGE, KERNEL_LOAD, KERNEL_SLOT, KERNEL_SLOTS,
};
use nom_kernel_pure::machine::PhysAddr;
use nom_kernel_x86::direct;

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const UNCACHED: u64 = 1 << 3 | 1 << 4;
const LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Kernel stacks: four slots a core, each stack at its slot's top, nothing below it.
const STACKS: Range<u64> = 0xffff_e000_0000_0000..0xffff_e000_0000_0000 + 4 * CORES_MAX as u64 * STACK_SLOT;
const STACK_SLOT: u64 = 64 << 10;
/// Bytes of a core's stack, and of those of exceptions with one of their own.
const STACK_BYTES: [u64; 2] = [16 << 10, 4 << 10];
const DEVICES: Range<u64> = DEVICE_MAP..STACKS.start;

unsafe extern "C" {
    static kernel_start: u8;
    static kernel_text_end: u8;
    static kernel_rodata_end: u8;
    static kernel_end: u8;
}

/// A page that is mapped.
#[derive(Clone, Copy)]
struct Page {
    address: u64,
    bytes: u64,
    physical: u64,
    /// [`WRITE`] and [`USER`] if every entry on the way has them, [`NO_EXECUTE`] if any has; the others are
    /// the last entry's.
    rights: u64,
    /// Whether any entry on the way has [`USER`].
    user_anywhere: bool,
}

impl Page {
    fn may(&self, right: u64) -> bool {
        self.rights & right != 0
    }

    fn is_in(&self, range: &Range<u64>) -> bool {
        range.start <= self.address && self.address + self.bytes <= range.end
    }

    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.address < range.end && range.start < self.address + self.bytes
    }
}

/// An address space.
pub struct Map {
    root: u64,
}

/// The word at a physical address of a page table.
fn word(address: u64) -> u64 {
    // SAFETY: page tables are memory, which the direct map covers; only this processor runs.
    unsafe { (direct(PhysAddr::new(address)) as *const u64).read_volatile() }
}

impl Map {
    /// The one with its root at a physical address.
    pub fn read(root: u64) -> Map {
        Map { root: root & ADDRESS }
    }

    /// Calls `f` with every page that is mapped, by ascending address.
    fn for_each(&self, f: &mut impl FnMut(Page)) {
        let all = Page { address: 0, bytes: 0, physical: 0, rights: WRITE | USER, user_anywhere: false };
        walk(self.root, 4, all, f);
    }

    /// Whether an address is mapped and may be written.
    pub fn is_writable(&self, address: u64) -> bool {
        let mut found = false;
        self.for_each(&mut |page| {
            found |= page.overlaps(&(address..address + 1)) && page.may(WRITE);
        });
        found
    }

    /// Number of processors: each has four stacks.
    pub fn cores(&self) -> usize {
        let mut bytes = 0;
        self.for_each(&mut |page| bytes += if page.is_in(&STACKS) { page.bytes } else { 0 });
        (bytes / (STACK_BYTES[0] + 3 * STACK_BYTES[1])) as usize
    }

    /// Compares it with the layout.
    pub fn check(&self, report: &mut Report) {
        let layout = Layout::read();
        let mut executable = 0;
        self.for_each(&mut |page| {
            let Page { address, physical, rights, .. } = page;
            let require = |report: &mut Report, holds: bool, what: &str| {
                let all = format_args!("page {address:#x} of {physical:#x} (flags {rights:#x}): {what}");
                report.require(holds, all);
            };
            require(report, address >= DIRECT_MAP, "mapped below the kernel's half");
            require(report, !page.user_anywhere, "ring 3 may enter a table that leads there");
            let both = page.may(WRITE) && !page.may(NO_EXECUTE);
            require(report, !both, "writable and executable");
            let place = layout.expects(&page);
            require(report, place.is_some(), "nothing belongs here");
            if let Some(expected) = place {
                require(report, physical == expected.physical, "another place's memory");
                require(report, page.may(WRITE) == expected.writable, "writable or not, the wrong way");
                require(report, page.may(NO_EXECUTE) != expected.executable, "executable, the wrong way");
                let uncached = rights & UNCACHED == UNCACHED;
                require(report, uncached == expected.uncached, "cached, the wrong way");
            }
            executable += if page.may(NO_EXECUTE) { 0 } else { page.bytes };
        });
        let base = direct(PhysAddr::new(0));
        let is_placed = base.is_multiple_of(1 << 30) && (DIRECT_MAP..DEVICE_MAP).contains(&base);
        report.require(is_placed, format_args!("the direct map at {base:#x} is out of its part"));
        report.note(format_args!("direct map at {base:#x}"));
        let image = layout.base;
        let slide = image.wrapping_sub(KERNEL_IMAGE);
        let is_placed = slide.is_multiple_of(KERNEL_SLOT) && slide / KERNEL_SLOT < KERNEL_SLOTS;
        report.require(is_placed, format_args!("the image at {image:#x} is out of its part"));
        report.note(format_args!("image at {image:#x}"));
        report.equal("bytes that can be executed", executable, layout.text.end - layout.text.start);
        self.check_stacks(report);
        report.end();
    }

    /// Of each slot the top is a stack, and nothing below it is mapped.
    fn check_stacks(&self, report: &mut Report) {
        self.for_each(&mut |page| {
            if page.is_in(&STACKS) {
                let (slot, offset) =
                    ((page.address - STACKS.start) / STACK_SLOT, (page.address - STACKS.start) % STACK_SLOT);
                let bytes = STACK_BYTES[usize::from(slot % 4 != 0)];
                let what = format_args!("page {:#x} is where a stack's guard belongs", page.address);
                report.require(offset >= STACK_SLOT - bytes, what);
            }
        });
    }
}

/// Whether `top` is that of a stack.
pub fn is_stack_top(top: u64) -> bool {
    top.is_multiple_of(STACK_SLOT) && STACKS.contains(&(top - 1))
}

/// Whether code of the kernel is at an address.
pub fn is_text(address: u64) -> bool {
    Layout::read().text.contains(&address)
}

/// What a page must be.
struct Expected {
    physical: u64,
    writable: bool,
    executable: bool,
    uncached: bool,
}

/// Where the parts of the image end, and the bundle behind it.
struct Layout {
    /// Where physical address 0 would be, if the image began there.
    base: u64,
    text: Range<u64>,
    constants: Range<u64>,
    variables: Range<u64>,
    /// Physical addresses of what nobody writes: the image and the bundle.
    constant: Range<u64>,
}

impl Layout {
    fn read() -> Layout {
        let [start, text_end, constants_end, end] = [
            &raw const kernel_start,
            &raw const kernel_text_end,
            &raw const kernel_rodata_end,
            &raw const kernel_end,
        ]
        .map(|symbol| symbol as u64);
        let base = start - KERNEL_LOAD;
        let bundle = end - base;
        // The bundle's header: its bytes are the upper half of the second word.
        let bundle_end = (bundle + (word(bundle + 8) >> 32)).next_multiple_of(4096);
        Layout {
            base,
            text: start..text_end,
            constants: text_end..constants_end,
            variables: constants_end..end,
            constant: KERNEL_LOAD..bundle_end,
        }
    }

    /// What a page must be, if it belongs anywhere.
    fn expects(&self, page: &Page) -> Option<Expected> {
        let plain = Expected {
            physical: page.address.wrapping_sub(self.base),
            writable: false,
            executable: false,
            uncached: false,
        };
        if page.is_in(&self.text) {
            Some(Expected { executable: true, ..plain })
        } else if page.is_in(&self.constants) {
            Some(plain)
        } else if page.is_in(&self.variables) {
            Some(Expected { writable: true, ..plain })
        } else if page.is_in(&STACKS) {
            Some(Expected { physical: page.physical, writable: true, ..plain })
        } else if page.is_in(&DEVICES) {
            let physical = page.address - DEVICE_MAP;
            Some(Expected { physical, writable: true, uncached: true, ..plain })
        } else if page.is_in(&(direct(PhysAddr::new(0))..DEVICE_MAP)) {
            let physical = page.address - direct(PhysAddr::new(0));
            let here = Page { address: physical, ..*page };
            // A page that is partly constant may not be written either.
            Some(Expected { physical, writable: !here.overlaps(&self.constant), ..plain })
        } else {
            None
        }
    }
}

/// Walks a table of a level (4 to 1); `above` is what the entries above it say.
fn walk(table: u64, level: u32, above: Page, f: &mut impl FnMut(Page)) {
    let shift = 12 + 9 * (level - 1);
    for index in 0..512_u64 {
        let entry = word(table + index * 8);
        if entry & PRESENT == 0 {
            continue;
        }
        let mut address = above.address | index << shift;
        if level == 4 && index >= 256 {
            address |= 0xffff << 48;
        }
        let rights =
            above.rights & entry & (WRITE | USER) | (above.rights | entry) & NO_EXECUTE | entry & UNCACHED;
        let user_anywhere = above.user_anywhere || entry & USER != 0;
        let bytes = 1 << shift;
        let physical = entry & ADDRESS & !(bytes - 1);
        let page = Page { address, bytes, physical, rights, user_anywhere };
        if level == 1 || entry & LARGE != 0 {
            f(page);
        } else {
            walk(entry & ADDRESS, level - 1, page, f);
        }
    }
}
