//! Drives a virtio entropy device: registers, memory that it writes to, interrupts as events and as upcalls.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_app::devices::Device;
use nom_app::{Error, Upcall, application, board, println, time, upcall};
use nom_guest_tests::{Check, Failure, entropy, expect, expect_that, run};
use nom_sys::abi::board::NOBODY;

nom_app::main!(main);

/// How long an interrupt may take.
const TIMEOUT_NS: u64 = 5_000_000_000;
/// How often entropy is read.
const ROUNDS: usize = 100;

fn main() -> u8 {
    run(&[
        ("ownership", ownership),
        ("interrupts-as-events", events),
        ("interrupts-as-upcalls", upcalls),
        ("masked-interrupts", masked),
        ("device-errors", errors),
        ("not-its-device", foreign),
    ])
}

fn owner(device: usize) -> u32 {
    board().devices[device].owner.load(Relaxed)
}

fn ownership() -> Check {
    let index = entropy::find()?;
    expect("the owner before", owner(index), NOBODY)?;
    let device = Device::acquire(index)?;
    expect("the owner", owner(index) as usize, application())?;
    expect("acquired twice", Device::acquire(index).map(|d| d.index()).unwrap_err(), Error::NotPermitted)?;
    let id = device.config(0)?;
    let entry = &board().devices[index];
    let identifiers = entry.device.load(Relaxed) << 16 | entry.vendor.load(Relaxed);
    expect("its identifiers", id, if entropy::is_mmio(index) { u32::MAX } else { identifiers })?;
    expect_that("it has interrupt vectors", entry.vectors.load(Relaxed) > 0)?;
    drop(device);
    expect("the owner after", owner(index), NOBODY)
}

/// Bytes that differ: a device that writes nothing, or the same, is found out.
fn check_random(bytes: &[u8]) -> Check {
    expect_that("entropy is not all the same", bytes.windows(2).any(|pair| pair[0] != pair[1]))
}

fn events() -> Check {
    let mut device = entropy::Entropy::open(entropy::find()?)?;
    let mut buffer = [0; 64];
    for _ in 0..ROUNDS {
        let length = device.read(&mut buffer)?;
        expect_that("there are bytes", (1..=64).contains(&length))?;
    }
    check_random(&buffer)?;
    println!("device entropy={:02x?}", &buffer[..8]);
    Ok(())
}

static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

fn on_upcall(upcall: &mut upcall::Delivery) {
    let events = upcall.events();
    if events.has(Upcall::Interrupt) && events.interrupts == 1 << entropy::INTERRUPT_BIT {
        INTERRUPTS.fetch_add(1, Relaxed);
    }
}

/// Whether the count of interrupts passes `count` within a time.
fn interrupted_beyond(count: u64, timeout_ns: u64) -> bool {
    let deadline = time::now_ns() + timeout_ns;
    while INTERRUPTS.load(Relaxed) <= count && time::now_ns() < deadline {
        core::hint::spin_loop();
    }
    INTERRUPTS.load(Relaxed) > count
}

fn upcalls() -> Check {
    upcall::register(on_upcall)?;
    let mut device = entropy::Entropy::open(entropy::find()?)?;
    let mut buffer = [0; 64];
    for _ in 0..ROUNDS {
        let before = INTERRUPTS.load(Relaxed);
        device.request_own(buffer.len());
        expect_that("an upcall comes", interrupted_beyond(before, TIMEOUT_NS))?;
        device.take(&mut buffer).ok_or("an interrupt without a completed request")?;
    }
    check_random(&buffer)
}

/// A masked interrupt waits until it is unmasked; without PCI it is lost.
fn masked() -> Result<(), Failure> {
    let mut device = entropy::Entropy::open(entropy::find()?)?;
    device.device().mask_interrupt(0, true)?;
    let before = INTERRUPTS.load(Relaxed);
    device.request_own(64);
    let deadline = time::now_ns() + TIMEOUT_NS;
    while device.completed().is_none() && time::now_ns() < deadline {
        core::hint::spin_loop();
    }
    expect_that("the request is completed", device.completed().is_some())?;
    expect_that("no interrupt comes", !interrupted_beyond(before, 50_000_000))?;
    device.device().mask_interrupt(0, false)?;
    if entropy::is_mmio(device.device().index()) {
        expect_that("it is lost", !interrupted_beyond(before, 50_000_000))?;
        device.request_own(64);
        return expect_that("the next one comes", interrupted_beyond(before, TIMEOUT_NS));
    }
    expect_that("it comes when unmasked", interrupted_beyond(before, TIMEOUT_NS))
}

fn errors() -> Check {
    let index = entropy::find()?;
    let device = Device::acquire(index)?;
    let vectors = board().devices[index].vectors.load(Relaxed).into();
    expect("a configuration offset off the grid", device.config(2), Err(Error::Misaligned))?;
    expect("a configuration offset too large", device.config(4096), Err(Error::InvalidArgument))?;
    expect("a vector too many", device.bind_interrupt(vectors, 0), Err(Error::NoSuchInterrupt))?;
    expect("a bit too many", device.bind_interrupt(0, 64), Err(Error::InvalidArgument))?;
    expect("masking an unbound vector", device.mask_interrupt(0, true), Err(Error::NoSuchInterrupt))?;
    for (bar, offset, bytes, error) in entropy::bad_ranges(index) {
        let name = nom_app::alloc::format!("mapping {bytes:#x} from {offset:#x} of region {bar}");
        expect(&name, entropy::map_error(index, bar, offset, bytes), Some(error))?;
    }
    if entropy::is_mmio(index) {
        return Ok(());
    }
    let pages = entropy::message_pages(&device)?;
    expect("places of interrupt messages", pages.len(), 2)?;
    for (bar, page) in pages {
        let region = board().devices[index].bar_bytes[bar as usize].load(Relaxed);
        for (offset, bytes) in [(page, 4096), (0, page + 4096), (page, region - page)] {
            let error = entropy::map_error(index, bar, offset, bytes);
            expect("mapping interrupt messages", error, Some(Error::NoSuchRegion))?;
        }
    }
    Ok(())
}

/// A device that the manifest does not name.
fn foreign() -> Check {
    let (own, devices) = (entropy::find()?, &board().devices);
    let other = (0..devices.len()).find(|index| *index != own && devices[*index].present.load(Relaxed) == 1);
    let other = other.ok_or("the machine has no second device")?;
    expect(
        "acquiring it",
        Device::acquire(other).map(|device| device.index()).unwrap_err(),
        Error::NotPermitted,
    )?;
    let _own = Device::acquire(own)?;
    for bar in 0..6 {
        expect("mapping it", entropy::map_error(other, bar, 0, 4096), Some(Error::NotPermitted))?;
    }
    Ok(())
}
