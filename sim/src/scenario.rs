//! What happens in a run: who is there, what the network does to them, and what must come of it.

use crate::clients::caller::{Caller, Conversation};
use crate::clients::pace::Pace;
use crate::clients::{datagrams, flood, http, memcached, netpipe, rude, streams};
use crate::host::{Core, Cost, Host, HostClock, Plan};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::network::Link;
use crate::nic::{Device, Shape};
use crate::program::{Node, Program};
use crate::random::Random;
use crate::servers::{
    HTTP_PORT, MEMCACHED_PORT, Memcached, NETPIPE_PORT, Netpipe, Nhttpd, STREAM_PORT, Streams,
};
use crate::trace::Trace;
use crate::world::{Outcome, World};
use nom_net::tcp::connection::WINDOW_MAX;
use nom_net::{Cidr, Config, KeepAlive, Settings, SmallSegments};
use nom_port::nic::{Offloads, Properties};
use nom_rt::handle::Handle;
use nom_rt::rest::Thresholds;
use nom_serve::{Ports, Server};
use nom_service::Service;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// memcached under clients that check every value, over TCP and UDP.
    Memcached,
    /// nhttpd under pipelined requests for files and parts of them.
    Http,
    /// Long texts in both directions, and NetPIPE.
    Bulk,
    /// Well-behaved clients among rude ones, floods of SYN, and resets at a guess.
    Storm,
    /// The batching delay W on a sound network, of a single client and of many.
    Delay,
    /// Long texts between our TCP and two others: smoltcp's, and a model of RFC 9293.
    Foreign,
    /// A provider whose prices move, `priced`, and a memcached whose governor reckons with them.
    Prices,
    /// Long texts from a server on several cores, which come and go.
    Cores,
    /// memcached and long texts over the real driver, on a device that breaks.
    Driver,
    /// Long texts through sockets, by threads and by tasks.
    Sockets,
    /// All of it at once.
    Mixed,
}

/// When small segments go, of a world that is not sound.
const SMALL_SEGMENTS: [SmallSegments; 5] = [
    SmallSegments::AtOnce,
    SmallSegments::AtOnce,
    SmallSegments::AtOnce,
    SmallSegments::Acknowledged,
    SmallSegments::Held,
];
const MIB: usize = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

/// No run may take longer in virtual time.
pub(crate) const LIMIT: Duration = Duration::from_secs(3_600);

/// Makes a world of a seed.
pub(crate) struct Builder {
    pub(crate) random: Random,
    pub(crate) world: World,
    pub(crate) hosts: u16,
    is_sound: bool,
    /// What all links are like, if they are all alike.
    only_link: Option<Link>,
    /// Servers: number of the host, and port.
    pub(crate) places: Vec<(u16, u16)>,
}

fn mac(number: u16) -> [u8; 6] {
    let [high, low] = number.to_be_bytes();
    [2, 0, 0, 0, high, low]
}

pub(crate) fn address(number: u16, is_v4: bool) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    if is_v4 { [10, 0, high, low].into() } else { [0xfd00, 0, 0, 0, 0, 0, 0, number].into() }
}

impl Builder {
    pub(crate) fn new(seed: u64, is_sound: bool, is_printed: bool) -> Builder {
        let mut random = Random::new(seed);
        let world = World::new(random.fork(), Trace::new(is_printed));
        Builder { random, world, hosts: 0, is_sound, only_link: None, places: Vec::new() }
    }

    fn config(&mut self, number: u16) -> Config {
        let random = &mut self.random;
        let secret = std::array::from_fn(|_| random.word());
        let addresses = [(true, 16), (false, 64)]
            .map(|(is_v4, prefix)| Cidr { address: address(number, is_v4), prefix })
            .to_vec();
        let keep_alive =
            KeepAlive { idle: Duration::from_secs(20), interval: Duration::from_secs(5), probes: 6 };
        let mut tcp = Settings { keep_alive: Some(keep_alive), ..Settings::default() };
        if !self.is_sound {
            let receive = random.choose(&[3_000, 20_000, 65_535, 256 << 10]);
            tcp.fix_windows(receive, random.choose(&[4_000, 50_000, 256 << 10]));
            if random.happens(500_000) {
                (tcp.receive_window_max, tcp.send_queue_max) = (WINDOW_MAX, 16 << 20);
            }
            tcp.small_segments = random.choose(&SMALL_SEGMENTS);
            tcp.acknowledge_delay = random.choose(&[0, 5, 40]).pipe(Duration::from_millis);
            tcp.kept_max = random.choose(&[8_000, 16 << 20]);
            tcp.queued_max = random.choose(&[100_000, 64 << 20]);
        }
        let half_open_max = if self.is_sound { 1024 } else { random.choose(&[2, 1024]) };
        Config { addresses, tcp, half_open_max, ..Config::new(secret) }
    }

