//! Two regions share their pages until one of them writes.

use crate::{PAGE, WORDS, fault_in, region};
use core::sync::atomic::Ordering::Relaxed;
use nom_app::memory::{Grant, Region, Shared};
use nom_app::sync::Mutex;
use nom_app::upcall::{self, Delivery};
use nom_app::{PageSize, Protection};
use nom_guest_tests::{Check, expect, expect_that};

const PAGES: usize = 8;

static STATE: Mutex<Option<CopyOnWrite>> = Mutex::new(None);

struct CopyOnWrite {
    original: Shared,
    copy: &'static Region,
    /// Where a new page is filled before it is shown.
    window: &'static Region,
    own: [Option<Grant>; PAGES],
}

impl CopyOnWrite {
    /// Gives the copy a page of its own.
    fn part(&mut self, page: usize) {
        let offset = page as u64 * PAGE;
        let grant = Grant::new(PageSize::Small, 1).expect("memory for a page");
        self.window.map(0, &grant, Protection::ReadWrite).expect("a mapping");
        let from = &self.original.words()[page * WORDS..][..WORDS];
        for (to, from) in self.window.words().iter().zip(from) {
            to.store(from.load(Relaxed), Relaxed);
        }
        self.window.unmap(0, PAGE).expect("it is mapped");
        self.copy.unmap(offset, PAGE).expect("the shared page is mapped");
        self.copy.map(offset, &grant, Protection::ReadWrite).expect("a mapping");
        self.own[page] = Some(grant);
    }
}

fn on_fault(delivery: &mut Delivery) {
    let mut state = STATE.try_lock().expect("the check does not hold it while it touches pages");
    let state = state.as_mut().expect("set before the first fault");
    let fault = fault_in(state.copy, delivery);
    assert!(fault.present && fault.write, "only writes to shared pages fault");
    state.part(fault.page);
}

pub fn check() -> Check {
    let original = Shared::new(PageSize::Small, PAGES as u64)?;
    for (place, word) in original.words().iter().enumerate() {
        word.store(place as u64, Relaxed);
    }
    let (copy, window) = (region(PAGES as u64)?, region(1)?);
    copy.map(0, original.grant(), Protection::Read)?;
    *STATE.lock() = Some(CopyOnWrite { original, copy, window, own: [const { None }; PAGES] });
    upcall::register(on_fault)?;
    expect_that(
        "the copy begins as the original",
        (0..).zip(copy.words()).all(|(place, word)| word.load(Relaxed) == place),
    )?;
    for page in [1, 6] {
        copy.words()[page * WORDS + 3].store(u64::MAX, Relaxed);
    }
    check_copy(copy)?;
    let state = STATE.lock();
    let state = state.as_ref().ok_or("no state")?;
    let original = state.original.words();
    expect_that(
        "the original is untouched",
        (0..).zip(original).all(|(place, word)| word.load(Relaxed) == place),
    )?;
    let own = state.own.iter().enumerate().filter(|(_, grant)| grant.is_some()).map(|(page, _)| page);
    expect_that("only what was written was copied", own.eq([1, 6]))
}

fn check_copy(copy: &Region) -> Check {
    for (place, word) in copy.words().iter().enumerate() {
        let written = [WORDS + 3, 6 * WORDS + 3].contains(&place);
        expect("a word of the copy", word.load(Relaxed), if written { u64::MAX } else { place as u64 })?;
    }
    Ok(())
}
