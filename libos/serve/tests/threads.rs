//! The cores of a server as threads, given back and taken again while clients ask: what the tests of `cores`
//! do in one thread, at the mercy of a real scheduler.

use nom_elastic::{CorePool, ElasticCore, ForwardCounts};
use nom_net::{Application, Cidr, Closed, Config, FlowId, Stack};
use nom_port::buffer::{Buffers, Sink, Slice};
use nom_port::nic::{Checksum, Nic, Outgoing, Properties, Received, RingFull};
use nom_port::world::{Clock, Doorbell, Idle, Wakeup};
use nom_rt::inbox::Remote;
use nom_rt::{EventLoop, INFRASTRUCTURE};
use nom_serve::{Migration, Ports, Server};
use nom_service::{Governor, Reply, Service, Setting, Stream, Window};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

type Bytes = Arc<[u8]>;

const CORES: usize = 3;
const CLIENTS: usize = 16;
/// Requests of all clients, and how many until cores are ordered anew.
const REQUESTS: u32 = 20_000;
const EACH: u32 = 100;
/// Far more than it takes.
const LIMIT: Duration = Duration::from_secs(120);

/// The server's queue pairs and the client's, with the cable between them.
#[derive(Default)]
struct Cable {
    rings: [VecDeque<Bytes>; CORES],
    client: VecDeque<Bytes>,
    /// Cores whose doorbell was rung since they last slept.
    rung: [bool; CORES],
    serving: usize,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    cable: Mutex<Cable>,
    /// Something has changed.
    change: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Cable> {
        self.cable.lock().expect("nobody panicked")
    }
}

/// One end of the cable; a core's, if it has a number.
struct Card(Arc<Shared>, Option<usize>);

impl Buffers for Card {
    type Buffer = Bytes;

    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<Bytes>> {
        Some(Slice::new(bytes.into()))
    }
}

impl Nic for Card {
    fn properties(&self) -> Properties {
        Properties { mac: [2, 0, 0, 0, 0, self.1.map_or(1, |_| 2)], mtu: 1500, ..Properties::default() }
    }

    fn receive(&mut self) -> Option<Received<Bytes>> {
        let cable = &mut *self.0.lock();
        let frame = match self.1 {
            Some(core) => cable.rings[core].pop_front(),
            None => cable.client.pop_front(),
        }?;
        let frame = [Slice::new(frame)].into_iter().collect();
        Some(Received { frame, checksum: Checksum::Unknown, at_ns: 0 })
    }

    fn room(&mut self) -> usize {
        64
    }

    fn transmit(&mut self, frame: &mut Outgoing<Bytes>) -> Result<(), RingFull> {
        let payload = frame.payload.iter().flat_map(|slice| slice.iter());
        let bytes: Bytes = frame.head.iter().chain(payload).copied().collect();
        let cable = &mut *self.0.lock();
        match self.1 {
            Some(_) => cable.client.push_back(bytes),
            None => {
                // By the client's port, whoever answers it.
                let ring = usize::from(bytes[35]) % cable.serving;
                cable.rings[ring].push_back(bytes);
            }
        }
        Ok(())
    }

    fn kick(&mut self) {
        self.0.change.notify_all();
    }

    fn arm(&mut self) -> bool {
        let cable = self.0.lock();
        self.1.is_none_or(|core| cable.rings[core].is_empty())
    }

    fn disarm(&mut self) {}
}

#[derive(Clone)]
struct Real(Instant);

impl Clock for Real {
    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// A core that sleeps until it is rung for, a frame comes or its time has come.
struct Nap(Arc<Shared>, usize, Real);

impl Idle for Nap {
    fn sleep(&mut self, deadline_ns: Option<u64>) -> Wakeup {
        let Nap(shared, core, clock) = self;
        let left = deadline_ns.map(|at| Duration::from_nanos(at.saturating_sub(clock.now_ns())));
        let is_quiet = |cable: &mut Cable| !cable.rung[*core] && cable.rings[*core].is_empty();
        let woken = shared.change.wait_timeout_while(shared.lock(), left.unwrap_or(LIMIT), is_quiet);
        woken.expect("nobody panicked").0.rung[*core] = false;
        Wakeup::default()
    }
}

struct Bell(Arc<Shared>);

impl Doorbell for Bell {
    fn ring(&self, core: usize) {
        self.0.lock().rung[core] = true;
        self.0.change.notify_all();
    }
}

/// A pool whose cores wait until they are called back.
struct Lender {
    shared: Arc<Shared>,
    /// How often a core left.
    left: AtomicUsize,
}

impl CorePool for Lender {
    fn resize(&self, cores: usize) -> usize {
        self.shared.lock().serving = cores;
        self.shared.change.notify_all();
        cores
    }

    fn leave(&self, index: usize) {
        self.left.fetch_add(1, Ordering::Relaxed);
        let is_gone = |cable: &mut Cable| cable.serving <= index && !cable.is_over;
        drop(self.shared.change.wait_while(self.shared.lock(), is_gone).expect("nobody panicked"));
    }
}

struct Orders(Arc<AtomicU16>);

impl Governor for Orders {
    fn observe(&mut self, _: &Window) -> Setting {
        Setting { cores: self.0.load(Ordering::Relaxed), ..Setting::default() }
    }

    fn look(&mut self, _: u64) -> Option<Setting> {
        Some(Setting { cores: self.0.load(Ordering::Relaxed), ..Setting::default() })
    }
}

/// Answers each byte by how many there were before, modulo 256.
struct Count;

impl Service<Bytes> for Count {
    type Connection = u8;

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<Bytes>) -> Option<u8> {
        Some(0)
    }

