//! What Linux says of a process: proc(5).

use nom_vmm::meminfo;
use nom_vmm::qemu::ProcessIdentity;
use serde::Serialize;
use std::time::Duration;

/// A process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// What it has taken of processors so far, all threads together.
    pub processor_time: Duration,
    /// What it holds of memory.
    pub memory_bytes: u64,
    /// What has passed the device, as the machine sees it.
    pub network: Option<Bytes>,
}

/// What a machine's network device has taken and given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// By the machine.
    pub received: u64,
    /// By the machine.
    pub sent: u64,
}

impl Sample {
    /// Looks at a process, and at a network device where the process is; nothing if it has ended.
    pub fn take(process: ProcessIdentity, device: Option<&str>) -> Option<Sample> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", process.id)).ok();
        let (stat, status) = (read("stat")?, read("status")?);
        let network = device.and_then(|device| read("net/dev").and_then(|list| bytes(&list, device)));
        let sample = Sample {
            processor_time: processor_time(&stat)?,
            memory_bytes: meminfo::value(&status, "VmRSS")? << 10,
            network,
        };
        process.is_running().then_some(sample)
    }
}

/// Fields 14 and 15, user and system time in ticks; the second may contain anything but ends the last `)`.
fn processor_time(stat: &str) -> Option<Duration> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second()))
}

/// The line of a device: what it receives, the first field, the machine sends; the ninth it receives.
fn bytes(list: &str, device: &str) -> Option<Bytes> {
    let line = list.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    Some(Bytes { received: *fields.get(8)?, sent: *fields.first()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_takes_time_and_memory() {
        let ours = ProcessIdentity::of(std::process::id()).expect("it runs");
        let sample = Sample::take(ours, Some("lo")).expect("it runs");
        assert!(sample.memory_bytes > 1 << 20, "{sample:?}");
        assert!(sample.network.is_some_and(|bytes| bytes.received == bytes.sent), "the loopback interface");
        assert_eq!(Sample::take(ours, Some("none")).expect("it runs").network, None);
        assert_eq!(Sample::take(ProcessIdentity { started: 0, ..ours }, None), None);
    }

    #[test]
    fn a_tap_receives_what_the_machine_sends() {
        let list = "  face |bytes\n  tap0: 10000 20 0 0 0 0 0 0 70000 400 0 0 0 0 0 0\n";
        assert_eq!(bytes(list, "tap0"), Some(Bytes { received: 70_000, sent: 10_000 }));
        assert_eq!(bytes(list, "tap"), None);
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0";
        assert_eq!(processor_time(stat), Some(Duration::from_secs(2)));
    }
}
