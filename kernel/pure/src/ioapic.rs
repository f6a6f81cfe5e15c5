//! The I/O APIC, for those that have no message-signalled interrupt: the power button, QEMU's virtio-iommu,
//! and devices without PCI.
//!
//! Source: Intel 82093AA I/O Advanced Programmable Interrupt Controller, section 3.

use crate::machine::Registers;
use crate::msix::Message;

/// Offsets of the two registers by which the others are reached.
const SELECT: u64 = 0;
const DATA: u64 = 0x10;
/// Inputs that PCI interrupt lines can lead to; those below are ISA's.
const PCI_LINES: core::ops::Range<u32> = 16..24;

/// An input: registers of its I/O APIC, and its number there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// Physical address.
    pub registers: u64,
    /// 0 to 23.
    pub line: u32,
}

/// Lets every PCI interrupt line deliver what `message` says, level triggered. Which line a function has
/// only AML tells; this needs not know, for no function but the kernel's own may raise one.
pub(crate) fn route_pci_lines(registers: &mut impl Registers, base: u64, message: Message) {
    let what = message.level();
    PCI_LINES.for_each(|line| route(registers, Input { registers: base, line }, message, what));
}

/// Lets one input deliver `what`, by `message`, which is another one if interrupts are remapped. But the
/// vector is always that of what is delivered: it says what the end of which interrupt ends this one (VT-d
/// specification 3.3, 5.1.5.1). An entry has vector and trigger mode as a message has them.
pub fn route(registers: &mut impl Registers, input: Input, message: Message, what: Message) {
    /// Destination, or place in the table of interrupts and that there is one: as in the address.
    const DESTINATION_SHIFT: u32 = 16;
    let destination = (message.address >> 4) as u32 & 0xffff;
    for (word, value) in [(1, destination << DESTINATION_SHIFT), (0, what.data)] {
        registers.write32(input.registers + SELECT, 0x10 + 2 * input.line + word);
        registers.write32(input.registers + DATA, value);
    }
}

/// Closes or opens one input. An edge that comes while it is closed is lost.
pub fn mask(registers: &mut impl Registers, Input { registers: base, line }: Input, masked: bool) {
    const MASK_SHIFT: u32 = 16;
    registers.write32(base + SELECT, 0x10 + 2 * line);
    let others = registers.read32(base + DATA) & !(1 << MASK_SHIFT);
    registers.write32(base + DATA, others | u32::from(masked) << MASK_SHIFT);
}
