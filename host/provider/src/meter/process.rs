//! A machine seen from outside: the process of its monitor, as Linux accounts for it (proc(5)).

use super::energy::{Energy, POWERCAP};
use super::holdings::{Probe, Sample};
use nom_vmm::qemu::ProcessIdentity;
use std::fs;
use std::path::Path;

/// First letters of the names of QEMU's threads that are virtual processors (its option `debug-threads`).
const VIRTUAL: [&str; 2] = ["CPU ", "ALL CPUs"];
/// Linux's unit of processor time here (USER_HZ), in nanoseconds.
const TICK_NS: u64 = 10_000_000;
/// Fields of a process's line, behind its name: time in user mode and in the kernel.
const USER_TICKS: usize = 11;
const KERNEL_TICKS: usize = 12;
/// Columns of the computer's line that are idleness, and those that count twice (guests).
const IDLE: [usize; 4] = [3, 4, 8, 9];

/// A machine's monitor.
#[derive(Debug)]
pub struct Process {
    identity: ProcessIdentity,
    energy: Result<Share, String>,
}

/// The machine's part of the computer's energy.
#[derive(Debug)]
struct Share {
    energy: Energy,
    last: Shares,
    own_uj: f64,
}

/// Energy and processor time so far.
#[derive(Clone, Copy, Debug, Default)]
struct Shares {
    energy_uj: u64,
    own_ticks: u64,
    all_ticks: u64,
}

impl Process {
    /// The machine whose monitor is that process.
    pub fn new(identity: ProcessIdentity) -> Process {
        let energy = Energy::open(Path::new(POWERCAP)).map_err(|error| format!("{error:#}"));
        let energy = energy.map(|mut energy| {
            let last = Shares::read(&mut energy, identity.id).unwrap_or_default();
            Share { energy, last, own_uj: 0.0 }
        });
        Process { identity, energy }
    }
}

impl Probe for Process {
    fn read(&mut self) -> Option<Sample> {
        if !self.identity.is_running() {
            return None;
        }
        let id = self.identity.id;
        let energy_uj = self.energy.as_mut().map_or(0, |share| share.advance(id));
        Some(Sample { virtual_ns: virtual_ns(id)?, energy_uj })
    }

    fn energy_refused(&self) -> Option<&str> {
        self.energy.as_ref().err().map(String::as_str)
    }
}

impl Share {
    fn advance(&mut self, id: u32) -> u64 {
        if let Some(now) = Shares::read(&mut self.energy, id) {
            self.own_uj += now.since(self.last);
            self.last = now;
        }
        self.own_uj as u64
    }
}

impl Shares {
    fn read(energy: &mut Energy, id: u32) -> Option<Shares> {
        let own_ticks = own_ticks(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?;
        let all_ticks = all_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
        Some(Shares { energy_uj: energy.read(), own_ticks, all_ticks })
    }

    /// Microjoules since `last`: the computer's, by the process's share of the processor time that was used.
    fn since(self, last: Shares) -> f64 {
        let own = self.own_ticks.saturating_sub(last.own_ticks) as f64;
        let all = self.all_ticks.saturating_sub(last.all_ticks) as f64;
        let energy = self.energy_uj.saturating_sub(last.energy_uj) as f64;
        if all > 0.0 { energy * (own / all).min(1.0) } else { 0.0 }
    }
}

/// Processor time of a monitor's virtual processors, in nanoseconds.
fn virtual_ns(id: u32) -> Option<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{id}/task")).ok()?.flatten() {
        let directory = thread.path();
        // A thread may end at any time.
        let Ok(name) = fs::read_to_string(directory.join("comm")) else { continue };
        if VIRTUAL.iter().any(|first| name.starts_with(first)) {
            sum += thread_ns(&directory)?;
        }
    }
    Some(sum)
}

/// A thread's time, by nanoseconds where Linux keeps them, else by ticks.
fn thread_ns(directory: &Path) -> Option<u64> {
    let exact = fs::read_to_string(directory.join("schedstat")).ok();
    let exact = exact.and_then(|text| text.split_whitespace().next()?.parse().ok());
    exact.or_else(|| Some(own_ticks(&fs::read_to_string(directory.join("stat")).ok()?)? * TICK_NS))
}

/// Ticks of a line of `/proc/ID/stat`; the name in it may contain anything.
fn own_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(number(USER_TICKS)? + number(KERNEL_TICKS)?)
}

/// Ticks that all processors of the computer were busy.
fn all_ticks(stat: &str) -> Option<u64> {
    let columns = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let busy = columns.enumerate().filter(|(column, _)| !IDLE.contains(column));
    busy.map(|(_, ticks)| ticks.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_are_read() {
        let stat = "7 (qemu) system (x) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 3 0 100";
        assert_eq!((own_ticks(stat), own_ticks("7 (qemu")), (Some(300), None));
        assert_eq!(all_ticks("cpu  100 1 50 9000 8 2 3 4 5 6\ncpu0 1"), Some(160));
        assert_eq!(all_ticks("cpu0 1"), None);
    }

    #[test]
    fn energy_is_shared_by_processor_time() {
        let last = Shares { energy_uj: 100, own_ticks: 10, all_ticks: 1000 };
        let now = Shares { energy_uj: 1100, own_ticks: 35, all_ticks: 1100 };
        assert_eq!((now.since(last), last.since(last)), (250.0, 0.0));
        assert_eq!(Shares { own_ticks: 500, ..now }.since(last), 1000.0, "never more than there was");
    }

    #[test]
    fn threads_that_are_named_as_virtual_processors_count() {
        let own = std::process::id();
        let before = virtual_ns(own).expect("this process is there");
        let spin = move || {
            let start = std::time::Instant::now();
            while start.elapsed().as_millis() < 30 {
                std::hint::black_box(0);
            }
            virtual_ns(own)
        };
        let named = std::thread::Builder::new().name("CPU 0/TCG".to_owned()).spawn(spin).expect("a thread");
        let during = named.join().expect("no panic").expect("this process is there");
        assert!(during > before, "{during}, {before}");
        let mut gone = Process::new(ProcessIdentity { id: own, started: 0 });
        assert_eq!(gone.read(), None);
    }
}