    fn shape(&mut self, number: u16) -> Shape {
        let random = &mut self.random;
        let mut coin = || random.happens(500_000);
        let checksum = coin();
        let offloads =
            Offloads { checksum, segment_tcp4: checksum && coin(), segment_tcp6: checksum && coin() };
        // IPv6 needs 1280 (RFC 8200 section 5).
        let mtu = random.choose(&[1280, 1500, 1500, 1500]);
        let ring = random.choose(&[64, 256, 1024]);
        Shape {
            properties: Properties { mac: mac(number), mtu, offloads },
            ring,
            piece: random.choose(&[256, 2048, 65_536]),
        }
    }

    pub(crate) fn plan(&mut self, name: &str) -> Plan {
        self.hosts += 1;
        let number = self.hosts;
        let (shape, config) = (self.shape(number), self.config(number));
        let random = &mut self.random;
        let is_sound = self.is_sound;
        Plan {
            name: format!("{name}-{number}"),
            shape,
            config,
            memory: 256 * MIB,
            start_ns: random.within(0..100 * SECOND_NS),
            skew_ppm: random.within(0..2001) as i64 - 1000,
            wake_ns: if is_sound { 0 } else { random.choose(&[0, 3_000, 50_000]) },
            thresholds: if is_sound {
                Thresholds::INTERRUPTS
            } else {
                random.choose(&[Thresholds::INTERRUPTS, Thresholds::INTERRUPTS, Thresholds::ADAPTIVE])
            },
            cost: if is_sound {
                Cost::default()
            } else {
                let (packet_ns, byte_ps) = (random.choose(&[0, 500, 5_000]), random.choose(&[0, 300, 5_000]));
                Cost { packet_ns, byte_ps }
            },
            tick_ns: 0,
        }
    }

    /// Makes all links that are yet to come alike.
    pub(crate) fn only_link(&mut self, link: Link) {
        self.only_link = Some(link);
    }

    pub(crate) fn link(&mut self) -> Link {
        match self.only_link {
            Some(link) => link,
            None if self.is_sound => Link::sound(),
            None => Link::any(&mut self.random),
        }
    }

