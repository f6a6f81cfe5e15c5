//! Pages come into being when they are first touched.

use crate::{PAGE, WORDS, fault_in, region};
use core::sync::atomic::Ordering::Relaxed;
use nom_app::memory::{Grant, Region};
use nom_app::sync::Mutex;
use nom_app::upcall::{self, Delivery};
use nom_app::{PageSize, Protection};
use nom_guest_tests::{Check, expect};

/// Pages of the region; most are never touched.
const PAGES: u64 = 1 << 18;
/// Pages that are touched.
const TOUCHED: usize = 32;

static STATE: Mutex<Option<Demand>> = Mutex::new(None);

struct Demand {
    region: &'static Region,
    grants: [Option<Grant>; TOUCHED],
    faults: usize,
}

fn on_fault(delivery: &mut Delivery) {
    let mut state = STATE.try_lock().expect("the check does not hold it while it touches pages");
    let demand = state.as_mut().expect("set before the first fault");
    let fault = fault_in(demand.region, delivery);
    assert!(!fault.present, "page {} is there", fault.page);
    let grant = Grant::new(PageSize::Small, 1).expect("memory for a page");
    demand.region.map(fault.page as u64 * PAGE, &grant, Protection::ReadWrite).expect("a mapping");
    demand.grants[demand.faults] = Some(grant);
    demand.faults += 1;
}

pub fn check() -> Check {
    let region = region(PAGES)?;
    *STATE.lock() = Some(Demand { region, grants: [const { None }; TOUCHED], faults: 0 });
    upcall::register(on_fault)?;
    let places = || (0..TOUCHED).map(|number| number * (PAGES as usize / TOUCHED) * WORDS + 8 * number);
    for place in places() {
        expect("a word of a new page", region.words()[place].load(Relaxed), 0)?;
        region.words()[place].store(place as u64 + 1, Relaxed);
    }
    for place in places() {
        expect("a word", region.words()[place].load(Relaxed), place as u64 + 1)?;
    }
    let faults = STATE.lock().as_ref().map(|demand| demand.faults);
    expect("page faults", faults, Some(TOUCHED))
}
