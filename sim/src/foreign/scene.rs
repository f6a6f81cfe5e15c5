//! Our clients and servers, and those of other implementations, on one faulty network.

use super::library::Library;
use super::model::Model;
use super::{Endpoint, Foreign};
use crate::clients::caller::Conversation;
use crate::clients::streams;
use crate::host::Plan;
use crate::random::Random;
use crate::scenario::{Builder, LIMIT, address};
use crate::servers::STREAM_PORT;
use crate::world::Outcome;
use std::net::{IpAddr, SocketAddr};

/// What such an implementation has to know of its host.
pub struct Facts {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Most bytes of an IP packet.
    pub mtu: u16,
    /// Its addresses, with the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Where it listens.
    pub port: u16,
    /// What its clock shows at the start.
    pub now_ns: u64,
    /// How it behaves is drawn from here.
    pub random: Random,
}

impl Builder {
    /// Adds a host of another implementation that serves long texts, with two clients of our server.
    fn foreign<E: Endpoint + 'static>(&mut self, name: &str, make: impl FnOnce(Facts) -> E) {
        let ours = self.places[0];
        let plan: Plan = self.plan(name);
        let number = self.hosts;
        let facts = Facts {
            mac: plan.shape.properties.mac,
            mtu: plan.shape.properties.mtu,
            addresses: vec![(address(number, true), 16), (address(number, false), 64)],
            port: STREAM_PORT,
            now_ns: plan.start_ns,
            random: self.random.fork(),
        };
        // The model knows IPv4 alone: what it is asked to connect to by IPv6 it never reaches.
        let is_v4 = |builder: &mut Builder| name == "model" || builder.random.happens(500_000);
        let talk = |builder: &mut Builder| {
            let (transfers, random) = (builder.random.within(1..3), builder.random.fork());
            let client: Box<dyn Conversation> = Box::new(streams::Client::new(random, transfers, 18));
            (SocketAddr::new(address(ours.0, is_v4(builder)), ours.1), client)
        };
        let talks: Vec<(SocketAddr, _)> = (0..2).map(|_| talk(self)).collect();
        let (start_ns, random) = (plan.start_ns, self.random.fork());
        self.add(plan, |core| Foreign::new(core.device, make(facts), start_ns, random, talks));
        self.places.push((number, STREAM_PORT));
    }

    /// Adds a host of ours with so many clients of the servers that are not ours, by IPv4.
    fn foreign_callers(&mut self, count: usize) {
        let plan = self.plan("clients");
        let theirs = self.places[1..].to_vec();
        let talk = |_| {
            let (transfers, random) = (self.random.within(1..3), self.random.fork());
            let (number, port) = self.random.choose(&theirs);
            let client: Box<dyn Conversation> = Box::new(streams::Client::new(random, transfers, 18));
            (SocketAddr::new(address(number, true), port), client)
        };
        let talks = (0..count).map(talk).collect();
        self.add_callers(plan, talks);
    }
}

/// Runs them from a seed.
///
/// # Panics
/// If something is not as it must be.
pub(crate) fn run(seed: u64, is_printed: bool) -> Outcome {
    let mut builder = Builder::new(seed, false, is_printed);
    builder.server(STREAM_PORT);
    builder.foreign("smoltcp", Library::new);
    builder.foreign("model", Model::new);
    builder.foreign("model", Model::new);
    (0..2).for_each(|_| builder.foreign_callers(4));
    // Segments of 100 bytes on a line that loses a tenth of them, sent again from the first one that is
    // missing: some seeds take just an hour, whatever work costs.
    builder.world.run(2 * LIMIT)
}