    pub(crate) fn add<M: Machine + 'static>(&mut self, plan: Plan, make: impl FnOnce(Core) -> M) -> usize {
        let mac = plan.shape.properties.mac;
        let link = self.link();
        self.world.add(Host::new(plan, make), mac, link)
    }

    /// The same behind a link of any kind, though the network is sound.
    pub(crate) fn add_rough<M: Machine + 'static>(
        &mut self,
        plan: Plan,
        make: impl FnOnce(Core) -> M,
    ) -> usize {
        let (mac, link) = (plan.shape.properties.mac, Link::any(&mut self.random));
        self.world.add(Host::new(plan, make), mac, link)
    }

    fn add_client<P: Program + 'static>(&mut self, plan: Plan, udp: &[u16], program: P) -> usize {
        self.add(plan, |core| Node::new(core.device, core.config, udp, program))
    }

    fn add_server<S: Service<Memory> + 'static>(
        &mut self,
        plan: Plan,
        ports: &Ports,
        service: impl FnOnce(&mut Core) -> S,
    ) -> usize {
        self.add(plan, |mut core| {
            let service = service(&mut core);
            Server::new(core.device, core.clock, core.config, ports, service)
        })
    }

    /// Adds a server whose batching delay changes now and then, unless the network is sound.
    pub(crate) fn server(&mut self, port: u16) -> usize {
        let udp = if port == MEMCACHED_PORT { vec![port] } else { Vec::new() };
        let ports = Ports { tcp: vec![port], udp };
        let name = match port {
            MEMCACHED_PORT => "memcached",
            HTTP_PORT => "nhttpd",
            NETPIPE_PORT => "netpipe",
            _ => "streams",
        };
        let mut plan = self.plan(name);
        if port == NETPIPE_PORT && plan.config.tcp.small_segments == SmallSegments::Held {
            // It speaks with one at a time, in hundreds of small messages: the others would wait for minutes.
            plan.config.tcp.small_segments = SmallSegments::Acknowledged;
        }
        self.places.push((self.hosts, port));
        let seed = self.random.word();
        let host = match port {
            MEMCACHED_PORT => self.add_server(plan, &ports, |_| Memcached::new(seed)),
            HTTP_PORT => self.add_server(plan, &ports, |core| Nhttpd::new(&mut core.device, seed)),
            NETPIPE_PORT => self.add_server(plan, &ports, |_| Netpipe::new()),
            _ => self.add_server(plan, &ports, |_| Streams),
        };
        if !self.is_sound {
            self.vary_delay(host);
            self.break_now_and_then(host);
        }
        host
    }

    /// Breaks a host's device a few times, in one run of four.
    pub(crate) fn break_now_and_then(&mut self, host: usize) {
        let times = if self.random.happens(250_000) { self.random.within(1..4) } else { 0 };
        for _ in 0..times {
            let at_ns = self.random.within(0..5 * SECOND_NS);
            self.world.break_device(host, at_ns, self.random.choose(&[0, 1_000_000, 300_000_000]));
        }
    }

    /// Adds `service` at TCP `ports`, and a host with a client for each talk, which names its port.
    pub(crate) fn trial<S: Service<Memory> + 'static>(
        &mut self,
        service: impl FnOnce(&Handle) -> S,
        ports: Vec<u16>,
        talks: Vec<(u16, Box<dyn Conversation>)>,
    ) {
        let plan = self.plan("service");
        let server = self.hosts;
        let host =
            self.add_server(plan, &Ports { tcp: ports, udp: Vec::new() }, |core| service(&core.handle));
        if !self.is_sound {
            self.vary_delay(host);
        }
        let plan = self.plan("clients");
        let talks = talks.into_iter().map(|(port, talk)| (self.remote((server, port)), talk)).collect();
        self.add_callers(plan, talks);
    }

    /// Adds a machine with `service` at TCP `ports`.
    pub(crate) fn serve_at<S: Service<Memory> + 'static>(
        &mut self,
        ports: Vec<u16>,
        service: impl FnOnce(&Handle) -> S,
    ) {
        let plan = self.plan("service");
        let host =
            self.add_server(plan, &Ports { tcp: ports, udp: Vec::new() }, |core| service(&core.handle));
        if !self.is_sound {
            self.vary_delay(host);
        }
    }

    fn servers(&mut self, ports: &[u16]) {
        for port in ports {
            self.server(*port);
        }
    }

    pub(crate) fn vary_delay(&mut self, host: usize) {
        for second in 0..self.random.within(0..6) {
            let micros = self.random.choose(&[0, 1, 20, 300, 10_000]);
            let at_ns = second * SECOND_NS + self.random.within(0..SECOND_NS);
            self.world.set_delay(host, at_ns, micros);
        }
    }

    pub(crate) fn remote(&mut self, server: (u16, u16)) -> SocketAddr {
        SocketAddr::new(address(server.0, self.random.happens(500_000)), server.1)
    }

    fn conversation(&mut self, port: u16) -> Box<dyn Conversation> {
        let mut random = self.random.fork();
        let count = random.within(1..120);
        match port {
            MEMCACHED_PORT => {
                let (pipeline, think_ns) = (random.choose(&[1, 1, 8]), random.choose(&[0, 0, 5_000_000]));
                Box::new(memcached::Client::new(random, count, pipeline, think_ns))
            }
            HTTP_PORT => Box::new(http::Client::new(random, count / 2 + 1, 6)),
            NETPIPE_PORT => Box::new(netpipe::Client::new(random.word())),
            _ => Box::new(streams::Client::new(random, 1 + count / 40, 22)),
        }
    }

    /// Adds a host of `count` well-behaved clients of all the servers.
    pub(crate) fn callers(&mut self, count: usize) {
        let plan = self.plan("clients");
        let talks = (0..count).map(|_| {
            let server = self.random.choose(&self.places.clone());
            (self.remote(server), self.conversation(server.1))
        });
        let talks = talks.collect();
        self.add_callers(plan, talks);
    }

    pub(crate) fn add_callers(
        &mut self,
        plan: Plan,
        talks: Vec<(SocketAddr, Box<dyn Conversation>)>,
    ) -> usize {
        // With every tenth frame lost, ten losses in a row keep a client waiting for minutes.
        let patience_ns = if self.is_sound { 5 * SECOND_NS } else { 600 * SECOND_NS };
        let (start_ns, random) = (plan.start_ns, self.random.fork());
        self.add_client(plan, &[], Caller::new(start_ns, patience_ns, random, talks))
    }

    /// Adds clients of the first server that ask for small values, each as soon as it has the last, and note
    /// how long that took.
    pub(crate) fn timed_clients(&mut self, count: usize, requests: u64) -> memcached::Latencies {
        let latencies = memcached::Latencies::default();
        let plan = self.plan("clients");
        let remote = SocketAddr::new(address(self.places[0].0, true), MEMCACHED_PORT);
        let talks = (0..count).map(|_| {
            let client = memcached::Client::timed(self.random.fork(), requests, latencies.clone());
            (remote, Box::new(client) as Box<dyn Conversation>)
        });
        let talks = talks.collect();
        self.add_callers(plan, talks);
        latencies
    }

    pub(crate) fn datagram_client(&mut self) {
        let plan = self.plan("datagrams");
        let server = *self.places.iter().find(|(_, port)| *port == MEMCACHED_PORT).expect("it is there");
        let (remote, random) = (self.remote(server), self.random.fork());
        self.add_client(plan, &[datagrams::PORT], datagrams::Client::new(remote, random, 100));
    }

    fn rude(&mut self) {
        let plan = self.plan("rude");
        // The other servers trust their clients to keep to the protocol, or serve one at a time.
        let is_robust = |(_, port): &(u16, u16)| matches!(*port, MEMCACHED_PORT | HTTP_PORT);
        let places: Vec<_> = self.places.iter().copied().filter(is_robust).collect();
        let remotes = places.into_iter().map(|place| self.remote(place)).collect();
        let pace_ns = self.random.choose(&[200_000, 2_000_000, 30_000_000]);
        let (start_ns, random) = (plan.start_ns, self.random.fork());
        let pace = Pace::new(start_ns, 1_000 * pace_ns, pace_ns);
        self.add_client(plan, &[], rude::Rude::new(pace, 60, random, remotes));
    }

    fn flood(&mut self) {
        let plan = self.plan("flood");
        let friend = self.hosts - 1;
        let victims = self.places.clone().into_iter().map(|(number, port)| {
            let is_v4 = self.random.happens(500_000);
            let target = SocketAddr::new(address(number, is_v4), port);
            flood::Victim { mac: mac(number), address: target, friend: address(friend, is_v4) }
        });
        let victims = victims.collect();
        let pace_ns = self.random.choose(&[50_000, 1_000_000]);
        let (start_ns, random) = (plan.start_ns, self.random.fork());
        let pace = Pace::new(start_ns, 4_000 * pace_ns, pace_ns);
        self.add_client(plan, &[], flood::Flood::new(pace, random, victims));
    }
}

