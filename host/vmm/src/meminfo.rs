//! What Linux says of this computer's memory, and whether a machine finds enough of it.

use crate::config::{Allocation, MachineConfig};
use anyhow::{Result, ensure};

/// The text of Linux's report; empty if it cannot be read.
pub fn read() -> String {
    std::fs::read_to_string("/proc/meminfo").unwrap_or_default()
}

/// The number in the line `key` of such a report, in its unit: KiB, where it counts memory.
pub fn value(report: &str, key: &str) -> Option<u64> {
    let value = report.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

/// Checks that what a machine takes at its start is available by `report`. Where it is not, QEMU might be
/// allowed to begin, and Linux would end it, or another program, for want of memory.
///
/// # Errors
/// Names what is asked for, and what there is.
pub fn check(config: &MachineConfig, report: &str) -> Result<()> {
    if config.allocation == Allocation::Immediate {
        // A Linux that says nothing is left to decide by itself.
        let available = value(report, "MemAvailable").map_or(u64::MAX, |kib| kib << 10);
        ensure!(
            config.memory.bytes() <= available,
            "{} of memory, all at the start: expected at most the {} MiB that this computer has available",
            config.memory,
            available >> 20
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str =
        "MemTotal:       24028316 kB\nMemAvailable:     131072 kB\nHugePages_Total:       3\n";

    #[test]
    fn lines_are_found_by_their_whole_name() {
        assert_eq!(value(REPORT, "HugePages_Total"), Some(3));
        assert_eq!(value(REPORT, "MemTotal"), Some(24_028_316));
        assert_eq!(value(REPORT, "Mem"), None);
        assert!(value(&read(), "MemAvailable").is_some_and(|kib| kib > 0), "this Linux says it");
    }

    #[test]
    fn only_memory_taken_at_the_start_must_be_available() {
        let with = |memory: &str, allocation| {
            let memory = memory.parse().expect("a size");
            MachineConfig { memory, allocation, ..MachineConfig::new("image".into()) }
        };
        assert!(check(&with("128M", Allocation::Immediate), REPORT).is_ok());
        assert!(check(&with("64G", Allocation::OnDemand), REPORT).is_ok());
        assert!(check(&with("64G", Allocation::Immediate), "").is_ok(), "nobody knows");
        let error = check(&with("136M", Allocation::Immediate), REPORT).expect_err("too much").to_string();
        assert!(error.contains("136M") && error.contains("128 MiB"), "{error}");
    }
}
