//! A device to test drivers with: memory, virtqueues from the device's side and a PCI function, made from the
//! specification (OASIS virtio 1.2) alone. It shares nothing with the drivers but the memory, and knows none
//! of their types.
//!
//! The crate may be unsafe, in one module: [`memory`], which reads and writes the blocks that it gave out as
//! a device does. The argument is in `docs/safety/libos-virtio-fake.md`.

mod function;
pub mod memory;
mod queue;

pub use function::{ALL_FEATURES, FakeFunction, FakeOptions, FakeRegisters, Spread};
pub use memory::{FakeMemory, first_blocks};
pub use queue::{DeviceQueue, Lent, Piece, QueueSetup};
