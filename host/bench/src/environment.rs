//! Where a bench ran: what a reader needs to judge or repeat it.

use anyhow::{Context, Result};
use nom_vmm::qemu::PROGRAM;
use std::process::Command;
use std::time::SystemTime;

/// The machine and the command of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// When the bench began, RFC 3339, UTC.
    pub date: String,
    /// The command line that started it.
    pub command: String,
    /// Processor model.
    pub processor: String,
    /// Processors of the host.
    pub processors: usize,
    /// Memory of the host, in bytes.
    pub memory_bytes: u64,
    /// The host's kernel release.
    pub host_kernel: String,
    /// QEMU's version line.
    pub qemu: String,
    /// What executes the guests' instructions, and why that.
    pub accelerator: String,
}

impl Environment {
    /// Describes this machine; `accelerator` is what the guests run on.
    pub fn capture(accelerator: &str) -> Result<Environment> {
        let memory_kib = first_value(&read("/proc/meminfo")?, "MemTotal");
        let memory_kib = memory_kib.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
        Ok(Environment {
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            processor: first_value(&read("/proc/cpuinfo")?, "model name"),
            processors: std::thread::available_parallelism()?.get(),
            memory_bytes: memory_kib.unwrap_or(0) * 1024,
            host_kernel: read("/proc/sys/kernel/osrelease")?.trim().into(),
            qemu: qemu_version()?,
            accelerator: accelerator.into(),
        })
    }

    /// Every particular with its name, for a table.
    pub fn rows(&self) -> [(&'static str, String); 8] {
        [
            ("date", self.date.clone()),
            ("command", self.command.clone()),
            ("processor", self.processor.clone()),
            ("processors", self.processors.to_string()),
            ("memory", crate::record::format_value(self.memory_bytes as f64, crate::Unit::Bytes)),
            ("host kernel", self.host_kernel.clone()),
            ("QEMU", self.qemu.clone()),
            ("accelerator", self.accelerator.clone()),
        ]
    }
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

fn qemu_version() -> Result<String> {
    let output = Command::new(PROGRAM).arg("--version").output();
    let output = output.with_context(|| format!("cannot run {PROGRAM}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("unknown").into())
}

/// The value of the first `name: value` line, as `/proc` writes them.
fn first_value(text: &str, name: &str) -> String {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    let value = pairs.into_iter().find(|(key, _)| key.trim() == name);
    value.map_or("unknown", |(_, value)| value.trim()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_lines_are_found_by_their_whole_name() {
        let text = "model\t\t: 2\nmodel name\t: AMD EPYC: 9\n";
        assert_eq!(first_value(text, "model name"), "AMD EPYC: 9");
        assert_eq!(first_value(text, "name"), "unknown");
    }
}
