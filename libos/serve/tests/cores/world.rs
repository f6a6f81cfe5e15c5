//! A server on several cores, its device, a network and a client machine, on virtual time.

use crate::common::{Deaf, Still};
use nom_elastic::{CorePool, ElasticCore, ForwardCounts};
use nom_net::{Application, Cidr, Closed, Config, FlowId, Instant, Slice, Stack};
use nom_port::buffer::Buffers;
use nom_port::nic::{Checksum, Nic, Outgoing, Properties, Received, RingFull};
use nom_rt::EventLoop;
use nom_rt::inbox::Remote;
use nom_rt::poller::Poller as _;
use nom_serve::{Control, Ports, Server};
use nom_service::{Consumed, Governor, Reply, Rules, Service, Setting, Stream, Window};
use nom_wire::Random;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

type Bytes = Arc<[u8]>;

/// How the server's device chooses a queue for what it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// By a hash, until the flow was answered; then to the core that answered it.
    Learning,
    /// By a hash.
    Hash,
    /// By chance.
    Random,
    /// To one.
    To(usize),
}

/// What happens.
#[derive(Clone, Debug)]
pub struct Case {
    pub seed: u64,
    pub cores: usize,
    /// Cores that are ordered one after the other.
    pub orders: Vec<u16>,
    pub steering: Steering,
    /// Whether the governor orders cores; otherwise only the control port does.
    pub is_governed: bool,
    /// Per cent of the frames.
    pub loss: u64,
    pub reorder: u64,
    pub clients: usize,
    pub requests: u32,
    /// Handshakes that a core remembers; the others are answered by cookies.
    pub half_open_max: usize,
    /// Whether activities are told apart.
    pub is_charged: bool,
    /// How long the governor's windows are.
    pub window_ns: u64,
}

impl Case {
    /// A network that loses nothing.
    pub fn new(seed: u64) -> Case {
        Case {
            seed,
            cores: 4,
            orders: Vec::new(),
            steering: Steering::Learning,
            is_governed: true,
            loss: 0,
            reorder: 0,
            clients: 12,
            requests: 30,
            half_open_max: 1024,
            is_charged: false,
            window_ns: 20_000_000,
        }
    }

    /// Whatever a seed makes.
    pub fn from_seed(seed: u64) -> Case {
        let mut random = Random::new(seed);
        let cores = 2 + random.below(3);
        let orders = (0..2 + random.below(6)).map(|_| random.below(cores + 1) as u16).collect();
        let steering = if random.chance(50) { Steering::Learning } else { Steering::Hash };
        let (loss, reorder) = ([0, 0, 2, 8][random.below(4) as usize], [0, 10, 40][random.below(3) as usize]);
        Case { cores: cores as usize, orders, steering, loss, reorder, ..Case::new(seed) }
    }
}

/// The server's device.
#[derive(Debug)]
struct Device {
    rings: Vec<VecDeque<Bytes>>,
    /// Rings that it receives into, which the pool sets.
    pairs: Arc<Mutex<Lent>>,
    /// The ring of each client's port.
    learned: BTreeMap<u16, usize>,
    steering: Steering,
    random: Random,
    sent: Vec<Vec<u8>>,
}

/// What the world knows of the cores.
#[derive(Debug)]
pub struct Lent {
    serving: usize,
    /// So many are to be had.
    most: usize,
    /// The device spreads what it receives over no fewer.
    least: usize,
    away: Vec<bool>,
}

impl Device {
    fn deliver(&mut self, frame: Vec<u8>) {
        let pairs = self.pairs.lock().expect("one thread").serving;
        let port = segment_ports(&frame).map(|(from, _)| from);
        let ring = match (self.steering, port) {
            (Steering::To(ring), _) => ring,
            (Steering::Random, _) | (_, None) => self.random.below(pairs as u64) as usize,
            (Steering::Hash, Some(port)) => hash(port) % pairs,
            (Steering::Learning, Some(port)) => {
                self.learned.get(&port).copied().filter(|ring| *ring < pairs).unwrap_or(hash(port) % pairs)
            }
        };
        self.rings[ring].push_back(frame.into());
    }
}

fn hash(port: u16) -> usize {
    (u32::from(port).wrapping_mul(0x9e37_79b1) >> 16) as usize
}

/// Source and destination port of a TCP segment.
fn segment_ports(frame: &[u8]) -> Option<(u16, u16)> {
    if frame[12..14] != [8, 0] || frame[23] != 6 {
        return None;
    }
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    Some((port(34), port(36)))
}

