//! Sockets and threads: servers and clients that were written for them, on virtual time.

use crate::clients::caller::Conversation;
use crate::clients::streams;
use crate::host::{Core, HostClock};
use crate::machine::Machine;
use crate::random::{Random, text};
use crate::scenario::{Builder, LIMIT, address};
use crate::servers::{STREAM_PORT, StreamClient};
use crate::world::Outcome;
use corosensei::stack::DefaultStack;
use nom_net::batch::Tallies;
use nom_net::{Observed, Stack};
use nom_port::nic::Nic;
use nom_rt::poller::{Poller, Progress};
use nom_rt::threads::{Thread, Threads};
use nom_serve::Metered;
use nom_socket::{Blocking, Error, Network, Shutdown, TcpStream};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::Duration;

/// Where tasks serve; threads do at [`STREAM_PORT`].
const TASK_PORT: u16 = 8;
/// Debug assertions and a buffer.
const STACK_BYTES: usize = 256 << 10;

/// Sockets with who uses them.
struct Users<N: Observed + 'static> {
    network: Network<N>,
    /// Those who are yet to be content.
    left: Rc<Cell<usize>>,
    achieved: Rc<Cell<u64>>,
    /// Kept: threads that nobody refers to end with their loop.
    _threads: Threads,
}

impl<N: Observed + 'static> Poller for Users<N> {
    /// The loop polls the sockets by themselves.
    fn poll(&mut self, _: u64) -> Progress {
        Progress::default()
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}
}

impl<N: Observed + 'static> Machine for Users<N> {
    fn set_delay(&mut self, delay: Duration) {
        self.network
            .with(|sockets| sockets.stack().set_delay(delay))
            .expect("scenarios set delays that exist");
    }

    fn flow_count(&self) -> usize {
        self.network.with(|sockets| sockets.stack().flow_count())
    }

    fn tallies(&self) -> (Tallies, Tallies) {
        self.network.with(|sockets| sockets.stack().tallies())
    }

    fn is_over(&self) -> bool {
        self.left.get() == 0
    }

    fn achieved(&self) -> u64 {
        self.achieved.get()
    }

    fn end(self: Box<Self>) -> Box<dyn Any> {
        let open = self.network.with(|sockets| sockets.len());
        Box::new((self.network, open))
    }
}

/// What threads draw: whether they rest now, give way, or go on.
#[derive(Clone)]
struct Mood(Rc<RefCell<Random>>);

impl Mood {
    fn pause(&self, thread: &Thread<'_>) {
        let word = self.0.borrow_mut().within(0..100);
        match word {
            0..5 => thread.sleep(word * 300_000),
            5..15 => thread.yield_now(),
            _ => thread.checkpoint(),
        }
    }

    fn len(&self) -> usize {
        1 + self.0.borrow_mut().skewed(14) as usize
    }
}

/// Serves one client from a thread, in order, until it has said all.
fn serve<N: Observed + 'static>(
    client: &TcpStream<N>,
    thread: &Thread<'_>,
    mood: &Mood,
) -> Result<(), Error> {
    let (client, mut text) = (Blocking::new(client, thread), StreamClient::default());
    loop {
        let mut buffer = vec![0; mood.len()];
        let len = client.receive(&mut buffer)?;
        if len == 0 {
            assert!(text.is_whole(), "a client ended too soon");
            return Ok(());
        }
        mood.pause(thread);
        client.send_all(&text.answer(&buffer[..len]))?;
    }
}

/// Accepts clients from a thread, each of which gets one of its own.
fn accept<N: Observed + 'static>(network: &Network<N>, threads: &Threads, mood: &Mood) {
    let (network, starts, mood) = (network.clone(), threads.clone(), mood.clone());
    let main = move |thread: &Thread<'_>| {
        let listener = network.listen(STREAM_PORT).expect("the port is free");
        loop {
            let client = Blocking::new(&listener, thread).accept().expect("somebody connects");
            let mood = mood.clone();
            let weight = NonZeroU32::MIN.saturating_add(mood.len() as u32 % 3);
            // A client whose connection fails is told so, and tries again.
            starts.spawn(weight, move |thread| serve(&client, thread, &mood).ok()).expect("there are stacks");
        }
    };
    threads.spawn(NonZeroU32::MIN, main).expect("there are stacks");
}

