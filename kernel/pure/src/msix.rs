//! MSI-X: the message that a vector sends, and the table that only the kernel writes.
//!
//! Source: PCI Local Bus Specification 3.0, section 6.8.2; message format: Intel SDM volume 3, 11.11.

use crate::machine::Registers;
use crate::pci::{Function, Pci};

/// A message-signalled interrupt: the device writes `data` at `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Physical address of the write.
    pub address: u64,
    /// What is written.
    pub data: u32,
}

impl Message {
    /// Fixed delivery of `vector` to the one processor with this local APIC identifier, edge triggered,
    /// physical destination. The identifier must be below 255: wider ones need interrupt remapping.
    pub const fn new(apic_id: u8, vector: u8) -> Message {
        Message {
            address: 0xfee0_0000 | (apic_id as u64) << 12,
            data: vector as u32,
        }
    }
}

impl Function {
    /// Whether any of `length` bytes at `offset` of base address register `bar` is on a page that holds
    /// part of the MSI-X table or of the pending bits: never to be mapped for an application.
    pub fn is_reserved(&self, bar: usize, offset: u64, length: u64) -> bool {
        let _ = (bar, offset, length);
        unimplemented!()
    }

    /// Whether the MSI-X table has this vector.
    pub fn has_vector(&self, vector: u64) -> bool {
        vector < u64::from(self.msix.count)
    }
}

impl Pci {
    /// Writes `message` into entry `vector` of a device's MSI-X table and unmasks it. Returns false, with
    /// nothing changed, if there is no such device or vector.
    pub fn bind_vector(
        &self,
        registers: &mut impl Registers,
        index: usize,
        vector: u16,
        message: Message,
    ) -> bool {
        let _ = (registers, index, vector, message);
        unimplemented!()
    }

    /// Masks or unmasks entry `vector` of a device's MSI-X table. Returns false if there is none.
    pub fn mask_vector(
        &self,
        registers: &mut impl Registers,
        index: usize,
        vector: u16,
        masked: bool,
    ) -> bool {
        let _ = (registers, index, vector, masked);
        unimplemented!()
    }
}
