//! A split virtqueue in one frame, used by polling. Source: VIRTIO 1.2, section 2.7.
//!
//! ```text
//!    0  64 descriptors of 16 bytes
//! 1024  available ring
//! 1280  used ring
//! 2048  buffers, to be divided by the queue's owner
//! ```

use crate::machine::{Hardware, PhysAddr, PhysicalMemory, Registers};
use crate::virtio_pci::common;
use core::sync::atomic::{Ordering, fence};

/// Descriptors, and elements of each ring.
pub(super) const SIZE: u16 = 64;
/// Where the buffers start in the frame.
pub(super) const BUFFERS: u64 = 2048;
const AVAILABLE: u64 = 1024;
const USED: u64 = 1280;

/// A part of memory that a descriptor tells the device about.
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    pub address: PhysAddr,
    pub length: u32,
    /// Whether the device writes it, rather than reads it.
    pub device_writes: bool,
    /// Descriptor of the next part.
    pub next: Option<u16>,
}

/// A queue of the device.
#[derive(Debug)]
pub(super) struct Queue {
    /// First byte of the frame.
    base: PhysAddr,
    /// Register that notifies the device.
    notify: u64,
    number: u16,
    /// Buffers made available since the start.
    available: u16,
    /// Buffers taken back since the start.
    used: u16,
}

impl Queue {
    /// A queue in a zeroed frame, at `base`. `notify` is the register that notifies the device.
    pub fn new(base: PhysAddr, number: u16, notify: u64) -> Queue {
        Queue { base, notify, number, available: 0, used: 0 }
    }

    /// Tells the device, whose common configuration is at `common` with this queue selected, where the
    /// queue is. Returns false if the device does not have such a queue.
    pub fn enable(&self, registers: &mut impl Registers, common: u64) -> bool {
        if registers.read16(common + common::QUEUE_SIZE) < SIZE {
            return false;
        }
        registers.write16(common + common::QUEUE_SIZE, SIZE);
        let parts = [
            (common::QUEUE_DESCRIPTORS, 0),
            (common::QUEUE_AVAILABLE, AVAILABLE),
            (common::QUEUE_USED, USED),
        ];
        for (register, offset) in parts {
            let address = (self.base + offset).word();
            registers.write32(common + register, address as u32);
            registers.write32(common + register + 4, (address >> 32) as u32);
        }
        registers.write16(common + common::QUEUE_ENABLE, 1);
        true
    }

    /// Asks the device not to interrupt when it has used a buffer.
    pub fn disable_interrupts(&self, memory: &mut impl PhysicalMemory) {
        const NO_INTERRUPT: u16 = 1;
        memory.write_bytes(self.base + AVAILABLE, &NO_INTERRUPT.to_le_bytes());
    }

    /// Where the buffer area is.
    pub fn buffers(&self) -> PhysAddr {
        self.base + BUFFERS
    }

    /// Writes a descriptor.
    pub fn describe(&self, memory: &mut impl PhysicalMemory, descriptor: u16, buffer: Buffer) {
        const HAS_NEXT: u64 = 1;
        const DEVICE_WRITES: u64 = 2;
        let next = buffer.next.map_or(0, |next| HAS_NEXT | u64::from(next) << 16);
        let flags = next | if buffer.device_writes { DEVICE_WRITES } else { 0 };
        let at = self.base + u64::from(descriptor) * 16;
        memory.write(at, buffer.address.word());
        memory.write(at + 8, u64::from(buffer.length) | flags << 32);
    }

    /// Makes the chain that starts at `descriptor` available.
    pub fn offer(&mut self, memory: &mut impl PhysicalMemory, descriptor: u16) {
        let ring = self.base + AVAILABLE + 4;
        memory.write_bytes(ring + u64::from(self.available % SIZE) * 2, &descriptor.to_le_bytes());
        self.available = self.available.wrapping_add(1);
    }

    /// Shows the device everything that was offered.
    pub fn notify(&self, machine: &mut impl Hardware) {
        fence(Ordering::SeqCst);
        machine.write_bytes(self.base + AVAILABLE + 2, &self.available.to_le_bytes());
        fence(Ordering::SeqCst);
        machine.write16(self.notify, self.number);
    }

    /// First descriptor of the next chain that the device has used.
    pub fn take_used(&mut self, memory: &impl PhysicalMemory) -> Option<u16> {
        // Flags, index and the first element's identifier share an aligned word.
        let index = (memory.read(self.base + USED) >> 16) as u16;
        if index == self.used {
            return None;
        }
        fence(Ordering::SeqCst);
        let mut element = [0; 4];
        memory.read_bytes(self.base + USED + 4 + u64::from(self.used % SIZE) * 8, &mut element);
        self.used = self.used.wrapping_add(1);
        Some(u32::from_le_bytes(element) as u16)
    }
}
