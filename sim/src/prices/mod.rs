//! Prices that move as the seed says: a provider, `priced`, and a memcached whose governor reckons with them,
//! on a network that loses and breaks.
//!
//! The governor is the real one, and so is all of `priced` but its machine. The provider
//! ([`provider`]) is written from the description of its interface alone.

mod daemon;
mod market;
mod provider;

use crate::clients::memcached::Latencies;
use crate::host::Plan;
use crate::program::Node;
use crate::scenario::{Builder, LIMIT, address};
use crate::servers::{MEMCACHED_PORT, Memcached};
use crate::world::Outcome;
use daemon::Priced;
use market::{Board, Books, Ear, Script};
use nom_earn::{Earner, Held, Settings};
use nom_serve::{Ports, Server};
use provider::Provider;
use std::net::SocketAddr;
use std::rc::Rc;

const PROVIDER_PORT: u16 = 7007;
/// Dollars that users pay for a Gbit of answers: above that price of what is sent, the less of it the better.
const WORTH: f64 = 20.0;
const CONTRACT: &str = "Gbit; value 20";
/// Of clients on a sound network, with W = 0: two links each way.
const ROUND_TRIP_NS: u64 = 400_000;
/// The longest W that the governor may choose, in microseconds (`batching_delay_max`).
const LONGEST_US: u64 = 1000;

/// Prices move, and everybody who must hears of it.
///
/// # Panics
/// If something is not as it must be.
pub(crate) fn run(seed: u64, is_printed: bool) -> Outcome {
    let mut builder = Builder::new(seed, true, is_printed);
    let script = Rc::new(Script::new(&mut builder.random));
    let (board, books) = (Board::default(), Books::default());
    let latencies = add(&mut builder, &script, &board, &books);
    let outcome = builder.world.run(LIMIT);
    assert!(!latencies.borrow().is_empty(), "nobody was served");
    books.check(&script, &board);
    outcome
}

/// Everybody who is there.
fn add(builder: &mut Builder, script: &Rc<Script>, board: &Board, books: &Books) -> Latencies {
    let provider = add_provider(builder, script, books);
    let plan = builder.plan("memcached");
    builder.places.push((builder.hosts, MEMCACHED_PORT));
    // `priced` runs in the same machine, which has one clock.
    let (start_ns, skew_ppm) = (plan.start_ns, plan.skew_ppm);
    let (ear, prices) = (Ear(books.clone()), board.clone());
    let memcached = Memcached::new(builder.random.word());
    let server = builder.add(plan, move |core| {
        let ports = Ports { tcp: vec![MEMCACHED_PORT], udp: Vec::new() };
        let mut server = Server::new(core.device, core.clock, core.config, &ports, memcached);
        let held = || Held { cores: 1, memory_bytes: 64 << 20 };
        server.govern(Box::new(Earner::new(settings(), prices, ear, held)), &core.handle);
        server
    });
    builder.world.allow_delay(server, LONGEST_US);

    let plan = Plan { start_ns, skew_ppm, ..builder.plan("priced") };
    let program = Priced::new(provider, start_ns, board.clone(), books.clone(), script.clone());
    builder.add_rough(plan, |core| Node::new(core.device, core.config, &[], program));
    // They ask for longer than prices move.
    builder.timed_clients(3, script.length_ns() / ROUND_TRIP_NS)
}

/// A provider that breaks down once, so that whoever follows its prices has to find it again.
fn add_provider(builder: &mut Builder, script: &Rc<Script>, books: &Books) -> SocketAddr {
    let plan = builder.plan("provider");
    let provider = SocketAddr::new(address(builder.hosts, true), PROVIDER_PORT);
    let service = Provider::new(script.clone(), books.clone(), plan.start_ns);
    let host = builder.add_rough(plan, move |core| {
        let ports = Ports { tcp: vec![PROVIDER_PORT], udp: Vec::new() };
        Server::new(core.device, core.clock, core.config, &ports, service)
    });
    let at_ns = builder.random.within(0..script.length_ns());
    builder.world.break_device(host, at_ns, 300_000_000);
    provider
}

fn settings() -> Settings {
    let var = |name: &str| (name == "utility").then_some(CONTRACT);
    Settings::from_environment(var).expect("it is good").expect("there is a contract")
}
