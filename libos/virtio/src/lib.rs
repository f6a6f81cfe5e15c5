//! Drivers for virtio devices (OASIS virtio 1.2), over `nom-port`'s PCI functions and memory.
//!
//! [`transport`] is how a device is reached, [`queue`] the split and the packed virtqueue behind one type,
//! [`net`] the network device, [`block`] a disk, [`ninep`] the one by which a host lends a
//! directory. A driver is run by the core that owns it: nothing here waits but for the
//! device's answer to a command, nothing locks (buffers come back from other cores by atomics), and nothing
//! allocates for a packet but what `nom-port` says.
//!
//! The crate may be unsafe, in one module: [`memory`], which turns blocks of memory into atomics (rings) and
//! counted handles (buffers). The argument is in `docs/safety/libos-virtio.md`. What the device writes is
//! checked before it is used; a device that breaks the rules is counted, never believed.
#![cfg_attr(not(test), no_std)]

extern crate alloc;
#[cfg(not(target_os = "none"))]
extern crate std;

pub mod block;
pub mod error;
pub mod memory;
pub mod net;
pub mod ninep;
mod polled;
pub mod pool;
pub mod queue;
pub mod transport;

pub use error::{Error, Result};