/// The same by tasks.
async fn serve_tasks<N: Observed + 'static>(network: Network<N>, handle: nom_rt::Handle) {
    let listener = network.listen(TASK_PORT).expect("the port is free");
    while let Ok(client) = listener.accept().await {
        handle.spawn(async move {
            let (mut text, mut buffer) = (StreamClient::default(), [0; 3_000]);
            while let Ok(len) = client.receive(&mut buffer).await {
                if len == 0 {
                    assert!(text.is_whole(), "a client ended too soon");
                    return;
                }
                if client.send_all(&text.answer(&buffer[..len])).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// A client of two threads: one says a long text, the other hears one.
struct Talker<N: Observed + 'static> {
    stream: Rc<TcpStream<N>>,
    name: u64,
    len: usize,
}

impl<N: Observed + 'static> Talker<N> {
    fn say(&self, thread: &Thread<'_>, mood: &Mood) -> Result<(), Error> {
        let stream = Blocking::new(&*self.stream, thread);
        stream.send_all(&self.name.to_le_bytes())?;
        stream.send_all(&(self.len as u64).to_le_bytes())?;
        let mut said = 0;
        while said < self.len {
            let len = mood.len().min(self.len - said);
            stream.send_all(&text(self.name + 1, said as u64, len))?;
            said += len;
            mood.pause(thread);
        }
        self.stream.shutdown(Shutdown::Send)
    }

    /// Bytes heard, all of which are right.
    fn hear(&self, thread: &Thread<'_>, mood: &Mood) -> Result<usize, Error> {
        let (stream, mut heard) = (Blocking::new(&*self.stream, thread), 0);
        loop {
            let mut buffer = vec![0; mood.len()];
            let len = stream.receive(&mut buffer)?;
            if len == 0 {
                assert!(heard == self.len, "{heard} of {} bytes came back", self.len);
                return Ok(heard);
            }
            let expected = text(self.name, heard as u64, len);
            assert!(buffer[..len] == expected, "a client got other bytes than were sent, {heard} in");
            heard += len;
            mood.pause(thread);
        }
    }
}

/// What clients in threads have in common.
struct Callers<N: Observed + 'static> {
    network: Network<N>,
    threads: Threads,
    mood: Mood,
    left: Rc<Cell<usize>>,
    achieved: Rc<Cell<u64>>,
}

impl<N: Observed + 'static> Callers<N> {
    /// One client, which asks again until it has heard everything `times` times.
    fn call(&self, remote: SocketAddr, mut times: u64, name: u64) {
        let (network, threads, mood) = (self.network.clone(), self.threads.clone(), self.mood.clone());
        let (left, achieved) = (self.left.clone(), self.achieved.clone());
        let main = move |thread: &Thread<'_>| {
            while times > 0 {
                let len = 1 + mood.len() * (1 + mood.len() % 20);
                let Ok(stream) = Blocking::new(&network, thread).connect(remote) else {
                    thread.sleep(50_000_000);
                    continue;
                };
                let talker = Rc::new(Talker { stream: Rc::new(stream), name: name + 2 * times, len });
                let (speaker, with) = (talker.clone(), mood.clone());
                let say = move |thread: &Thread<'_>| speaker.say(thread, &with);
                let said = threads.spawn(NonZeroU32::MIN, say).expect("there are stacks");
                let heard = talker.hear(thread, &mood);
                if let (Ok(len), Ok(Ok(()))) = (heard, thread.block_on(said)) {
                    achieved.set(achieved.get() + len as u64);
                    times -= 1;
                }
            }
            left.set(left.get() - 1);
        };
        self.threads.spawn(NonZeroU32::MIN, main).expect("there are stacks");
    }
}

fn start<N: Nic + 'static>(core: Core<N>) -> (Network<Measured<N>>, Threads) {
    let stack = Stack::new(Metered::new(core.device, core.clock), core.config);
    let network = Network::start(&core.handle, stack);
    let stacks = || DefaultStack::new(STACK_BYTES).ok();
    (network, Threads::new(&core.handle, stacks))
}

type Measured<N> = Metered<N, HostClock>;

impl Builder {
    /// Adds a server on sockets, by threads and by tasks.
    fn socket_server(&mut self) {
        let mut plan = self.plan("sockets");
        plan.tick_ns = self.random.choose(&[5, 20, 500]);
        self.places.extend([(self.hosts, STREAM_PORT), (self.hosts, TASK_PORT)]);
        let mood = Mood(Rc::new(RefCell::new(self.random.fork())));
        let host = self.add(plan, |core| {
            let handle = core.handle.clone();
            let (network, threads) = start(core);
            accept(&network, &threads, &mood);
            handle.spawn(serve_tasks(network.clone(), handle.clone()));
            Users { network, left: Rc::default(), achieved: Rc::default(), _threads: threads }
        });
        self.vary_delay(host);
        self.break_now_and_then(host);
    }

    /// Adds a host with so many clients on sockets, each of two threads.
    fn socket_callers(&mut self, count: usize) {
        let mut plan = self.plan("threads");
        plan.tick_ns = self.random.choose(&[5, 20, 500]);
        let mood = Mood(Rc::new(RefCell::new(self.random.fork())));
        let calls: Vec<_> = (0..count)
            .map(|_| {
                let (number, port) = self.random.choose(&self.places.clone());
                let remote = SocketAddr::new(address(number, self.random.happens(500_000)), port);
                (remote, self.random.within(1..5), self.random.word() >> 1)
            })
            .collect();
        self.add(plan, |core| {
            let (network, threads) = start(core);
            let (left, achieved) = (Rc::new(Cell::new(count)), Rc::<Cell<u64>>::default());
            let callers = Callers {
                network: network.clone(),
                threads: threads.clone(),
                mood,
                left: left.clone(),
                achieved: achieved.clone(),
            };
            calls.into_iter().for_each(|(remote, times, name)| callers.call(remote, times, name));
            Users { network, left, achieved, _threads: threads }
        });
    }

    /// Adds a host with so many clients that are no threads.
    fn plain_callers(&mut self, count: usize) {
        let plan = self.plan("clients");
        let talks = (0..count).map(|_| {
            let (transfers, random) = (self.random.within(1..6), self.random.fork());
            let client: Box<dyn Conversation> = Box::new(streams::Client::new(random, transfers, 18));
            let place = self.random.choose(&self.places.clone());
            (self.remote(place), client)
        });
        let talks = talks.collect();
        self.add_callers(plan, talks);
    }
}

/// Runs them from a seed.
///
/// # Panics
/// If something is not as it must be.
pub(crate) fn run(seed: u64, is_printed: bool) -> Outcome {
    let mut builder = Builder::new(seed, false, is_printed);
    builder.socket_server();
    builder.plain_callers(4);
    (0..2).for_each(|_| builder.socket_callers(4));
    builder.world.run(LIMIT)
}