/// A queue pair of a device, or the client's only one.
struct Card {
    mac: [u8; 6],
    index: usize,
    device: Rc<RefCell<Device>>,
}

impl Buffers for Card {
    type Buffer = Bytes;

    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<Bytes>> {
        Some(Slice::new(bytes.into()))
    }
}

impl Nic for Card {
    fn properties(&self) -> Properties {
        Properties { mac: self.mac, mtu: 1500, ..Properties::default() }
    }

    fn receive(&mut self) -> Option<Received<Bytes>> {
        let frame = self.device.borrow_mut().rings[self.index].pop_front()?;
        let frame = [Slice::new(frame)].into_iter().collect();
        Some(Received { frame, checksum: Checksum::Unknown, at_ns: 0 })
    }

    fn room(&mut self) -> usize {
        64
    }

    fn transmit(&mut self, frame: &mut Outgoing<Bytes>) -> Result<(), RingFull> {
        let payload = frame.payload.iter().flat_map(|slice| slice.iter());
        let bytes: Vec<u8> = frame.head.iter().chain(payload).copied().collect();
        let device = &mut *self.device.borrow_mut();
        if let Some((_, to)) = segment_ports(&bytes) {
            device.learned.insert(to, self.index);
        }
        device.sent.push(bytes);
        Ok(())
    }

    fn kick(&mut self) {}

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}
}

/// A pool whose cores leave by not being polled any more.
#[derive(Debug)]
struct Lender(Arc<Mutex<Lent>>);

impl CorePool for Lender {
    fn resize(&self, cores: usize) -> usize {
        let lent = &mut *self.0.lock().expect("one thread");
        if cores < lent.least {
            return lent.serving;
        }
        let cores = cores.min(lent.most.max(lent.serving));
        lent.serving = cores;
        lent.away[..cores].fill(false);
        cores
    }

    fn leave(&self, index: usize) {
        let lent = &mut *self.0.lock().expect("one thread");
        assert!(index > 0 && !lent.away[index], "core {index} leaves");
        lent.away[index] = index >= lent.serving;
    }
}

/// Has so many cores serve as is ordered; or leaves that to others.
struct Orders {
    cores: Option<Rc<Cell<u16>>>,
    window_ns: u64,
    /// What connections there were each time that it was told what activities have consumed.
    connections: Rc<RefCell<Vec<u64>>>,
}

impl Governor for Orders {
    fn observe(&mut self, window: &Window) -> Setting {
        assert!(window.setting.cores > 0, "what serves is told");
        self.look(0).expect("a setting")
    }

    fn look(&mut self, _: u64) -> Option<Setting> {
        let cores = self.cores.as_ref().map_or(0, |order| order.get());
        Some(Setting { cores, ..Setting::default() })
    }

    fn chooses_cores(&self) -> bool {
        self.cores.is_some()
    }

    fn window_ns(&self) -> u64 {
        self.window_ns
    }

    /// Once there are connections, not for a long time.
    fn wants_consumed(&self, _: u64) -> bool {
        self.connections.borrow().last().is_none_or(|last| *last == 0)
    }

    fn consumed(&mut self, _: u64, consumed: Vec<Consumed>) {
        self.connections.borrow_mut().push(consumed.iter().map(|own| own.connections).sum());
    }
}

/// Numbers the requests of each connection, which are 4 bytes, and answers each by itself and its number.
struct Numbers {
    open: Rc<Cell<i64>>,
}

const REQUEST: usize = 4;
const REPLY: usize = 8;

impl Service<Bytes> for Numbers {
    type Connection = (Vec<u8>, u32);

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<Bytes>) -> Option<(Vec<u8>, u32)> {
        self.open.set(self.open.get() + 1);
        Some((Vec::new(), 0))
    }

    fn received(
        &mut self,
        (part, count): &mut (Vec<u8>, u32),
        bytes: Slice<Bytes>,
        reply: &mut Reply<Bytes>,
    ) -> Stream {
        part.extend_from_slice(&bytes);
        while part.len() >= REQUEST {
            let request: Vec<u8> = part.drain(..REQUEST).collect();
            nom_port::buffer::Sink::copy(reply, &request);
            nom_port::buffer::Sink::copy(reply, &count.to_be_bytes());
            *count += 1;
        }
        Stream::Open
    }

    fn disconnected(&mut self, _: (Vec<u8>, u32)) {
        self.open.set(self.open.get() - 1);
    }
}

/// One of the clients.
#[derive(Debug, Default)]
struct Client {
    asked: u32,
    /// Bytes of replies that have come.
    heard: Vec<u8>,
    answered: u32,
    closed: Option<Closed>,
}

