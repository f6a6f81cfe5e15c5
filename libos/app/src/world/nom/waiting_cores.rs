//! Cores that wait to be told what to do.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use nom_sys::cores::{self, Core};
use nom_sys::events;
use nom_sys::sync::Mutex;

/// What a core is to do, once.
type Work = Box<dyn FnOnce() + Send>;

enum Order {
    Wait,
    Work(Work),
    GoHome,
}

/// Cores besides the running one. They sleep until they have work.
pub(super) struct WaitingCores(Vec<(Core, Arc<Mutex<Order>>)>);

impl WaitingCores {
    /// Acquires `wanted` more cores, or as many of them as there are.
    pub fn acquire(wanted: usize) -> WaitingCores {
        WaitingCores((0..wanted).map_while(|_| waiting().ok()).collect())
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Gives a core each of `works`, and gives up the cores for which there is none. Returns those that work,
    /// in the order of their works.
    pub fn set_to(self, works: Vec<Work>) -> Vec<Core> {
        let count = works.len();
        let mut works = works.into_iter();
        let give = |(core, order): (Core, Arc<Mutex<Order>>)| {
            *order.lock() = works.next().map_or(Order::GoHome, Order::Work);
            cores::notify(core.number()).expect("a core is held until it has its order");
            core
        };
        let mut cores: Vec<Core> = self.0.into_iter().map(give).collect();
        cores.truncate(count);
        cores
    }
}

fn waiting() -> Result<(Core, Arc<Mutex<Order>>), nom_sys::Error> {
    let order = Arc::new(Mutex::new(Order::Wait));
    let own = order.clone();
    Ok((cores::acquire(move || follow(&own))?, order))
}

/// Waits for an order and carries it out.
fn follow(order: &Mutex<Order>) {
    loop {
        let given = core::mem::replace(&mut *order.lock(), Order::Wait);
        match given {
            Order::Wait => events::wait(None),
            Order::Work(work) => return work(),
            Order::GoHome => return,
        };
    }
}
