//! Signals that are read: signalfd(2). Whoever reads is told of those that its maker's process blocks and has
//! not taken otherwise.

use super::open::Stream;
use super::ready::Events;
use crate::process::Process;
use crate::signals::{Info, SignalSet};
use alloc::rc::{Rc, Weak};
use core::cell::Cell;
use core::fmt;
use core::task::Waker;
use nom_fs::{Errno, NodeType};

/// Bytes of `struct signalfd_siginfo`.
const BYTES: usize = 128;

/// Signals of a process, by a descriptor.
pub(crate) struct SignalReader {
    process: Weak<Process>,
    wanted: Cell<SignalSet>,
}

impl fmt::Debug for SignalReader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SignalReader({:#x})", self.wanted.get().0)
    }
}

impl SignalReader {
    /// Those that are in `wanted`.
    pub fn new(process: &Rc<Process>, wanted: SignalSet) -> SignalReader {
        SignalReader { process: Rc::downgrade(process), wanted: Cell::new(wanted.blockable()) }
    }

    /// Others from now on.
    pub fn want(&self, wanted: SignalSet) {
        self.wanted.set(wanted.blockable());
        if let Some(process) = self.process.upgrade() {
            process.signal_waiters.wake();
        }
    }
}

/// `struct signalfd_siginfo`.
fn told(info: &Info) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let mut put = |at: usize, word: u32| bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    put(0, info.signal);
    put(4, info.errno as u32);
    put(8, info.code as u32);
    put(12, info.fields[0]);
    put(16, info.fields[1]);
    // Of a child its status; of what was queued a value.
    put(40, info.fields[2]);
    put(44, info.fields[2]);
    put(48, info.fields[2]);
    put(52, info.fields[3]);
    bytes
}

impl Stream for SignalReader {
    fn read(&self, target: &mut [u8]) -> Result<usize, Errno> {
        if target.len() < BYTES {
            return Err(Errno::EINVAL);
        }
        let process = self.process.upgrade().ok_or(Errno::EAGAIN)?;
        let mut count = 0;
        for room in target.chunks_exact_mut(BYTES) {
            let Some(info) = process.take_signal(self.wanted.get()) else { break };
            room.copy_from_slice(&told(&info));
            count += BYTES;
        }
        if count == 0 { Err(Errno::EAGAIN) } else { Ok(count) }
    }

    fn ready(&self) -> Events {
        let waiting = self.process.upgrade().map(|process| process.signals_waiting());
        Events::IN.when(waiting.is_some_and(|waiting| waiting.0 & self.wanted.get().0 != 0))
    }

    fn wake(&self, waker: &Waker) {
        if let Some(process) = self.process.upgrade() {
            process.signal_waiters.add(waker);
        }
    }

    fn kind(&self) -> NodeType {
        NodeType::File
    }

    fn signals(&self) -> Option<&SignalReader> {
        Some(self)
    }
}