#[derive(Default)]
struct Clients {
    requests: u32,
    of: BTreeMap<FlowId, Client>,
    /// What the control port said.
    told: Vec<u8>,
}

impl Clients {
    /// Asks for more, if not too much is asked already.
    fn pump(&mut self, stack: &mut Stack<Card>, flow: FlowId) {
        let Some(client) = self.of.get_mut(&flow) else { return };
        while client.asked < self.requests && client.asked < client.answered + 3 {
            // Each in two pieces, so that a connection may move with a request in part.
            let request = client.asked.to_be_bytes();
            for piece in [&request[..3], &request[3..]] {
                stack.send(flow, Slice::new(piece.into())).expect("room for a request");
            }
            client.asked += 1;
        }
        if client.answered == self.requests {
            stack.close(flow);
        }
    }
}

impl Application<Card> for Clients {
    fn connected(&mut self, stack: &mut Stack<Card>, flow: FlowId) {
        self.pump(stack, flow);
    }

    fn received(&mut self, stack: &mut Stack<Card>, flow: FlowId, bytes: Slice<Bytes>) {
        let Some(client) = self.of.get_mut(&flow) else { return self.told.extend_from_slice(&bytes) };
        client.heard.extend_from_slice(&bytes);
        while client.heard.len() >= REPLY {
            let reply: Vec<u8> = client.heard.drain(..REPLY).collect();
            let number = client.answered.to_be_bytes();
            assert_eq!(reply, [number, number].concat(), "answered once and in order");
            client.answered += 1;
        }
        self.pump(stack, flow);
    }

    fn closed(&mut self, _: &mut Stack<Card>, flow: FlowId, why: Closed) {
        self.of.get_mut(&flow).expect("a client").closed = Some(why);
    }
}

const CONTROL_PORT: u16 = 9;

type Core = Server<Card, Still, Numbers>;

pub struct World {
    case: Case,
    random: Random,
    now_ns: u64,
    client: Stack<Card>,
    clients: Clients,
    client_due_ns: Option<u64>,
    far: Rc<RefCell<Device>>,
    near: Rc<RefCell<Device>>,
    cores: Vec<Core>,
    /// Of each core, what connections it said to have.
    connections: Vec<Rc<RefCell<Vec<u64>>>>,
    due_ns: Vec<Option<u64>>,
    _loops: Vec<EventLoop<Still, Still>>,
    lent: Arc<Mutex<Lent>>,
    order: Rc<Cell<u16>>,
    open: Rc<Cell<i64>>,
    /// On their way, by arrival: whether to the server.
    flying: BTreeMap<(u64, u64), (bool, Vec<u8>)>,
    count: u64,
    /// Rounds since a device had something.
    quiet: u32,
}

/// So many rounds, and the cores have nothing more to say to each other.
const QUIET_ROUNDS: u32 = 10;

fn config(address: [u8; 4], seed: u64) -> Config {
    let address = Cidr { address: IpAddr::from(address), prefix: 24 };
    let mut random = Random::new(seed);
    Config { addresses: vec![address], ..Config::new(std::array::from_fn(|_| random.next())) }
}

fn device(seed: u64, lent: &Arc<Mutex<Lent>>, steering: Steering) -> Rc<RefCell<Device>> {
    let rings = vec![VecDeque::new(); lent.lock().expect("one thread").serving];
    let (pairs, learned, random) = (lent.clone(), BTreeMap::new(), Random::new(!seed));
    Rc::new(RefCell::new(Device { rings, pairs, learned, steering, random, sent: Vec::new() }))
}

