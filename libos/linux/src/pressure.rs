//! When memory ends: what is only kept goes back first ([`crate::machine`]), then the largest process ends,
//! so that the others go on, as under Linux's out-of-memory killer.
//!
//! Processes have memory of two kinds: pages of theirs, and what the library has for them, as bytes in pipes,
//! stacks of threads and what is written to files. The first ends at [`RESERVE_BYTES`], so that the second is
//! never refused: where it would be, the library could not go on, and with it all processes. So each call
//! that finds less than [`CALLS_RESERVE_BYTES`] has memory made free first.

use crate::family::ProcessFamily;
use crate::process::{Exit, Process};
use crate::signals::Signal;
use crate::task::STACK_BYTES;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use nom_app::sockets::Thread;
use nom_fs::{Errno, MemoryRoom};
use nom_sys::memory::obtainable;

/// What processes do not get as pages, so that the library can go on: ending a process takes memory, too.
pub(crate) const RESERVE_BYTES: u64 = 4 << 20;
/// With less than this no call begins before a process has ended: what one call takes fits into it.
pub(crate) const CALLS_RESERVE_BYTES: u64 = 3 << 20;
/// What files do not get: less than calls begin with, so that it is the largest process that makes room for
/// who writes, and not the writer who is refused.
pub(crate) const FILES_RESERVE_BYTES: u64 = 2 << 20;
/// What a descriptor takes that nothing waits in.
const DESCRIPTOR_BYTES: u64 = 256;
/// How often a call lets others go first, so that who ends can give back what the library had for it.
const TURNS_MAX: u32 = 64;
/// How many processes a report names.
const NAMED_MAX: usize = 8;

fn named(process: &Process) -> String {
    format!("{} ({})", process.id, String::from_utf8_lossy(&process.name()))
}

/// What is said when memory has ended: who has how much, and who ends.
fn report(all_bytes: u64, by_size: &[(u64, String)]) -> String {
    const KIB: u64 = 1024;
    let size = |(bytes, name): &(u64, String)| format!("{name} {} KiB", bytes / KIB);
    let first: Vec<String> = by_size.iter().take(NAMED_MAX).map(size).collect();
    let others = match by_size.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        count => format!(", and {count} smaller ones"),
    };
    format!(
        "memory is at its end: of {} KiB processes have {}{others}; process {}, the largest, ends by signal \
         {}, so that the others go on",
        all_bytes / KIB,
        first.join(", "),
        by_size.first().map_or("", |(_, name)| name),
        Signal::KILL.number()
    )
}

/// Bytes that are there because of a process: its pages, and what the library has for it.
fn bytes_of(process: &Process) -> u64 {
    let stacks = process.tasks.borrow().len() as u64 * STACK_BYTES as u64;
    process.memory().bytes().1 + stacks + process.descriptors.borrow().waiting_bytes(DESCRIPTOR_BYTES)
}

impl ProcessFamily {
    /// Gives back a part of what is only kept beside pages of text; whether there was anything.
    pub(crate) fn give_back(&self) -> bool {
        self.buffers.give_back() || self.vfs.try_borrow().is_ok_and(|vfs| vfs.give_back())
    }

    /// Whether the library can take so much for a call.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn check_room(&self, bytes: u64) -> Result<(), Errno> {
        if self.spaces.bytes(bytes) < bytes { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// Makes memory free for calls, by ending processes if there is no other way.
    #[cold]
    pub(crate) fn relieve_calls(&self, thread: &Thread<'_>, ends: impl Fn() -> bool) {
        let is_ending = |process: &Rc<Process>| process.ending.get().is_some() && !process.has_ended();
        let mut turns = 0;
        while obtainable() < CALLS_RESERVE_BYTES && !ends() {
            if self.spaces.give_back() {
                continue;
            }
            if turns < TURNS_MAX && self.processes().iter().any(is_ending) {
                turns += 1;
                thread.yield_now();
            } else if !self.end_largest() {
                return;
            }
        }
    }

    /// Ends the process that has most memory, which is free then; whether there was one.
    pub(crate) fn end_largest(&self) -> bool {
        let is_meant = |process: &Rc<Process>| {
            process.ending.get().is_none() && process.has_own_memory.get() && process.memory().bytes().1 > 0
        };
        let sized = |process: Rc<Process>| (bytes_of(&process), process);
        let mut all: Vec<_> = self.processes().into_iter().filter(is_meant).map(sized).collect();
        all.sort_by_key(|(bytes, _)| core::cmp::Reverse(*bytes));
        let Some((_, largest)) = all.first() else { return false };
        let by_size: Vec<_> = all.iter().map(|(bytes, process)| (*bytes, named(process))).collect();
        nom_app::println!("{}", report(crate::calls::system::memory_bytes().0, &by_size));
        let memory = largest.memory();
        for process in self.processes().iter().filter(|other| Rc::ptr_eq(&other.memory(), &memory)) {
            process.end(Exit::Signal(Signal::KILL));
        }
        // It runs no more; what its threads still do in calls finds no memory.
        memory.clear();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_who_has_how_much_and_who_ends() {
        let some = [(204_800, "7 (eater)".into()), (4096, "1 (sh)".into())];
        assert_eq!(
            report(262_144, &some),
            "memory is at its end: of 256 KiB processes have 7 (eater) 200 KiB, 1 (sh) 4 KiB; process 7 \
             (eater), the largest, ends by signal 9, so that the others go on"
        );
        let many: Vec<_> = (0..11).map(|id| (4096, format!("{id} (x)"))).collect();
        assert!(report(1 << 20, &many).contains("7 (x) 4 KiB, and 3 smaller ones; process 0 (x)"));
    }
}
