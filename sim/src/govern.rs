//! A governor and what it is told: what it sets is in force at once, and what a server measures of its
//! requests is what its clients measure.

use crate::clients::control;
use crate::delay::finish;
use crate::host::Core;
use crate::nic::Port;
use crate::random::Random;
use crate::scenario::governed;
use crate::world::Outcome;
use nom_serve::Control;
use nom_service::{Governor, Setting, Window};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// The windows that a governor saw.
type Windows = Rc<RefCell<Vec<Window>>>;

/// Sets one delay after the other, a window each, and notes what it sees.
struct Steps {
    micros: Vec<u64>,
    windows: Windows,
}

impl Governor for Steps {
    fn observe(&mut self, window: &Window) -> Setting {
        let mut windows = self.windows.borrow_mut();
        windows.push(*window);
        let micros = self.micros[windows.len() % self.micros.len()];
        Setting { batching_delay: Duration::from_micros(micros), ..Setting::default() }
    }
}

/// The governor's windows, and latencies as the clients saw them, in nanoseconds.
struct Seen {
    windows: Vec<Window>,
    latencies: Vec<u64>,
}

fn steps(seed: u64, micros: &[u64], clients: usize, total: &mut Outcome) -> Seen {
    let windows = Windows::default();
    let governor = Steps { micros: micros.to_vec(), windows: windows.clone() };
    let govern = |server: &mut nom_serve::Server<_, _, _>, core: &Core| {
        server.govern(Box::new(governor), &core.handle);
    };
    let (mut world, server, latencies) = governed(seed, govern, (clients, 1_000), None);
    world.allow_delay(server, micros.iter().copied().max().unwrap_or_default());
    finish(&mut world, total);
    // Its machine has ended, but the governor's windows are kept here.
    let (windows, latencies) = (windows.take(), latencies.take());
    Seen { windows, latencies }
}

/// Runs all of it.
///
/// # Panics
/// If something is not as it must be.
pub fn run(seed: u64, random: &mut Random, total: &mut Outcome) {
    one_client(seed, random, total);
    many_clients(seed, random, total);
    at_once(seed, random, total);
    ordered(seed, random, total);
}

/// What a lone client waits for in the machine is W, to the nanosecond, in each window of one W.
fn one_client(seed: u64, random: &mut Random, total: &mut Outcome) {
    let micros = [0, random.within(1..100), random.within(100..10_000)];
    let seen = steps(seed, &micros, 1, total);
    for (window, before) in
        seen.windows.iter().skip(1).zip(&seen.windows).filter(|(window, _)| window.requests > 2)
    {
        let delay_ns = window.setting.batching_delay.as_nanos() as u64;
        // The first request of a window may have been held for the W of the one before.
        let before_ns = before.setting.batching_delay.as_nanos() as u64;
        let is_expected =
            |ns: u64| ns.abs_diff(delay_ns) <= 1 + before_ns.abs_diff(delay_ns) / window.requests;
        assert!(is_expected(window.service.mean_ns), "W = {delay_ns} ns, but {:?}", window.service);
    }
    compare(&seen, "one client");
}

/// With many clients, mean and deviation are those that the clients see.
fn many_clients(seed: u64, random: &mut Random, total: &mut Outcome) {
    let micros = [random.within(0..10_001)];
    compare(&steps(seed, &micros, 20, total), "twenty clients");
}

/// What the server measured against what the clients did.
fn compare(seen: &Seen, who: &str) {
    let requests: u64 = seen.windows.iter().map(|window| window.requests).sum();
    let measured: u64 = seen.windows.iter().map(|window| window.requests * window.latency.mean_ns).sum();
    let measured_ns = measured as f64 / requests as f64;
    let truth_ns = seen.latencies.iter().sum::<u64>() as f64 / seen.latencies.len() as f64;
    // Two clocks that are each wrong by a thousandth; and the last window never ends.
    assert!(
        (measured_ns - truth_ns).abs() <= 0.01 * truth_ns && requests as usize <= seen.latencies.len(),
        "{who}: measured {measured_ns} ns of {requests} requests, truly {truth_ns} of {}",
        seen.latencies.len()
    );
}

/// Once it is asked while a packet is held, it wants W = 0; next time it finds the packet gone.
struct Impatient {
    port: Rc<RefCell<Port>>,
    asked_ns: Option<u64>,
    found: Rc<RefCell<u64>>,
}

impl Governor for Impatient {
    fn observe(&mut self, window: &Window) -> Setting {
        window.setting
    }

    fn look(&mut self, now_ns: u64) -> Option<Setting> {
        let port = self.port.borrow();
        if let Some(asked_ns) = self.asked_ns.take() {
            let kicked_ns = port.tally.kicked_ns;
            assert!(kicked_ns == asked_ns, "W = 0 at {asked_ns} ns let a packet go at {kicked_ns} ns");
            *self.found.borrow_mut() += 1;
        }
        let is_held = port.held() > 0;
        self.asked_ns = is_held.then_some(now_ns);
        Some(Setting {
            batching_delay: Duration::from_millis(if is_held { 0 } else { 10 }),
            ..Setting::default()
        })
    }
}

/// What a governor wants between two windows is in force before anything else happens.
fn at_once(seed: u64, random: &mut Random, total: &mut Outcome) {
    let found = Rc::new(RefCell::new(0));
    let govern = |server: &mut nom_serve::Server<_, _, _>, core: &Core| {
        let governor = Impatient { port: core.device.0.clone(), asked_ns: None, found: found.clone() };
        server.govern(Box::new(governor), &core.handle);
    };
    let (mut world, server, _) = governed(seed, govern, (1, 100), None);
    world.allow_delay(server, 10_000);
    for at_ms in 1..500 {
        world.wake(server, at_ms * 1_000_000 + random.within(0..1_000_000));
    }
    finish(&mut world, total);
    assert!(*found.borrow() > 10, "packets were held {} times", found.borrow());
}

/// The control port, in the middle of other requests.
fn ordered(seed: u64, random: &mut Random, total: &mut Outcome) {
    const PORT: u16 = 9999;
    let micros = random.within(1..10_001);
    let govern = |server: &mut nom_serve::Server<_, _, _>, core: &Core| {
        server.control(Control::new(PORT, 1), 0, &core.handle);
    };
    let talk = Box::new(control::Client::new(micros));
    let (mut world, server, latencies) = governed(seed, govern, (3, 2_000), Some((PORT, talk)));
    world.allow_delay(server, micros);
    finish(&mut world, total);
    let held_ns = latencies.borrow().iter().max().copied().unwrap_or_default();
    assert!(
        held_ns >= micros * 999,
        "W = {micros} us was ordered, but the longest request took {held_ns} ns"
    );
}
