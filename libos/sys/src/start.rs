//! What the kernel tells the program at its start: board, arguments, environment, seed.

use core::sync::atomic::{AtomicPtr, Ordering};
use nom_abi::board::Board;
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
    // SAFETY: the kernel maps a board at that address for as long as the program runs; all its fields are
    // atomics, so that the kernel's writes are no data races.
    unsafe { &*(info().board as *const Board) }
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
    use super::split;

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
