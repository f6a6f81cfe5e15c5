//! Which of the computer's processors a machine and its clients run on, while something is measured.
//!
//! A virtual processor that polls is always busy. Where there are hardly more real ones, Linux's scheduler
//! now and then puts QEMU's main loop or a client beside it, for some hundred milliseconds each time, and
//! the machine serves half as much meanwhile. So whoever measures keeps them apart, whatever the guest is.

use crate::command::file;
use crate::qmp::Monitor;
use anyhow::{Context, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;

/// A machine's virtual processors on processors of their own; everything else of QEMU, and every thread of
/// this process with what it starts, on the others. Over when it is dropped.
#[derive(Debug)]
pub struct Placement {
    /// Where this process could run before.
    before: CpuSet,
}

impl Placement {
    /// Places the QEMU of this process id that was started in `directory`; nothing where no processor would
    /// be left for the rest.
    ///
    /// # Errors
    /// If QEMU's monitor does not answer, or Linux refuses.
    pub fn apart(directory: &Path, process: u32) -> Result<Option<Placement>> {
        let before = sched_getaffinity(None).context("where this process may run")?;
        let processors = virtual_processors(directory)?;
        let Some((own, rest)) = divide(&before, processors.len()) else { return Ok(None) };
        for thread in threads(process)? {
            let processor = processors.iter().position(|known| *known == thread);
            place(thread, processor.map_or(&rest, |index| &own[index]))?;
        }
        let placement = Placement { before };
        placement.place_this_process(&rest)?;
        Ok(Some(placement))
    }

    fn place_this_process(&self, set: &CpuSet) -> Result<()> {
        threads(std::process::id())?.into_iter().try_for_each(|thread| place(thread, set))
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        // What could be narrowed can be widened again; when a measurement is over, nobody is left to tell.
        let _ = self.place_this_process(&self.before);
    }
}

/// The threads that execute a guest's instructions, in the order of its processors.
fn virtual_processors(directory: &Path) -> Result<Vec<u32>> {
    let mut monitor = Monitor::connect(directory, file::MONITOR)?;
    let answer = monitor.execute("query-cpus-fast", json!({}))?;
    let threads = answer.as_array().map(|processors| {
        processors
            .iter()
            .filter_map(|processor| u32::try_from(processor["thread-id"].as_u64()?).ok())
            .collect()
    });
    threads.with_context(|| format!("QEMU names its processors as {answer}"))
}

/// One processor for each of `count`, from the last downwards, and the rest; nothing if there is no rest.
fn divide(all: &CpuSet, count: usize) -> Option<(Vec<CpuSet>, CpuSet)> {
    let mut rest: BTreeSet<usize> = (0..CpuSet::MAX_CPU).filter(|index| all.is_set(*index)).collect();
    let own = (0..count).map_while(|_| rest.pop_last()).map(|index| set([index])).collect::<Vec<_>>();
    (own.len() == count && !rest.is_empty()).then(|| (own, set(rest)))
}

fn set(processors: impl IntoIterator<Item = usize>) -> CpuSet {
    let mut set = CpuSet::new();
    processors.into_iter().for_each(|index| set.set(index));
    set
}

fn threads(process: u32) -> Result<Vec<u32>> {
    let path = format!("/proc/{process}/task");
    let threads = std::fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?;
    let names = threads.filter_map(|thread| thread.ok()?.file_name().into_string().ok()?.parse().ok());
    Ok(names.collect())
}

/// Moves a thread, unless it has ended.
fn place(thread: u32, set: &CpuSet) -> Result<()> {
    let id = i32::try_from(thread).ok().and_then(Pid::from_raw).context("thread 0")?;
    match sched_setaffinity(Some(id), set) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot place thread {thread}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_virtual_processor_has_one_of_its_own_if_any_is_left_for_the_rest() {
        let all = set([0, 2, 5]);
        let (own, rest) = divide(&all, 2).expect("three are enough");
        assert_eq!((own, rest), (vec![set([5]), set([2])], set([0])));
        assert!(divide(&all, 3).is_none(), "nothing would be left");
        assert!(divide(&all, 4).is_none());
    }

    #[test]
    fn this_process_is_where_it_was_when_all_is_over() {
        let before = sched_getaffinity(None).expect("known");
        let first = (0..CpuSet::MAX_CPU).find(|index| before.is_set(*index)).expect("it runs somewhere");
        let placement = Placement { before };
        placement.place_this_process(&set([first])).expect("allowed");
        assert_eq!(sched_getaffinity(None).expect("known"), set([first]));
        drop(placement);
        assert_eq!(sched_getaffinity(None).expect("known"), before);
    }
}
