//! A world for tests in which nothing happens by itself.

use nom_port::world::{Clock, Doorbell, Idle, Wakeup};

/// Its clock, which stands still, and its core, which nobody has to wake.
pub(crate) struct Still;

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

impl Doorbell for Still {
    fn ring(&self, _: usize) {}
}