/// `value.pipe(f)` is `f(value)`: the choice is read before what is made of it.
trait Pipe: Sized {
    fn pipe<T>(self, then: impl FnOnce(Self) -> T) -> T {
        then(self)
    }
}

impl Pipe for u64 {}

/// Runs a scenario from a seed; prints every frame if that is wanted.
///
/// # Panics
/// If something is not as it must be.
pub fn run(scenario: Scenario, seed: u64, is_printed: bool) -> Outcome {
    let mut builder = Builder::new(seed, false, is_printed);
    match scenario {
        Scenario::Delay => return crate::delay::run(seed, is_printed),
        Scenario::Foreign => return crate::foreign::run(seed, is_printed),
        Scenario::Prices => return crate::prices::run(seed, is_printed),
        Scenario::Cores => return crate::cores::run_cores(seed, is_printed),
        Scenario::Sockets => return crate::sockets::run(seed, is_printed),
        Scenario::Driver => return crate::cores::run_driver(seed, is_printed),
        Scenario::Memcached => {
            builder.server(MEMCACHED_PORT);
            (0..4).for_each(|_| builder.callers(5));
            builder.datagram_client();
        }
        Scenario::Http => {
            builder.server(HTTP_PORT);
            (0..3).for_each(|_| builder.callers(4));
        }
        Scenario::Bulk => {
            builder.servers(&[STREAM_PORT, NETPIPE_PORT]);
            (0..3).for_each(|_| builder.callers(2));
        }
        Scenario::Storm => {
            builder.servers(&[MEMCACHED_PORT, HTTP_PORT, STREAM_PORT]);
            (0..2).for_each(|_| builder.callers(4));
            (0..2).for_each(|_| builder.rude());
            builder.flood();
        }
        Scenario::Mixed => {
            builder.servers(&[MEMCACHED_PORT, HTTP_PORT, STREAM_PORT, NETPIPE_PORT]);
            (0..3).for_each(|_| builder.callers(4));
            builder.datagram_client();
            builder.rude();
            builder.flood();
        }
    }
    builder.world.run(LIMIT)
}

