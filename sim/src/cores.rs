//! Servers on several cores that come and go, and servers over the real driver.

use crate::clients::caller::Conversation;
use crate::clients::streams;
use crate::core_pool::{Group, Lender, Steering};
use crate::host::{Core, Host, HostClock, Plan};
use crate::memory::Pool;
use crate::network::Link;
use crate::nic::{Device, Port};
use crate::random::Random;
use crate::scenario::{Builder, LIMIT};
use crate::servers::{MEMCACHED_PORT, Memcached, STREAM_PORT, Streams};
use crate::virtio::{Machinery, Outfit, Pair, Setup};
use crate::world::Outcome;
use nom_elastic::ElasticCore;
use nom_port::nic::Nic;
use nom_rt::INFRASTRUCTURE;
use nom_serve::{Ports, Server};
use nom_service::{Governor, Service, Setting, Window};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const SECOND_NS: u64 = 1_000_000_000;

/// A driver that gives its device up has not done what it should in a run where devices break seldom.
fn give_up(error: nom_virtio::Error) {
    panic!("the driver has given the device up: {error}");
}

/// Orders a number of cores and a batching delay, each from a time on.
#[derive(Clone)]
struct Orders(Vec<(u64, Setting)>);

impl Governor for Orders {
    fn observe(&mut self, window: &Window) -> Setting {
        window.setting
    }

    fn look(&mut self, now_ns: u64) -> Option<Setting> {
        self.0.iter().rev().find(|(from_ns, _)| *from_ns <= now_ns).map(|(_, setting)| *setting)
    }

    fn governs(&self) -> bool {
        false
    }
}

/// What the cores of a machine have in common.
struct Common {
    group: Group,
    pool: Arc<Lender>,
    orders: Orders,
    ports: Ports,
}

impl Builder {
    /// Orders from a seed for a machine of so many cores, whose first host will have this number.
    fn orders(&mut self, plan: &Plan, cores: u64) -> Orders {
        let random = &mut self.random;
        let step = |index: u64| {
            let at_ns = index * SECOND_NS / 4 + random.within(0..SECOND_NS / 4);
            let batching_delay = Duration::from_micros(random.choose(&[0, 0, 20, 300]));
            let cores = random.within(0..cores + 1) as u16;
            (plan.start_ns + at_ns, Setting { batching_delay, cores, ..Setting::default() })
        };
        Orders((0..8).map(step).collect())
    }

    /// Adds a server of long texts on several cores, each with a device of its own kind that `start` makes
    /// a queue pair of.
    fn crowd<D, N: Nic + 'static>(
        &mut self,
        plan: &Plan,
        common: Common,
        devices: Vec<(Rc<RefCell<dyn crate::card::Card>>, D)>,
        start: impl Fn(D, &HostClock) -> N,
    ) {
        let remotes = common.group.remotes();
        let elastic = ElasticCore::group(remotes.clone());
        let mut hosts = Vec::new();
        for (elastic, device) in elastic.into_iter().zip(devices) {
            let index = elastic.index();
            let plan = Plan { name: format!("{}.{index}", plan.name), ..plan.clone() };
            let host = Host::reached_by(plan, remotes[index].clone(), device, |core: Core<D>| {
                let nic = start(core.device, &core.clock);
                let mut server = Server::new(nic, core.clock, core.config, &common.ports, Streams);
                server.set_core(elastic);
                server.set_pool(common.pool.clone());
                server.govern(Box::new(common.orders.clone()), &core.handle);
                server
            });
            hosts.push(host.among_others());
        }
        let (mac, link) = (plan.shape.properties.mac, self.link());
        let count = hosts.len();
        let first = self.world.add_machine(hosts, Some(common.group), mac, link);
        (first..first + count).for_each(|host| self.world.allow_delay(host, 300));
        for (at_ns, _) in &common.orders.0 {
            // By whichever clock.
            let at_ns = at_ns - plan.start_ns;
            self.world.wake(first, at_ns + at_ns / 500 + 1);
        }
    }

    fn common(&mut self, plan: &Plan, cores: usize) -> Common {
        let steering = self.random.choose(&[Steering::Hash, Steering::Learning, Steering::Random]);
        let group = Group::new(cores, steering, self.random.fork());
        let (pool, orders) = (group.pool(), self.orders(plan, cores as u64));
        Common { group, pool, orders, ports: Ports { tcp: vec![STREAM_PORT], udp: Vec::new() } }
    }

    /// The same over the simple device.
    fn simple_crowd(&mut self, cores: usize) {
        let plan = self.plan("cores");
        self.places.push((self.hosts, STREAM_PORT));
        let common = self.common(&plan, cores);
        let device = |_| {
            let port = Port::new(plan.shape, Pool::new(plan.memory));
            (port.clone() as Rc<RefCell<dyn crate::card::Card>>, Device(port))
        };
        let devices = (0..cores).map(device).collect();
        self.crowd(&plan, common, devices, |device, _| device);
    }

    /// The same over the real driver, whose device breaks now and then.
    fn driven_crowd(&mut self, cores: usize) {
        let mut plan = self.plan("cores");
        self.places.push((self.hosts, STREAM_PORT));
        let common = self.common(&plan, cores);
        let Outfit { cores: devices, mut device, .. } = self.outfit(&mut plan, cores as u16, give_up);
        let remotes = common.group.remotes();
        device.on_reset(Arc::new(move |_| {
            remotes.iter().for_each(|remote| remote.post(INFRASTRUCTURE, |_| {}));
        }));
        common.pool.tell(device);
        let first = self.world.count();
        self.crowd(&plan, common, devices, Setup::start);
        self.break_now_and_then(first);
    }

    /// Adds a server on one core over the real driver, whose device breaks up to four times. If the driver
    /// gives it up, `on_failure` is told.
    fn driven<S: Service<crate::virtio::Tracked> + 'static>(
        &mut self,
        name: &str,
        port: u16,
        service: S,
        on_failure: fn(nom_virtio::Error),
    ) -> Rc<RefCell<Machinery>> {
        let mut plan = self.plan(name);
        self.places.push((self.hosts, port));
        let mut outfit = self.outfit(&mut plan, 1, on_failure);
        let device = outfit.cores.remove(0);
        let udp = if port == MEMCACHED_PORT { vec![port] } else { Vec::new() };
        let ports = Ports { tcp: vec![port], udp };
        let mac = plan.shape.properties.mac;
        let remote = nom_rt::inbox::Remote::new(0, Arc::new(crate::host::Alone));
        let host = Host::reached_by(plan, remote, device, |core: Core<Setup>| {
            let nic: Pair = core.device.start(&core.clock);
            Server::new(nic, core.clock, core.config, &ports, service)
        });
        let link = self.link();
        let host = self.world.add(host, mac, link);
        self.vary_delay(host);
        for _ in 0..self.random.within(0..5) {
            let at_ns = self.random.within(0..SECOND_NS);
            self.world.break_device(host, at_ns, self.random.choose(&[0, 1_000_000, 300_000_000]));
        }
        outfit.machinery
    }

    /// Adds a host with clients that demand long texts, and that no connection breaks.
    fn strict_callers(&mut self, count: usize) {
        let plan = self.plan("clients");
        let talks = (0..count).map(|_| {
            let (transfers, random) = (self.random.within(2..12), self.random.fork());
            let client: Box<dyn Conversation> =
                Box::new(streams::Client::new(random, transfers, 17).strict());
            let place = self.random.choose(&self.places.clone());
            (self.remote(place), client)
        });
        let talks = talks.collect();
        self.add_callers(plan, talks);
    }
}

