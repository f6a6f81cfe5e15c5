//! The virtual address space, drawn once.
//!
//! ```text
//! 0000_0000_0000_0000  null guard, never mapped                          64 KiB
//! 0000_0000_0001_0000  APPLICATION: free for the application to manage   up to 112 TiB
//! 0000_7000_0000_0000  KERNEL-PLACED, each at a random 2 MiB boundary of its own 1 TiB window:
//!        +0 TiB          program image
//!        +1 TiB          first stack, guard pages on both sides
//!        +2 TiB          start page, arguments, environment (read only)
//!        +3 TiB          bulletin board (read only)
//!        +4 TiB          IPC channels, 1 GiB apart
//! 0000_7fff_ffff_f000  end of user space
//! ---------------------------------------------------------------- non-canonical
//! ffff_8000_0000_0000  direct map of physical memory (no execute): begins
//!                      at a random GiB of these                          64 TiB
//! ffff_c000_0000_0000  device registers the kernel uses (uncached)       up to 64 TiB
//! ffff_ffff_8000_0000  kernel image: at a random 2 MiB boundary of these   1 GiB
//! ```

use core::ops::Range;

/// Lowest address that can be mapped.
pub const USER_START: u64 = 0x1_0000;
/// End (exclusive) of what an application maps, protects and unmaps itself.
pub const APPLICATION_END: u64 = 0x7000_0000_0000;
/// End (exclusive) of user space.
pub const USER_END: u64 = 0x7fff_ffff_f000;
/// What each space of an application has for itself, whole entries of the root table: below the library, for
/// programs that were linked for a fixed address.
pub const OWN_LOW: Range<u64> = USER_START..1 << 40;
/// The same, above the library; what is neither in here nor there is the same in all its spaces.
pub const OWN_HIGH: Range<u64> = APPLICATION_END - (16 << 40)..APPLICATION_END;
/// Bytes of each kernel-placed window.
pub const WINDOW_BYTES: u64 = 1 << 40;
/// Window of the program image.
pub const IMAGE_WINDOW: u64 = APPLICATION_END;
/// Window of the first stack.
pub const STACK_WINDOW: u64 = APPLICATION_END + WINDOW_BYTES;
/// Window of the start page.
pub const START_WINDOW: u64 = APPLICATION_END + 2 * WINDOW_BYTES;
/// Window of the bulletin board.
pub const BOARD_WINDOW: u64 = APPLICATION_END + 3 * WINDOW_BYTES;
/// Window of the IPC channels.
pub const CHANNEL_WINDOW: u64 = APPLICATION_END + 4 * WINDOW_BYTES;
/// Distance between two channels in [`CHANNEL_WINDOW`].
pub const CHANNEL_STRIDE: u64 = 1 << 30;
/// Granularity of the random placement in each window.
pub const PLACEMENT_ALIGN: u64 = 2 << 20;

/// Start of what the kernel's direct map of physical memory is in, which begins at a random GiB of it.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;
/// Start of the kernel's uncached map of device registers; physical address `p` is at `DEVICE_MAP + p`.
pub const DEVICE_MAP: u64 = 0xffff_c000_0000_0000;
/// Where the kernel image is linked: physical address `p` of the image is at `KERNEL_IMAGE + p`, and so many
/// times [`KERNEL_SLOT`] behind it as the loader has chosen at random.
pub const KERNEL_IMAGE: u64 = 0xffff_ffff_8000_0000;
/// Distance between two places of the kernel image.
pub const KERNEL_SLOT: u64 = 2 << 20;
/// Places of the kernel image: its tables at boot map one GiB, of which it has up to 66 MiB.
pub const KERNEL_SLOTS: u64 = 512 - 33;
/// Physical address at which the loader starts, which unpacks the kernel.
pub const LOADER_LOAD: u64 = 0x10_0000;
/// Physical address at which the kernel image starts.
pub const KERNEL_LOAD: u64 = 0x11_0000;

/// Most processors a machine can have.
pub const CORES_MAX: usize = 64;
/// Most applications in one bundle.
pub const APPLICATIONS_MAX: usize = 64;
/// Most PCI functions the board can show.
pub const DEVICES_MAX: usize = 64;
/// Most channels in one bundle, and most that one application can have.
pub const CHANNELS_MAX: usize = 64;