/// A sound network with one memcached whose batching delay is `micros`, and clients that ask 400 times and
/// note how long each answer took.
pub(crate) fn quiet(
    seed: u64,
    micros: u64,
    clients: usize,
    is_printed: bool,
) -> (World, usize, memcached::Latencies) {
    let mut builder = Builder::new(seed, true, is_printed);
    let server = builder.server(MEMCACHED_PORT);
    builder.world.set_delay(server, 0, micros);
    let latencies = builder.timed_clients(clients, 400);
    (builder.world, server, latencies)
}

/// The same on hosts whose work costs `cost`, the first of which, the server, breaks down for a while.
#[cfg(test)]
pub(crate) fn worked(
    seed: u64,
    cost: Cost,
    clients: usize,
    broken: Option<(u64, u64)>,
) -> (World, usize, memcached::Latencies) {
    let mut builder = Builder::new(seed, true, false);
    let plan = Plan { cost, ..builder.plan("memcached") };
    builder.places.push((builder.hosts, MEMCACHED_PORT));
    let ports = Ports { tcp: vec![MEMCACHED_PORT], udp: Vec::new() };
    let server = builder.add_server(plan, &ports, |_| Memcached::new(seed));
    if let Some((at_ns, for_ns)) = broken {
        builder.world.break_device(server, at_ns, for_ns);
    }
    let latencies = builder.timed_clients(clients, 400);
    (builder.world, server, latencies)
}

/// The same with a memcached that `govern` prepares before it runs, and clients that ask `requests` times.
/// One more client speaks `talk` with a port of the server.
pub(crate) fn governed(
    seed: u64,
    govern: impl FnOnce(&mut Server<Device, HostClock, Memcached>, &Core),
    (clients, requests): (usize, u64),
    talk: Option<(u16, Box<dyn Conversation>)>,
) -> (World, usize, memcached::Latencies) {
    let mut builder = Builder::new(seed, true, false);
    let plan = builder.plan("memcached");
    builder.places.push((builder.hosts, MEMCACHED_PORT));
    let ports = Ports { tcp: vec![MEMCACHED_PORT], udp: Vec::new() };
    let service = Memcached::new(seed);
    let server = builder.add(plan, |core| {
        let (device, clock, config) = (core.device.clone(), core.clock.clone(), core.config.clone());
        let mut server = Server::new(device, clock, config, &ports, service);
        govern(&mut server, &core);
        server
    });
    if let Some((port, talk)) = talk {
        let plan = builder.plan("talk");
        let remote = SocketAddr::new(address(builder.places[0].0, true), port);
        builder.add_callers(plan, vec![(remote, talk)]);
    }
    let latencies = builder.timed_clients(clients, requests);
    (builder.world, server, latencies)
}