impl World {
    pub fn new(case: Case) -> World {
        let lent = Arc::new(Mutex::new(Lent {
            serving: case.cores,
            most: case.cores,
            least: 1,
            away: vec![false; case.cores],
        }));
        let one = Arc::new(Mutex::new(Lent { serving: 1, most: 1, least: 1, away: vec![false] }));
        let far = device(case.seed, &lent, case.steering);
        let near = device(case.seed, &one, Steering::Hash);
        let card = |last, index, device: &Rc<RefCell<Device>>| Card {
            mac: [2, 0, 0, 0, 0, last],
            index,
            device: device.clone(),
        };
        let client = Stack::new(card(1, 0, &near), config([10, 0, 0, 1], case.seed));
        let (order, open) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let remotes = (0..case.cores).map(|core| Remote::new(core, Arc::new(Deaf))).collect();
        let (mut cores, mut loops, mut connections) = (Vec::new(), Vec::new(), Vec::new());
        let control = Control::new(CONTROL_PORT, case.cores);
        for elastic in ElasticCore::group(remotes) {
            let event_loop = EventLoop::reached_by(elastic.remote(), Still, Still);
            let card = card(2, elastic.index(), &far);
            let ports = Ports { tcp: vec![7], udp: Vec::new() };
            let half_open_max = case.half_open_max;
            let config = Config { half_open_max, ..config([10, 0, 0, 2], !case.seed) };
            let mut server = Server::new(card, Still, config, &ports, Numbers { open: open.clone() });
            server.set_core(elastic);
            server.set_pool(Arc::new(Lender(lent.clone())));
            server.control(control.clone(), cores.len(), event_loop.handle());
            if case.is_charged {
                let rules = Rules::checked(Vec::new()).expect("there may be none");
                server.charge(Arc::new(rules), event_loop.handle());
            }
            let orders = Orders {
                cores: case.is_governed.then(|| order.clone()),
                window_ns: case.window_ns,
                connections: Rc::default(),
            };
            connections.push(orders.connections.clone());
            server.govern(Box::new(orders), event_loop.handle());
            cores.push(server);
            loops.push(event_loop);
        }
        World {
            random: Random::new(case.seed),
            now_ns: 1_000_000,
            client,
            clients: Clients { requests: case.requests, ..Clients::default() },
            client_due_ns: None,
            far,
            near,
            due_ns: vec![None; case.cores],
            cores,
            connections,
            _loops: loops,
            lent,
            order,
            open,
            flying: BTreeMap::new(),
            count: 0,
            quiet: 0,
            case,
        }
    }

    pub fn serving(&self) -> usize {
        self.cores[0].serving()
    }

    pub fn forwards(&self) -> Vec<ForwardCounts> {
        self.cores.iter().map(Server::forwards).collect()
    }

    /// What connections a core said to have, one time after the other.
    pub fn connections(&self, core: usize) -> Vec<u64> {
        self.connections[core].borrow().clone()
    }

    fn is_away(&self, core: usize) -> bool {
        self.lent.lock().expect("one thread").away[core]
    }

    /// So many cores are to serve.
    pub fn order(&self, cores: u16) {
        self.order.set(cores);
    }

    /// So many cores are to be had.
    pub fn lend(&self, most: usize) {
        self.lent.lock().expect("one thread").most = most;
    }

    /// The device refuses to spread what it receives over fewer cores.
    pub fn hold(&self, least: usize) {
        self.lent.lock().expect("one thread").least = least;
    }

    /// Time passes in which cores are polled.
    pub fn pass(&mut self, seconds: u64) {
        let end_ns = self.now_ns + seconds * 1_000_000_000;
        while self.now_ns < end_ns {
            self.now_ns += 10_000_000;
            self.round();
        }
    }

    pub fn steer(&self, steering: Steering) {
        self.far.borrow_mut().steering = steering;
    }

    /// Requests that were answered.
    pub fn answered(&self) -> u32 {
        self.clients.of.values().map(|client| client.answered).sum()
    }

    /// Whether the device has something for a core.
    pub fn has_received(&self, core: usize) -> bool {
        !self.far.borrow().rings[core].is_empty()
    }

    pub fn poll(&mut self, core: usize) {
        self.due_ns[core] = self.cores[core].poll(self.now_ns).deadline_ns;
    }

    fn poll_client(&mut self) {
        let due = self.client.poll(Instant::from_nanos(self.now_ns), &mut self.clients);
        self.client_due_ns = due.map(Instant::nanos);
    }

    /// The client machine and the network go on for a while.
    pub fn exchange(&mut self) {
        self.now_ns += 10_000;
        self.poll_client();
        self.carry();
        self.arrive();
    }

    /// Puts what was sent on its way.
    fn carry(&mut self) {
        let there = std::mem::take(&mut self.near.borrow_mut().sent);
        let back = std::mem::take(&mut self.far.borrow_mut().sent);
        let frames = there.into_iter().map(|frame| (true, frame));
        for (is_there, frame) in frames.chain(back.into_iter().map(|frame| (false, frame))) {
            if self.random.chance(self.case.loss) {
                continue;
            }
            let late_ns = if self.random.chance(self.case.reorder) { self.random.below(400_000) } else { 0 };
            self.count += 1;
            self.flying.insert((self.now_ns + 50_000 + late_ns, self.count), (is_there, frame));
        }
    }

