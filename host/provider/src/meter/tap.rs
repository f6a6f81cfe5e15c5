//! Counts of a TAP device in a network namespace.

use super::{Bytes, Counter};
use anyhow::{Context, Result};
use nom_vmm::Namespace;
use std::fs::File;
use std::io::{Read, Seek};

/// Linux's list of the devices of the namespace of the thread that opens it (proc(5), /proc/net/dev). It goes
/// on showing that namespace, whoever reads it.
const DEVICES: &str = "/proc/thread-self/net/dev";
/// Fields of a device's line: bytes received are the first, bytes sent the ninth.
const RECEIVED: usize = 0;
const SENT: usize = 8;

/// A TAP device.
#[derive(Debug)]
pub struct Tap {
    devices: File,
    device: String,
    last: Bytes,
}

impl Tap {
    /// Finds the device.
    ///
    /// # Errors
    /// If there is none, or the namespace cannot be entered.
    pub fn open(namespace: &Namespace, device: &str) -> Result<Tap> {
        let open = || -> Result<File> {
            namespace.enter()?;
            File::open(DEVICES).with_context(|| format!("cannot open {DEVICES}"))
        };
        // A thread of its own enters, so that this one stays where it is.
        let devices = std::thread::scope(|scope| scope.spawn(open).join());
        let devices = devices.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Tap::of(devices, device).with_context(|| format!("namespace {}", namespace.name()))
    }

    /// Finds the device where this thread is.
    ///
    /// # Errors
    /// If there is none.
    pub fn here(device: &str) -> Result<Tap> {
        Tap::of(File::open(DEVICES).with_context(|| format!("cannot open {DEVICES}"))?, device)
    }

    fn of(devices: File, device: &str) -> Result<Tap> {
        let mut tap = Tap { devices, device: device.to_owned(), last: Bytes::default() };
        tap.last = tap.count().with_context(|| format!("no device {device}"))?;
        Ok(tap)
    }

    fn count(&mut self) -> Option<Bytes> {
        let mut text = String::new();
        self.devices.rewind().ok()?;
        self.devices.read_to_string(&mut text).ok()?;
        find(&text, &self.device)
    }
}

impl Counter for Tap {
    fn read(&mut self) -> Bytes {
        self.last = self.count().unwrap_or(self.last);
        self.last
    }
}

/// The counts in a device's line. What the device receives is what the machine sends.
fn find(text: &str, device: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    Some(Bytes { sent: *fields.get(RECEIVED)?, received: *fields.get(SENT)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux writes it, but for the width of its columns.
    const TEXT: &str = "\
Inter-| Receive | Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier
    lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0
  tap0: 10000 20 0 0 0 0 0 0 70000 400 0 0 0 0 0 0
";

    #[test]
    fn what_a_tap_receives_the_machine_sends() {
        assert_eq!(find(TEXT, "tap0"), Some(Bytes { sent: 10_000, received: 70_000 }));
        assert_eq!(find(TEXT, "tap"), None);
        assert_eq!(find("tap0: 1 2 3", "tap0"), None);
    }
}
