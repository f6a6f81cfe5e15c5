//! The power button, by which whoever runs the machine asks it to end, and the way to switch it off.

use crate::cpu::{in16, out16};
use crate::{apic, clock, mapping, serial};
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};
use nom_abi::layout::DEVICE_MAP;
use nom_kernel_pure::acpi::{Register, Tables};
use nom_kernel_pure::ioapic::{self, Input};
use nom_kernel_pure::iommu::{BUTTON_PLACE, Iommu, Sender};
use nom_kernel_pure::kernel::PLATFORM_VECTOR;
use nom_kernel_pure::machine::{Hardware, Registers};
use nom_kernel_pure::msix::Message;
use nom_kernel_pure::pci::Address;

/// Power button in PM1a status, which is cleared by writing it, and enable (ACPI 6.4, tables 4.13 and 4.14).
const FIXED_BUTTON: u16 = 1 << 8;
/// Distance from PM1a status to its enable register.
const ENABLE: u16 = 2;
/// Power button in the selector of QEMU's generic event device, which is cleared by reading it.
const SELECTED_BUTTON: u32 = 1 << 1;

/// Registers of events, and of the end; 0 where there is none.
static EVENTS: AtomicU64 = AtomicU64::new(0);
static OFF: AtomicU64 = AtomicU64::new(0);
static OFF_VALUE: AtomicU16 = AtomicU16::new(0);

/// Has this core told of the power button, and remembers how to switch the machine off.
pub fn init(registers: &mut impl Hardware, firmware: &Tables, iommu: &mut Iommu, apic_id: u32) {
    if let Some((register, value)) = firmware.power_off {
        if register.port().is_none() {
            mapping::ensure_device(register.0);
        }
        OFF_VALUE.store(value, Relaxed);
        OFF.store(register.0, Relaxed);
    }
    let (Some(button), Some(io_apic)) = (firmware.power_button, firmware.io_apic) else { return };
    let sender = Sender { place: BUTTON_PLACE, source: Address(firmware.io_apic_source) };
    let Some(edge) = Message::to(apic_id, PLATFORM_VECTOR) else { return };
    let port = button.events.port();
    let what = if port.is_some() { edge.level() } else { edge };
    let Some(message) = iommu.bind(registers, sender, what) else { return };
    EVENTS.store(button.events.0, Relaxed);
    ioapic::route(registers, Input { registers: io_apic, line: button.interrupt }, message, what);
    if let Some(port) = port {
        // SAFETY: of the events of fixed hardware, only the power button's interrupts from now on.
        unsafe { out16(port + ENABLE, FIXED_BUTTON) };
    }
}

/// Whether interrupt messages pass that no table has an entry for. A VT-d unit that remaps interrupts blocks
/// them; some emulators' do not, and none says so. So one is sent, by the I/O APIC for the serial port.
pub fn forged_interrupts_pass(registers: &mut impl Registers, firmware: &Tables, apic_id: u32) -> bool {
    const SERIAL_LINE: u32 = 4;
    const WAIT_NS: u64 = 100_000;
    let (Some(io_apic), Some(message)) = (firmware.io_apic, Message::to(apic_id, apic::KICK)) else {
        return true;
    };
    let input = Input { registers: io_apic, line: SERIAL_LINE };
    ioapic::route(registers, input, message, message);
    serial::let_interrupt(true);
    clock::wait_ns(WAIT_NS);
    serial::let_interrupt(false);
    ioapic::mask(registers, input, true);
    apic::is_requested(apic::KICK)
}

/// Whether the power button was pressed since the last call.
pub fn is_pressed(registers: &mut impl Registers) -> bool {
    let events = Register(EVENTS.load(Relaxed));
    match events.port() {
        Some(0) => false,
        // SAFETY: reading and clearing the status of the button concerns nothing else.
        Some(port) => unsafe {
            let status = in16(port);
            out16(port, FIXED_BUTTON);
            status & FIXED_BUTTON != 0
        },
        None => registers.read32(events.0) & SELECTED_BUTTON != 0,
    }
}

/// Switches the machine off; returns if it cannot be.
pub fn off() {
    let (register, value) = (Register(OFF.load(Relaxed)), OFF_VALUE.load(Relaxed));
    // SAFETY: `init` mapped the register, if it is in memory; nothing runs after this.
    unsafe {
        match register.port() {
            Some(0) => {}
            Some(port) => out16(port, value),
            None => ((DEVICE_MAP + register.0) as *mut u8).write_volatile(value as u8),
        }
    }
}