    /// Receives what has arrived.
    fn arrive(&mut self) {
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now_ns) {
            let (is_there, frame) = entry.remove();
            let device = if is_there { &self.far } else { &self.near };
            device.borrow_mut().deliver(frame);
        }
    }

    /// Whoever is there polls, or not, in any order.
    pub fn round(&mut self) {
        let mut who: Vec<usize> = (0..=self.cores.len()).collect();
        while !who.is_empty() {
            let one = who.swap_remove(self.random.below(who.len() as u64) as usize);
            self.now_ns += self.random.below(3_000);
            if self.random.chance(25) || one > 0 && self.is_away(one - 1) {
                continue;
            }
            match one.checked_sub(1) {
                Some(core) => self.poll(core),
                None => self.poll_client(),
            }
        }
        self.carry();
        self.arrive();
    }

    /// Goes on until something may happen, if nothing does.
    fn skip(&mut self) {
        let is_quiet = |device: &Rc<RefCell<Device>>| device.borrow().rings.iter().all(VecDeque::is_empty);
        self.quiet = if is_quiet(&self.far) && is_quiet(&self.near) { self.quiet + 1 } else { 0 };
        // What cores send each other takes no second.
        if self.quiet < QUIET_ROUNDS {
            return;
        }
        let present = (0..self.cores.len()).filter(|core| !self.is_away(*core));
        let due = present.filter_map(|core| self.due_ns[core]).chain(self.client_due_ns);
        let first = due.chain(self.flying.keys().next().map(|(at, _)| *at)).min();
        self.now_ns = self.now_ns.max(first.unwrap_or(self.now_ns));
    }

    fn rounds(&mut self, count: u64) {
        for _ in 0..count {
            self.round();
            self.skip();
        }
    }

    pub fn connect(&mut self) {
        let to = SocketAddr::from(([10, 0, 0, 2], 7));
        let flow = self.client.connect(to).expect("a route");
        self.clients.of.insert(flow, Client::default());
    }

    /// Connects to the control port.
    pub fn call(&mut self) -> FlowId {
        self.client.connect(SocketAddr::from(([10, 0, 0, 2], CONTROL_PORT))).expect("a route")
    }

    /// Says something there; what comes back in a while.
    pub fn say(&mut self, flow: FlowId, text: &str) -> String {
        self.client.send(flow, Slice::new(text.as_bytes().into())).expect("room");
        self.rounds(200);
        String::from_utf8(std::mem::take(&mut self.clients.told)).expect("text")
    }

    /// Clients come and ask while cores are ordered, until all have what they want.
    pub fn run(&mut self) {
        let mut orders = std::mem::take(&mut self.case.orders).into_iter();
        let mut to_come = self.case.clients - self.clients.of.len();
        for step in 0..2000 {
            if to_come > 0 {
                to_come -= 1;
                self.connect();
            }
            if step % 3 == 0
                && let Some(order) = orders.next()
            {
                self.order(order);
            }
            let rounds = 1 + self.random.below(20);
            self.rounds(rounds);
            let is_over = |client: &Client| client.closed.is_some();
            if to_come == 0 && orders.len() == 0 && self.clients.of.values().all(is_over) {
                break;
            }
        }
        // What was lost last is sent again, and what was ordered last is carried out.
        for _ in 0..20 {
            self.rounds(100);
            if self.open.get() == 0 && self.serving() == self.wanted() {
                break;
            }
        }
    }

    /// Cores that were ordered last, of those that there are.
    fn wanted(&self) -> usize {
        match usize::from(self.order.get()) {
            0 => self.case.cores,
            cores => cores.min(self.case.cores),
        }
    }

    pub fn check(&self) {
        let seed = self.case.seed;
        for client in self.clients.of.values() {
            assert_eq!(client.closed, Some(Closed::Finished), "seed {seed}: {client:?}");
            assert_eq!(client.answered, self.case.requests, "seed {seed}");
        }
        let wanted = self.wanted();
        assert_eq!(self.serving(), wanted, "seed {seed}");
        for (index, core) in self.cores.iter().enumerate() {
            assert_eq!(self.is_away(index), index >= wanted, "seed {seed}: core {index}");
            let flows = core.stack().flow_count();
            assert!(flows == 0 || index < wanted, "seed {seed}: {flows} flows on core {index}");
        }
        let sum = |of: fn(&ForwardCounts) -> u64| self.forwards().iter().map(of).sum::<u64>();
        let (given, adopted, refused) = (
            sum(|forwards| forwards.given),
            sum(|forwards| forwards.adopted),
            sum(|forwards| forwards.refused),
        );
        assert_eq!(given, adopted + refused, "seed {seed}");
        assert_eq!(sum(|forwards| forwards.lost), 0, "seed {seed}");
        assert_eq!(self.open.get(), 0, "seed {seed}: connections that the service still has");
    }
}
