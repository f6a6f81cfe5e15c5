//! A device that is told a foreign address cannot reach it.
//!
//! Argument: `victim` has a page and watches it; `attacker` points its device at that page, and at the
//! kernel.
#![no_std]
#![no_main]

use core::sync::atomic::Ordering::Relaxed;
use nom_app::alloc::format;
use nom_app::memory::Shared;
use nom_app::{PageSize, Upcall, applications, args, board, channels, events, ipc, println, time};
use nom_guest_tests::{Check, Failure, entropy, expect, expect_that, run};
use nom_sys::abi::board::DmaProtection;
use nom_sys::abi::layout::KERNEL_LOAD;

nom_app::main!(main);

/// How long a report may take.
const TIMEOUT_NS: u64 = 5_000_000_000;
/// What the victim's page is full of.
const PATTERN: u64 = 0x5a5a_0123_4567_a5a5;
/// Bytes that the device is asked to write.
const BYTES: u32 = 64;

fn main() -> u8 {
    match args().next() {
        Some("victim") => run(&[("dma-victim", victim)]),
        _ => run(&[
            ("dma-protection", protection),
            ("dma-into-application", || attack(victim_address()?)),
            ("dma-into-kernel", || attack(KERNEL_LOAD)),
            ("dma-into-nothing", || attack(1 << 40)),
            ("dma-into-own-grant", own_grant),
        ]),
    }
}

/// Tells the attacker where its page is, and looks at it until the attacker has ended.
fn victim() -> Check {
    let page = Shared::new(PageSize::Small, 1)?;
    page.words().iter().for_each(|word| word.store(PATTERN, Relaxed));
    let channel = channels::all().next().ok_or("no channel")?;
    let (mut producer, _) = ipc::open(channel.words, channel.end)?;
    producer.push(&page.grant().physical_address().to_le_bytes())?;
    channel.notify()?;
    while applications::is_running(channel.peer) {
        events::sleep(1_000_000);
    }
    expect_that("the page is as it was", page.words().iter().all(|word| word.load(Relaxed) == PATTERN))
}

fn victim_address() -> Result<u64, Failure> {
    let channel = channels::all().next().ok_or("no channel")?;
    let (_, mut consumer) = ipc::open(channel.words, channel.end)?;
    let (mut address, deadline) = ([0; 8], time::now_ns() + TIMEOUT_NS);
    while consumer.pop(&mut address)?.is_none() {
        expect_that("the victim says where its page is", time::now_ns() < deadline)?;
        events::sleep(1_000_000);
    }
    Ok(u64::from_le_bytes(address))
}

fn protection() -> Check {
    let protection = board().machine.dma_protection.load(Relaxed);
    let (dma, interrupts) = (DmaProtection::name(protection), DmaProtection::interrupts(protection));
    println!("dma protection={dma} interrupts={interrupts}");
    expect_that("there is an IOMMU", protection != DmaProtection::Trusted as u32)
}

fn attack(address: u64) -> Check {
    let index = entropy::find()?;
    let blocked = || board().devices[index].dma_blocked.load(Relaxed);
    let before = blocked();
    let mut device = entropy::Entropy::open(index)?;
    // SAFETY: an IOMMU stands between the device and that address, as `protection` checked.
    unsafe { device.request(address, BYTES) };
    let deadline = time::now_ns() + TIMEOUT_NS;
    loop {
        let events = events::wait(Some(deadline));
        if events.has(Upcall::DmaBlocked) {
            let range = address..address + u64::from(BYTES);
            expect_that(
                &format!("{:#x} is in {range:#x?}", events.fault_address),
                range.contains(&events.fault_address),
            )?;
            break;
        }
        expect_that("the blocked access is reported", time::now_ns() < deadline)?;
    }
    expect_that("the board counts it", blocked() > before)
}

/// The device works on after that.
fn own_grant() -> Check {
    let mut device = entropy::Entropy::open(entropy::find()?)?;
    expect("bytes read", device.read(&mut [0; 32])?, 32)
}
