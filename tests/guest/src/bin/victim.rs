//! Takes as much as it can of everything, in a way chosen at random, and ends in a way chosen at random or
//! not at all.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use nom_app::alloc::vec::Vec;
use nom_app::memory::{Grant, Region, Shared};
use nom_app::{PageSize, Protection, channels, cores, events, exit, ipc, seed, upcall};
use nom_guest_tests::{border, misdeeds};

nom_app::main!(main);

/// Exit status of one that ends by itself.
const STATUS: u8 = 7;

fn main() -> u8 {
    let [first, second, third, ..] = *seed();
    let memory = take_memory(first);
    if second & 1 != 0 {
        take_cores();
    }
    if second & 2 != 0 {
        let _ = upcall::register(|_| exit(STATUS));
    }
    if second & 4 != 0 {
        send();
    }
    match third % 16 {
        0 => border::raise_undefined(),
        1 => misdeeds::ALL[usize::from(first) % misdeeds::ALL.len()].1(),
        2..6 => return STATUS,
        6..10 => drop(memory),
        _ => {}
    }
    loop {
        match third & 64 {
            0 => core::hint::spin_loop(),
            _ => drop(events::wait(None)),
        }
    }
}

/// Memory of every kind: mapped, granted only, and with holes.
fn take_memory(choice: u8) -> (Vec<Shared>, Vec<Grant>, Option<Region>) {
    let size = if choice & 15 == 0 { PageSize::Large } else { PageSize::Small };
    let mapped: Vec<Shared> =
        (0..choice >> 4).filter_map(|count| Shared::new(size, u64::from(count)).ok()).collect();
    let grants: Vec<Grant> = (0..choice & 15).filter_map(|_| Grant::new(PageSize::Small, 3).ok()).collect();
    let region = Region::reserve(1 << 30, PageSize::Huge).ok();
    if let Some(region) = &region {
        for (place, grant) in grants.iter().enumerate() {
            let _ = region.map((place as u64) << 25, grant, Protection::ReadExecute);
        }
    }
    (mapped, grants, region)
}

fn take_cores() {
    while let Ok(core) = cores::acquire(|| {
        loop {
            events::yield_core();
        }
    }) {
        drop(core);
    }
}

fn send() {
    for channel in channels::all() {
        if let Ok((mut producer, _)) = ipc::open(channel.words, channel.end) {
            while producer.push(b"as much as there is room for").is_ok() {}
        }
        let _ = channel.notify();
    }
}
