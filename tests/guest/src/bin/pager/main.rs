//! Memory management by the application, through page-fault upcalls: demand paging, a copy-on-write region,
//! and a pager with a backing store that evicts.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

mod backed;
mod copied;
mod demand;

use nom_app::alloc::boxed::Box;
use nom_app::memory::Region;
use nom_app::upcall::Delivery;
use nom_app::{Error, PageSize, Upcall};
use nom_guest_tests::run;

nom_app::main!(main);

/// Bytes of a page.
const PAGE: u64 = PageSize::Small.bytes();
/// Words of a page.
const WORDS: usize = PAGE as usize / 8;

fn main() -> u8 {
    run(&[
        ("demand-paging", demand::check),
        ("copy-on-write", copied::check),
        ("pager-with-backing-store", backed::check),
    ])
}

/// A region of small pages that stays for ever, for handlers to refer to.
fn region(pages: u64) -> Result<&'static Region, Error> {
    Region::reserve(pages * PAGE, PageSize::Small).map(|region| &*Box::leak(Box::new(region)))
}

/// A page fault in a region.
struct PageFault {
    /// Which page of the region.
    page: usize,
    /// Whether the page was mapped, but not for this access.
    present: bool,
    /// Whether it was a write.
    write: bool,
}

/// The fault that an upcall reports. Panics, which ends the test, if it is another one.
fn fault_in(region: &Region, delivery: &Delivery) -> PageFault {
    let events = delivery.events();
    assert!(events.has(Upcall::PageFault), "unexpected upcall {events:?}");
    let offset = events.fault_address.wrapping_sub(region.address());
    assert!(offset < region.bytes(), "fault at {:#x}", events.fault_address);
    assert!(events.fault_code & 4 != 0, "a fault of ring 3 says so: {:#x}", events.fault_code);
    PageFault {
        page: (offset / PAGE) as usize,
        present: events.fault_code & 1 != 0,
        write: events.fault_code & 2 != 0,
    }
}
