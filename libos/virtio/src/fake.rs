//! A device to test drivers with: memory, virtqueues from the device's side and a PCI function, made from the
//! specification alone. It shares nothing with the drivers but the memory.

mod function;
mod memory;
mod queue;

pub use function::{ALL_FEATURES, FakeFunction, FakeOptions, FakeRegisters};
pub use memory::{FakeMemory, first_blocks};
pub use queue::{DeviceQueue, Lent, Piece};
