//! A pager: a large region, few frames, and a store to which pages go that were written.
//!
//! A page is mapped read-only first, so that the first write shows that it has to be stored when its frame is
//! wanted for another page. The oldest page goes first.

use crate::{PAGE, WORDS, fault_in, region};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_app::alloc::{boxed::Box, format, vec, vec::Vec};
use nom_app::memory::{Grant, Region};
use nom_app::sync::Mutex;
use nom_app::upcall::{self, Delivery};
use nom_app::{PageSize, Protection, println};
use nom_guest_tests::{Check, expect, expect_that};

const PAGES: usize = 64;
const FRAMES: usize = 6;

static PAGER: Mutex<Option<Pager>> = Mutex::new(None);

#[derive(Clone, Copy)]
struct Resident {
    page: usize,
    dirty: bool,
}

/// A frame, and the page that it holds at the moment.
struct Slot {
    grant: Grant,
    resident: Option<Resident>,
}

struct Pager {
    region: &'static Region,
    /// Every slot's frame at a second address, through which it is filled and stored.
    window: &'static Region,
    slots: Vec<Slot>,
    /// The slot to use next: the oldest.
    hand: usize,
    store: Box<[[u64; WORDS]]>,
    loads: usize,
    stores: usize,
}

impl Pager {
    fn new() -> Result<Pager, nom_guest_tests::Failure> {
        let (region, window) = (region(PAGES as u64)?, region(FRAMES as u64)?);
        let mut slots = Vec::new();
        for number in 0..FRAMES {
            let grant = Grant::new(PageSize::Small, 1)?;
            window.map(number as u64 * PAGE, &grant, Protection::ReadWrite)?;
            slots.push(Slot { grant, resident: None });
        }
        let store = vec![[0; WORDS]; PAGES].into_boxed_slice();
        Ok(Pager { region, window, slots, hand: 0, store, loads: 0, stores: 0 })
    }

    /// The words of a slot's frame.
    fn frame(window: &Region, slot: usize) -> &[AtomicU64] {
        &window.words()[slot * WORDS..][..WORDS]
    }

    fn fault(&mut self, page: usize, present: bool, write: bool) {
        if present {
            assert!(write, "a page that is mapped can be read");
            return self.make_writable(page);
        }
        let slot = self.hand;
        self.hand = (slot + 1) % FRAMES;
        self.evict(slot);
        self.load(slot, page);
    }

    fn make_writable(&mut self, page: usize) {
        let resident =
            self.slots.iter_mut().filter_map(|slot| slot.resident.as_mut()).find(|r| r.page == page);
        resident.expect("a mapped page is resident").dirty = true;
        self.region.protect(page as u64 * PAGE, PAGE, Protection::ReadWrite).expect("it is mapped");
    }

    fn evict(&mut self, slot: usize) {
        let Some(Resident { page, dirty }) = self.slots[slot].resident.take() else {
            return;
        };
        self.region.unmap(page as u64 * PAGE, PAGE).expect("a resident page is mapped");
        if dirty {
            for (to, from) in self.store[page].iter_mut().zip(Self::frame(self.window, slot)) {
                *to = from.load(Relaxed);
            }
            self.stores += 1;
        }
    }

    fn load(&mut self, slot: usize, page: usize) {
        for (to, from) in Self::frame(self.window, slot).iter().zip(&self.store[page]) {
            to.store(*from, Relaxed);
        }
        let at = page as u64 * PAGE;
        self.region.map(at, &self.slots[slot].grant, Protection::Read).expect("a mapping");
        self.slots[slot].resident = Some(Resident { page, dirty: false });
        self.loads += 1;
    }
}

fn on_fault(delivery: &mut Delivery) {
    let mut pager = PAGER.try_lock().expect("the check does not hold it while it touches pages");
    let pager = pager.as_mut().expect("set before the first fault");
    let fault = fault_in(pager.region, delivery);
    pager.fault(fault.page, fault.present, fault.write);
}

pub fn check() -> Check {
    let pager = Pager::new()?;
    let words = pager.region.words();
    *PAGER.lock() = Some(pager);
    upcall::register(on_fault)?;
    for round in 1..=3 {
        // Orders that hit and miss: forwards, backwards, and in jumps.
        let place = |step: usize| [step, PAGES - 1 - step, step * 23 % PAGES][round % 3] * WORDS + step;
        (0..PAGES).for_each(|step| words[place(step)].store((round * 1000 + step) as u64, Relaxed));
        for step in 0..PAGES {
            expect(
                "a word that was paged out",
                words[place(step)].load(Relaxed),
                (round * 1000 + step) as u64,
            )?;
        }
    }
    let (loads, stores) = PAGER.lock().as_ref().map_or((0, 0), |pager| (pager.loads, pager.stores));
    println!("pager pages={PAGES} frames={FRAMES} loads={loads} stores={stores}");
    expect_that(&format!("{loads} loads are as many as must be"), loads >= 6 * (PAGES - FRAMES))?;
    expect_that("only what was written is stored", stores >= 3 * (PAGES - FRAMES) && stores < loads)
}
