//! When memory ends: what is kept of programs goes back first ([`crate::machine`]), then the largest process
//! ends, so that the others go on, as under Linux's out-of-memory killer.

use crate::family::ProcessFamily;
use crate::process::{Exit, Process};
use crate::signals::Signal;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

/// What processes do not get, so that the library can go on: ending a process takes memory, too.
pub(crate) const RESERVE_BYTES: u64 = 4 << 20;
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

impl ProcessFamily {
    /// Ends the process that has most memory, which is free then; whether there was one.
    pub(crate) fn end_largest(&self) -> bool {
        let is_meant = |process: &Rc<Process>| {
            process.ending.get().is_none() && process.has_own_memory.get() && process.memory().bytes().1 > 0
        };
        let mut all: Vec<_> = self.processes().into_iter().filter(is_meant).collect();
        all.sort_by_key(|process| core::cmp::Reverse(process.memory().bytes().1));
        let Some(largest) = all.first() else { return false };
        let by_size: Vec<_> =
            all.iter().map(|process| (process.memory().bytes().1, named(process))).collect();
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
