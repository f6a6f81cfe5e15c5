//! Devices of a microvm: virtio-mmio, whose places the kernel learns from its command line.

/// Where QEMU puts the transports of a microvm that has ACPI, 512 bytes each, and the interrupt of the first.
const BASE: u64 = 0xfeb0_0000;
const BYTES: u64 = 512;
const FIRST_INTERRUPT: u64 = 24;
/// Transports in a page of 4096 bytes, which has a single owner.
const TO_A_PAGE: u64 = 4096 / BYTES;
/// The first transport's interrupt goes astray (QEMU's I/O APICs all lead input 0 to input 2): the second of
/// each page is used.
const IN_A_PAGE: u64 = 1;
/// Devices that a microvm can have: pages of transports.
pub const DEVICES_MAX: usize = 3;

/// Whether a device, as QEMU's `-device` takes it, goes on virtio-mmio and does not say where.
pub fn is_mmio(device: &str) -> bool {
    let driver = device.split(',').next().unwrap_or(device);
    driver.starts_with("virtio-") && driver.ends_with("-device") && !device.contains(",bus=")
}

fn transport(number: usize) -> u64 {
    number as u64 * TO_A_PAGE + IN_A_PAGE
}

/// The property that puts device `number` on a page of its own.
pub fn bus(number: usize) -> String {
    format!(",bus=virtio-mmio-bus.{}", transport(number))
}

/// What tells the kernel of the first `count` devices: words for its command line.
pub fn command_line(count: usize) -> String {
    let word = |number| {
        let (at, interrupt) = (BASE + BYTES * transport(number), FIRST_INTERRUPT + transport(number));
        format!("virtio_mmio.device={BYTES}@{at:#x}:{interrupt}")
    };
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}
