//! What the kernel tells the program at its start: board, arguments, environment, seed.

use core::sync::atomic::{AtomicPtr, Ordering};
use nom_abi::board::Board;
use nom_abi::memory::FRAME_BYTES;
use nom_abi::start::{Start, Strings};

pub use nom_port::termination::Termination;

static START: AtomicPtr<Start> = AtomicPtr::new(core::ptr::null_mut());

/// Remembers the start page.
///
/// # Safety
/// `page` is the start page that the kernel mapped: valid, never written, mapped as long as the program runs.
#[cfg(target_os = "none")]
pub(crate) unsafe fn set(page: *const Start) {
    START.store(page.cast_mut(), Ordering::Release);
}

/// The start page.
pub fn info() -> &'static Start {
    // SAFETY: `set` ran before any code outside of this crate, with a page that stays valid.
    unsafe { &*START.load(Ordering::Acquire) }
}

/// The bulletin board.
pub fn board() -> &'static Board {
    board_of(info())
}

/// The same, for who has the start page already.
#[inline]
pub(crate) fn board_of(info: &Start) -> &'static Board {
    // SAFETY: the kernel maps a board at that address for as long as the program runs; all its fields are
    // atomics, so that the kernel's writes are no data races.
    unsafe { &*(info.board as *const Board) }
}

/// The program's own index on the board.
pub fn application() -> usize {
    info().application as usize
}

/// The arguments from the manifest and the command line, in order.
pub fn args() -> impl Iterator<Item = &'static str> {
    strings(info().arguments)
}

/// The environment, as names and values.
pub fn vars() -> impl Iterator<Item = (&'static str, &'static str)> {
    strings(info().environment).filter_map(|entry| entry.split_once('='))
}

/// The value of an environment variable.
pub fn var(name: &str) -> Option<&'static str> {
    vars().find_map(|(key, value)| (key == name).then_some(value))
}

/// 32 random bytes, different at each start of the program.
pub fn seed() -> &'static [u8; 32] {
    &info().seed
}

/// The archive of the files that go along with the program, behind whose image it lies; the environment's
/// `files` says how many bytes it has. Nothing if there is none.
pub fn archive() -> &'static [u8] {
    let info = info();
    let Some(bytes) = var("files").and_then(|bytes| bytes.parse::<u64>().ok()) else { return &[] };
    let Some(start) = archive_start(info.image_bytes, bytes) else { return &[] };
    // SAFETY: the bytes lie in the program's image by the check above, in its last pages. The kernel maps
    // these read-only for as long as the program runs: the variable is set by what packs an image with an
    // archive, and refused in a manifest.
    unsafe { core::slice::from_raw_parts((info.image_base + start) as *const u8, bytes as usize) }
}

/// Offset of an archive of `bytes` bytes in an image that ends with it, on a page of its own.
fn archive_start(image_bytes: u64, bytes: u64) -> Option<u64> {
    image_bytes.checked_sub(bytes.checked_next_multiple_of(FRAME_BYTES)?)
}

fn strings(run: Strings) -> impl Iterator<Item = &'static str> {
    let page: *const Start = info();
    // SAFETY: the kernel maps the strings behind the start page, read-only, for as long as the program
    // runs, and `run` says where they lie.
    let bytes = unsafe {
        core::slice::from_raw_parts(page.cast::<u8>().add(run.offset as usize), run.bytes as usize)
    };
    split(bytes)
}

/// NUL-terminated strings; one that is not UTF-8 reads as the replacement character.
fn split(bytes: &[u8]) -> impl Iterator<Item = &str> {
    bytes
        .split_inclusive(|byte| *byte == 0)
        .map(|string| core::str::from_utf8(string.strip_suffix(&[0]).unwrap_or(string)).unwrap_or("\u{fffd}"))
}

#[cfg(test)]
mod tests {
    use super::{archive_start, split};

    #[test]
    fn an_archive_ends_the_image() {
        assert_eq!(archive_start(0x5000, 1), Some(0x4000));
        assert_eq!(archive_start(0x5000, 0x1001), Some(0x3000));
        assert_eq!(archive_start(0x5000, 0x5001), None);
        assert_eq!(archive_start(0x5000, u64::MAX), None);
    }

    #[test]
    fn strings_end_at_their_terminators() {
        assert!(split(b"").eq([""; 0]));
        assert!(split(b"a\0\0bc\0").eq(["a", "", "bc"]));
    }

    #[test]
    fn a_string_that_is_not_text_is_replaced() {
        assert!(split(b"\xff\0ok\0").eq(["\u{fffd}", "ok"]));
    }
}
