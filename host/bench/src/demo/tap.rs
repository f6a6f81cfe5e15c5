//! What leaves a machine, as the host counts it at the machine's TAP device.

use anyhow::{Context, Result};
use nom_vmm::namespace::DEVICE;
use std::path::PathBuf;

/// Reads how much a machine has sent.
#[derive(Clone, Debug)]
pub struct Meter {
    /// The devices of the network that the machine's monitor is in; none if it has no TAP device.
    devices: Option<PathBuf>,
}

impl Meter {
    /// Of the machine whose monitor is process `id` and has a TAP device.
    pub fn of_process(id: u32) -> Meter {
        Meter { devices: Some(PathBuf::from(format!("/proc/{id}/net/dev"))) }
    }

    /// That sees nothing: QEMU's user-mode network counts nothing.
    pub fn blind() -> Meter {
        Meter { devices: None }
    }

    /// Bytes that the machine has sent so far, with their Ethernet headers.
    ///
    /// # Errors
    /// If the machine or its device is gone.
    pub fn sent_bytes(&self) -> Result<Option<u64>> {
        let Some(path) = &self.devices else { return Ok(None) };
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let received = received(&text).with_context(|| format!("{}: no {DEVICE}", path.display()))?;
        Ok(Some(received))
    }
}

/// What the device has received on the host's side, the first of its figures: the machine sent that.
fn received(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(DEVICE)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_sent_is_what_the_host_received() {
        let text = "Inter-|   Receive     |  Transmit\n face |bytes    packets errs\n    lo:  7 1 0\n  \
                    tap0: 123456     78    0    0    0     0          0         0  999 5 0 0 0 0 0 0\n";
        assert_eq!(received(text), Some(123_456));
        assert_eq!(received("    lo:  7 1 0\n"), None);
        assert_eq!(Meter::blind().sent_bytes().unwrap(), None);
        assert!(Meter::of_process(0).sent_bytes().is_err());
    }
}
