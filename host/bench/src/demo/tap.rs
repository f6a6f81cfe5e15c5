//! What leaves a machine, as the host counts it at the machine's TAP device.

use anyhow::{Context, Result};
use nom_vmm::namespace::DEVICE;
use std::path::PathBuf;

/// Reads how much a machine has sent.
#[derive(Clone, Debug)]
pub struct Meter {
    /// The devices of the network that the machine's monitor is in; none if it has no TAP device.
    devices: Option<PathBuf>,
    /// Which of a device's figures counts.
    figure: usize,
}

/// Bytes that a device has received, the first of its figures in `/proc/net/dev`.
const RECEIVED: usize = 0;
/// Bytes that it has sent.
const SENT: usize = 8;

impl Meter {
    /// Of the machine whose monitor is process `id` and has a TAP device.
    pub fn of_process(id: u32) -> Meter {
        Meter { devices: Some(PathBuf::from(format!("/proc/{id}/net/dev"))), figure: RECEIVED }
    }

    /// Of the server that is process `id` of Linux's, at its own end of the wire.
    pub fn of_server(id: u32) -> Meter {
        Meter { figure: SENT, ..Meter::of_process(id) }
    }

    /// That sees nothing: QEMU's user-mode network counts nothing.
    pub fn blind() -> Meter {
        Meter { devices: None, figure: RECEIVED }
    }

    /// Bytes that the machine has sent so far, with their Ethernet headers.
    ///
    /// # Errors
    /// If the machine or its device is gone.
    pub fn sent_bytes(&self) -> Result<Option<u64>> {
        let Some(path) = &self.devices else { return Ok(None) };
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let sent = bytes(&text, self.figure).with_context(|| format!("{}: no {DEVICE}", path.display()))?;
        Ok(Some(sent))
    }
}

/// A figure of the device. What it has received on the host's side the machine has sent.
fn bytes(text: &str, figure: usize) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(DEVICE)?.strip_prefix(':'))?;
    line.split_whitespace().nth(figure)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_sent_is_what_the_host_received() {
        let text = "Inter-|   Receive     |  Transmit\n face |bytes    packets errs\n    lo:  7 1 0\n  \
                    tap0: 123456     78    0    0    0     0          0         0  999 5 0 0 0 0 0 0\n";
        assert_eq!(bytes(text, RECEIVED), Some(123_456));
        assert_eq!(bytes(text, SENT), Some(999));
        assert_eq!(bytes("    lo:  7 1 0\n", RECEIVED), None);
        assert_eq!(Meter::blind().sent_bytes().unwrap(), None);
        assert!(Meter::of_process(0).sent_bytes().is_err());
    }
}
