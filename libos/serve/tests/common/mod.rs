//! What a server's cores ask of their world, where tests poll them and tell them the time.

use nom_port::world::{Clock, Doorbell, Idle, Wakeup};

/// A world in which no time passes, and nobody sleeps.
#[allow(dead_code, reason = "not every test's world stands still")]
pub struct Still;

impl Clock for Still {
    fn now_ns(&self) -> u64 {
        0
    }
}

impl Idle for Still {
    fn sleep(&mut self, _: Option<u64>) -> Wakeup {
        Wakeup::default()
    }
}

/// Cores that need not be woken.
#[allow(dead_code, reason = "not every test has an event loop")]
pub struct Deaf;

impl Doorbell for Deaf {
    fn ring(&self, _: usize) {}
}
