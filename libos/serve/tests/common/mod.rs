//! What a server's cores ask of their world, where tests poll them and tell them the time.

use nom_net::{Cidr, Config};
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

/// A machine's number is its address's last byte, and its secret.
#[allow(dead_code, reason = "not every test's machines are alike")]
pub fn config(number: u8) -> Config {
    let address = Cidr { address: [10, 0, 0, number].into(), prefix: 24 };
    Config { addresses: vec![address], ..Config::new([number.into(); 4]) }
}