/// A server on two to four cores, which come and go, over the simple device or over the real driver.
///
/// # Panics
/// If something is not as it must be.
pub(crate) fn run_cores(seed: u64, is_printed: bool) -> Outcome {
    let mut builder = Builder::new(seed, false, is_printed);
    if builder.random.happens(500_000) {
        builder.only_link(Link::sound());
    }
    let cores = builder.random.within(2..5) as usize;
    if builder.random.happens(500_000) {
        builder.simple_crowd(cores);
    } else {
        builder.driven_crowd(cores);
    }
    (0..3).for_each(|_| builder.strict_callers(5));
    builder.world.run(LIMIT)
}

/// memcached and a server of long texts over the real driver.
///
/// # Panics
/// If something is not as it must be.
pub(crate) fn run_driver(seed: u64, is_printed: bool) -> Outcome {
    let mut builder = Builder::new(seed, false, is_printed);
    let name = Random::new(seed).word();
    builder.driven("memcached", MEMCACHED_PORT, Memcached::new(name), give_up);
    builder.driven("streams", STREAM_PORT, Streams, give_up);
    (0..3).for_each(|_| builder.callers(4));
    builder.datagram_client();
    builder.world.run(LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtio::Damage;
    use std::cell::Cell;

    thread_local! {
        static TOLD: Cell<Option<nom_virtio::Error>> = const { Cell::new(None) };
    }

    /// A device that breaks once a second, and whose frames come and go in between.
    #[test]
    fn a_device_that_breaks_again_and_again_is_given_up_with_a_reason() {
        for damage in [Damage::NeedsReset, Damage::Nonsense { queue: 0 }, Damage::Nonsense { queue: 1 }] {
            TOLD.set(None);
            let mut builder = Builder::new(1, false, false);
            builder.only_link(Link::sound());
            let machinery = builder.driven("streams", STREAM_PORT, Streams, |error| TOLD.set(Some(error)));
            builder.strict_callers(3);
            for second in 1..10 {
                builder.world.run_for(Duration::from_secs(1));
                machinery.borrow_mut().suffer(damage, 0);
                builder.world.wake(0, second * SECOND_NS);
            }
            builder.world.run_for(Duration::from_secs(1));
            // The first one was the driver's beginning.
            assert_eq!(machinery.borrow().resets(), 1 + 8, "{damage:?}");
            assert_eq!(TOLD.take(), Some(nom_virtio::Error::BrokeOften(9)), "{damage:?}");
        }
    }
}