    fn received(&mut self, count: &mut u8, bytes: Slice<Bytes>, reply: &mut Reply<Bytes>) -> Stream {
        for _ in bytes.iter() {
            reply.copy(&[*count]);
            *count = count.wrapping_add(1);
        }
        Stream::Open
    }
}

fn config(last: u8) -> Config {
    let address = Cidr { address: IpAddr::from([10, 0, 0, last]), prefix: 24 };
    Config { addresses: vec![address], ..Config::new([1, 2, 3, 4]) }
}

/// Serves until it is told to stop.
fn serve(
    elastic: ElasticCore<Bytes, Migration<Bytes, u8>>,
    shared: Arc<Shared>,
    lender: Arc<Lender>,
    order: Arc<AtomicU16>,
) -> ForwardCounts {
    let clock = Real(Instant::now());
    let mut event_loop = EventLoop::reached_by(
        elastic.remote(),
        clock.clone(),
        Nap(shared.clone(), elastic.index(), clock.clone()),
    );
    let card = Card(shared, Some(elastic.index()));
    let ports = Ports { tcp: vec![7], udp: Vec::new() };
    let mut server = Server::new(card, clock, config(2), &ports, Count);
    server.set_core(elastic);
    server.set_pool(lender);
    server.govern(Box::new(Orders(order)), event_loop.handle());
    let server = Rc::new(RefCell::new(server));
    event_loop.handle().add_poller(INFRASTRUCTURE, server.clone());
    event_loop.run();
    server.borrow().forwards()
}

#[derive(Default)]
struct Clients {
    /// Replies to each.
    heard: BTreeMap<FlowId, u32>,
    total: u32,
    closed: Vec<Closed>,
}

impl Clients {
    fn ask(&mut self, stack: &mut Stack<Card>, flow: FlowId) {
        if self.total < REQUESTS {
            stack.send(flow, Slice::new([1][..].into())).expect("room");
        } else {
            stack.close(flow);
        }
    }
}

impl Application<Card> for Clients {
    fn connected(&mut self, stack: &mut Stack<Card>, flow: FlowId) {
        self.ask(stack, flow);
    }

    fn received(&mut self, stack: &mut Stack<Card>, flow: FlowId, bytes: Slice<Bytes>) {
        let heard = self.heard.entry(flow).or_default();
        assert_eq!(bytes[..], [*heard as u8], "answered once and in order");
        *heard += 1;
        self.total += 1;
        self.ask(stack, flow);
    }

    fn closed(&mut self, _: &mut Stack<Card>, _: FlowId, why: Closed) {
        self.closed.push(why);
    }
}

/// Asks, and orders cores all the while, until everything is answered and closed.
fn ask(shared: &Arc<Shared>, order: &AtomicU16) -> Clients {
    let mut stack = Stack::new(Card(shared.clone(), None), config(1));
    let (mut clients, begun) = (Clients::default(), Instant::now());
    for _ in 0..CLIENTS {
        stack.connect(SocketAddr::from(([10, 0, 0, 2], 7))).expect("a route");
    }
    while clients.closed.len() < CLIENTS {
        assert!(begun.elapsed() < LIMIT, "{} of {REQUESTS} replies", clients.total);
        let now_ns = begun.elapsed().as_nanos() as u64;
        stack.poll(nom_net::Instant::from_nanos(now_ns), &mut clients);
        let wanted = [1, 3, 2, 0, 1, 2][(clients.total / EACH % 6) as usize];
        let mut cable = shared.lock();
        if order.swap(wanted, Ordering::Relaxed) != wanted {
            // Whoever governs is asked when the first core looks.
            cable.rung[0] = true;
            shared.change.notify_all();
        }
        if cable.client.is_empty() {
            drop(shared.change.wait_timeout(cable, Duration::from_millis(1)).expect("nobody panicked"));
        }
    }
    clients
}

#[test]
fn threads_give_cores_back_and_take_them_again() {
    let shared = Arc::new(Shared::default());
    shared.lock().serving = CORES;
    let lender = Arc::new(Lender { shared: shared.clone(), left: AtomicUsize::new(0) });
    let order = Arc::new(AtomicU16::new(0));
    let remotes: Vec<Remote> =
        (0..CORES).map(|core| Remote::new(core, Arc::new(Bell(shared.clone())))).collect();
    let (clients, forwards) = thread::scope(|scope| {
        let cores: Vec<_> = ElasticCore::group(remotes.clone())
            .into_iter()
            .map(|elastic| {
                let (shared, lender, order) = (shared.clone(), lender.clone(), order.clone());
                scope.spawn(move || serve(elastic, shared, lender, order))
            })
            .collect();
        let clients = ask(&shared, &order);
        shared.lock().is_over = true;
        shared.change.notify_all();
        remotes.iter().for_each(|remote| remote.post(INFRASTRUCTURE, |handle| handle.stop(0)));
        let forwards = cores.into_iter().map(|core| core.join().expect("a core")).collect::<Vec<_>>();
        (clients, forwards)
    });
    assert!(clients.closed.iter().all(|why| *why == Closed::Finished), "{:?}", clients.closed);
    let sum = |of: fn(&ForwardCounts) -> u64| forwards.iter().map(of).sum::<u64>();
    assert!(sum(|forwards| forwards.adopted) > 0 && lender.left.load(Ordering::Relaxed) > 0, "{forwards:?}");
    assert_eq!(sum(|forwards| forwards.lost), 0);
}
