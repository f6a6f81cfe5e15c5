//! Where values lie, and a limit of memory that changes while clients are served.

use nom_memcached_core::{Connection, Options, Server};
use nom_port::buffer::{Buffer, Buffers, Sink, Slice, Trimmed};
use nom_service::Stream;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

const UNIX: u64 = 1_700_000_000;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Received memory that stands in the way, or a copy that does not.
#[derive(Clone)]
struct Piece {
    bytes: Arc<[u8]>,
    /// More than that, where a buffer is not full.
    pinned: usize,
    is_sparse: bool,
    is_scarce: bool,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Buffer for Piece {
    fn pinned(&self) -> usize {
        self.pinned.max(self.bytes.len())
    }

    fn is_scarce(&self) -> bool {
        self.is_scarce
    }

    fn is_sparse(&self) -> bool {
        self.is_sparse
    }
}

/// A queue pair on which nothing comes or goes.
#[derive(Default)]
struct Memory {
    /// How often it is to say that something is sparse, and how often it was asked.
    sparse: usize,
    trims: usize,
    copied: usize,
    is_exhausted: bool,
}

impl Memory {
    fn copy(&mut self, bytes: &[u8], pinned: usize) -> Option<Slice<Piece>> {
        self.copied += bytes.len();
        let copy = Piece { bytes: bytes.into(), pinned, is_sparse: false, is_scarce: false };
        (!self.is_exhausted).then(|| Slice::new(copy))
    }
}

impl Buffers for Memory {
    type Buffer = Piece;

    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<Piece>> {
        self.copy(bytes, 0)
    }

    fn keep(&mut self, bytes: &[u8]) -> Option<Slice<Piece>> {
        self.copy(bytes, bytes.len().next_power_of_two())
    }

    fn trim(&mut self, _: usize) -> Trimmed {
        self.trims += 1;
        let sparse_bytes = if self.trims <= self.sparse { KIB } else { 0 };
        Trimmed { sparse_bytes, ..Trimmed::default() }
    }
}

type Core = Server<Piece, parking_lot::RawMutex>;

fn core(threads: u32) -> Core {
    let options = Options { threads, memory: 64 * MIB, item_max: 64 * KIB, ..Options::default() };
    Core::new(options, UNIX, 7)
}

fn talk(core: &mut Core, request: &[u8]) -> Vec<u8> {
    let mut reply = Vec::new();
    let received = Slice::new(Piece { bytes: request.into(), pinned: 0, is_sparse: true, is_scarce: false });
    assert_eq!(Connection::new().receive(core, received, &mut reply), Stream::Open);
    reply
}

fn value(number: usize) -> Vec<u8> {
    vec![b'a' + (number % 26) as u8; 600 + number % 500]
}

fn set(core: &mut Core, number: usize) {
    let value = value(number);
    let request = [format!("set {number} 0 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    assert_eq!(talk(core, &request), b"STORED\r\n");
}

/// Whether a value is there; if it is, it is the one that was stored.
fn holds(core: &mut Core, number: usize) -> bool {
    let value = value(number);
    let found = [format!("VALUE {number} 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\nEND\r\n"].concat();
    let reply = talk(core, format!("get {number}\r\n").as_bytes());
    assert!(reply == b"END\r\n" || reply == found, "{}", reply.escape_ascii());
    reply == found
}

/// Tends until nothing is left to do; returns how long that took, by the clock that it is told.
fn tend(core: &mut Core, nic: &mut Memory) -> u64 {
    let mut now_ns = 0;
    while let Some(next_ns) = core.tend(now_ns, nic) {
        assert!(next_ns > now_ns);
        now_ns = next_ns;
    }
    now_ns
}

#[test]
fn items_go_little_by_little_and_values_move() {
    for threads in [1, 2] {
        let (mut core, mut nic) = (core(threads), Memory { sparse: 1, ..Memory::default() });
        (0..5000).for_each(|number| set(&mut core, number));
        assert_eq!(core.tend(0, &mut nic), None, "nothing is to be done");
        core.set_limit(Some(2 * MIB));
        let (mut now_ns, mut before) = (0, core.items());
        while let Some(next_ns) = core.tend(now_ns, &mut nic) {
            assert!(before - core.items() <= 64, "a few at a time");
            (now_ns, before) = (next_ns, core.items());
        }
        assert!(core.memory_used() <= 2 * MIB && core.items() > 1000, "{} bytes", core.memory_used());
        assert_eq!(nic.trims, 2, "before values moved and after");
        let held = (0..5000).filter(|number| holds(&mut core, *number)).count();
        assert_eq!(held, core.items());
        assert!(nic.copied > core.items() * 600, "all have moved: {}", nic.copied);
        assert!(core.memory_used() < core.items() * 1400, "which costs no more: {}", core.memory_used());
    }
}

#[test]
fn whatever_stays_in_the_way_it_ends() {
    for is_exhausted in [false, true] {
        let (mut core, mut nic) = (core(1), Memory { sparse: usize::MAX, is_exhausted, ..Memory::default() });
        (0..100).for_each(|number| set(&mut core, number));
        core.set_limit(Some(8 * MIB));
        let took_ns = tend(&mut core, &mut nic);
        assert!((5..60).contains(&(took_ns / 1_000_000_000)), "{took_ns} ns");
        assert!((0..100).all(|number| holds(&mut core, number)));
        assert_eq!(core.tend(took_ns, &mut nic), None);
    }
}

#[test]
fn the_limit_rises_again() {
    let mut core = core(1);
    core.set_limit(Some(MIB));
    (0..5000).for_each(|number| set(&mut core, number));
    assert!(core.memory_used() <= MIB);
    core.set_limit(None);
    (0..5000).for_each(|number| set(&mut core, number));
    assert!((0..5000).all(|number| holds(&mut core, number)));
}

#[test]
fn the_command_is_memcacheds() {
    let mut core = core(1);
    for (command, answer) in [
        ("cache_memlimit 16", "OK\r\n"),
        ("cache_memlimit 17 noreply", ""),
        ("cache_memlimit 7", "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"),
        ("cache_memlimit 1000000001", "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"),
        ("cache_memlimit", "ERROR\r\n"),
        ("cache_memlimit lots", "ERROR\r\n"),
        ("cache_memlimit 9 8 7", "ERROR\r\n"),
    ] {
        let reply = talk(&mut core, format!("{command}\r\n").as_bytes());
        assert_eq!(String::from_utf8_lossy(&reply), answer, "{command}");
    }
    let stats = String::from_utf8(talk(&mut core, b"stats\r\n")).expect("text");
    assert!(stats.contains(&format!("STAT limit_maxbytes {}\r\n", 17 * MIB)), "{stats}");
}

#[test]
fn what_memory_is_worth_is_measured_once_somebody_asks() {
    let mut core = core(2);
    assert_eq!(core.demand(), None, "it begins now");
    for round in 0..8 {
        core.set_time(UNIX + round + 1);
        for number in 0..2000 {
            if !holds(&mut core, number) {
                set(&mut core, number);
            }
        }
    }
    core.set_time(UNIX + 9);
    let demand = core.demand().expect("it was measured");
    assert_eq!((demand.limit_bytes, demand.most_bytes), (64 << 20, 64 << 20));
    assert!(demand.samples > 1000.0 && (1000.0..3000.0).contains(&demand.lookups), "{demand:?}");
    assert!((800.0..900.0).contains(&demand.hit_bytes), "{}", demand.hit_bytes);
    let at = |bytes: u64| demand.curve.points().iter().find(|point| point.0 >= bytes).expect("a point").1;
    assert!(at(MIB as u64) < 0.2 && at(4 * MIB as u64) > 0.7, "{demand:?}");
}

/// What a client was sent: bytes that were copied, and handles.
#[derive(Default)]
struct Sent {
    copied: Vec<u8>,
    shared: Vec<Slice<Piece>>,
}

impl Sink<Piece> for Sent {
    fn copy(&mut self, bytes: &[u8]) {
        self.copied.extend_from_slice(bytes);
    }

    fn share(&mut self, slice: Slice<Piece>) {
        self.shared.push(slice);
    }
}

/// Sends a request in frames of up to 1448 bytes, in buffers of 2 KiB; what it is answered.
fn send(core: &mut Core, request: &[u8], is_scarce: bool) -> Sent {
    let (mut client, mut sent) = (Connection::new(), Sent::default());
    for frame in request.chunks(1448) {
        let buffer = Piece { bytes: frame.into(), pinned: 2 * KIB, is_sparse: false, is_scarce };
        assert_eq!(client.receive(core, Slice::new(buffer), &mut sent), Stream::Open);
    }
    sent
}

fn command(name: &str, key: usize, value: &[u8]) -> Vec<u8> {
    [format!("{name} {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

#[test]
fn values_are_sent_without_a_copy_from_buffers_of_their_size() {
    for threads in [1, 2] {
        let (mut core, mut nic) = (core(threads), Memory::default());
        let empty = core.memory_used();
        for key in 0..100 {
            send(&mut core, &command("set", key, &[b'v'; KIB]), key % 2 == 1);
        }
        let before = core.memory_used();
        assert_eq!(core.tend(5, &mut nic), Some(5), "a part at a time");
        assert_eq!(core.tend(5, &mut nic), None);
        assert_eq!((nic.copied, core.memory_used()), (100 * KIB, before), "one copy each");
        assert!(before - empty < 100 * 1300, "{before}");
        for key in 0..100 {
            let sent = send(&mut core, format!("get {key}\r\n").as_bytes(), false);
            assert_eq!(
                sent.shared.iter().map(|slice| (slice.len(), slice.pinned())).collect::<Vec<_>>(),
                [(KIB, KIB)]
            );
        }
    }
}

#[test]
fn what_waits_to_settle_is_bounded() {
    let (mut core, mut nic) = (core(1), Memory::default());
    (0..1000).for_each(|key| drop(send(&mut core, &command("set", key, &[b'v'; KIB]), false)));
    while core.tend(0, &mut nic).is_some() {}
    assert_eq!(nic.copied, 256 * KIB, "the others are in the heap already");
    let shared = |key| send(&mut core, format!("get {key}\r\n").as_bytes(), false).shared.len();
    assert_eq!((0..1000).map(shared).sum::<usize>(), 256);
}

/// What is done to a value, of which key, how long, on which core.
#[derive(Clone, Debug)]
enum Step {
    Set(usize, usize, usize),
    Append(usize, usize, usize),
    Number(usize, usize),
    Increment(usize),
    Delete(usize),
    Get(usize, usize),
    Tend(usize),
    Exhaust(bool),
    Scarce(bool),
    WantBack,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![1_usize..300, 300_usize..1500, Just(1024), 1500_usize..5000, 60_000_usize..70_000];
    let (key, at) = (0_usize..12, 0_usize..2);
    prop_oneof![
        8 => (key.clone(), len.clone(), at.clone()).prop_map(|(key, len, at)| Step::Set(key, len, at)),
        2 => (key.clone(), len, at.clone()).prop_map(|(key, len, at)| Step::Append(key, len, at)),
        1 => (key.clone(), at.clone()).prop_map(|(key, at)| Step::Number(key, at)),
        1 => key.clone().prop_map(Step::Increment),
        2 => key.clone().prop_map(Step::Delete),
        6 => (key, at.clone()).prop_map(|(key, at)| Step::Get(key, at)),
        4 => at.prop_map(Step::Tend),
        1 => any::<bool>().prop_map(Step::Exhaust),
        1 => any::<bool>().prop_map(Step::Scarce),
        1 => Just(Step::WantBack),
    ]
}

/// A server of two cores beside what it is to hold.
struct Beside {
    cores: [Core; 2],
    nic: Memory,
    is_scarce: bool,
    model: HashMap<usize, Vec<u8>>,
    /// What is still being sent, and what it was.
    sent: Vec<(Vec<u8>, Slice<Piece>)>,
}

impl Beside {
    fn say(&mut self, at: usize, request: &[u8], answer: &str) {
        assert_eq!(send(&mut self.cores[at], request, self.is_scarce).copied, answer.as_bytes());
    }

    fn take(&mut self, step: &Step, serial: u8) {
        match *step {
            Step::Set(key, len, at) => {
                let value = vec![b'a' + serial % 26; len];
                self.say(at, &command("set", key, &value), "STORED\r\n");
                self.model.insert(key, value);
            }
            Step::Append(key, len, at)
                if self.model.get(&key).is_none_or(|value| value.len() < 100 * KIB) =>
            {
                let more = vec![b'A' + serial % 26; len];
                let found = self.model.get_mut(&key).map(|value| value.extend_from_slice(&more)).is_some();
                let answer = if found { "STORED\r\n" } else { "NOT_STORED\r\n" };
                self.say(at, &command("append", key, &more), answer);
            }
            Step::Number(key, at) => {
                self.say(at, &command("set", key, b"41"), "STORED\r\n");
                self.model.insert(key, b"41".to_vec());
            }
            Step::Increment(key) if self.model.get(&key).is_some_and(|value| value == b"41") => {
                self.say(0, format!("incr {key} 1\r\n").as_bytes(), "42\r\n");
                self.model.insert(key, b"42".to_vec());
            }
            Step::Delete(key) => {
                let answer = if self.model.remove(&key).is_some() { "DELETED\r\n" } else { "NOT_FOUND\r\n" };
                self.say(1, format!("delete {key}\r\n").as_bytes(), answer);
            }
            Step::Get(key, at) => self.get(key, at),
            Step::Tend(at) => drop(self.cores[at].tend(0, &mut self.nic)),
            Step::Exhaust(is_exhausted) => self.nic.is_exhausted = is_exhausted,
            Step::Scarce(is_scarce) => self.is_scarce = is_scarce,
            Step::WantBack => drop(self.cores[0].demand()),
            Step::Append(..) | Step::Increment(_) => {}
        }
        assert!(
            self.sent.iter().all(|(bytes, slice)| bytes[..] == slice[..]),
            "what is sent does not change"
        );
    }

    fn get(&mut self, key: usize, at: usize) {
        let request = format!("get {key}\r\n");
        let whole = talk(&mut self.cores[at], request.as_bytes());
        let expected = self.model.get(&key).map_or(b"END\r\n".to_vec(), |value| {
            [format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes(), value, b"\r\nEND\r\n"].concat()
        });
        assert!(whole == expected, "the value of {key}");
        let sent = send(&mut self.cores[at], request.as_bytes(), false);
        self.sent.extend(sent.shared.into_iter().map(|slice| (slice.to_vec(), slice)));
    }
}

proptest! {
    /// Whatever becomes of values before, while and after they settle, each is what was stored, what is being
    /// sent stays what it was, and what they cost adds up.
    #[test]
    fn values_settle_unnoticed(steps in prop::collection::vec(step(), 1..80)) {
        let options = Options { threads: 2, memory: 64 * MIB, item_max: MIB, ..Options::default() };
        let first = Core::new(options, UNIX, 7);
        let cores = [first.for_another_core(), first];
        let (nic, is_scarce) = (Memory::default(), false);
        let mut beside = Beside { cores, nic, is_scarce, model: HashMap::new(), sent: Vec::new() };
        for (step, serial) in steps.iter().zip(0..) {
            beside.take(step, serial);
        }
        (0..12).for_each(|key| beside.get(key, 0));
        let held: usize = beside.model.values().map(|value| value.len() + 200).sum();
        prop_assert!(beside.cores[0].memory_used() <= 2 * held);
        (0..12).for_each(|key| beside.take(&Step::Delete(key), 0));
        prop_assert_eq!(beside.cores[0].memory_used(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// However the limit moves while values come and go, none is wrong, and what is kept stays within it.
    #[test]
    fn no_value_is_ever_wrong(steps in prop::collection::vec((0_usize..5, 0_usize..3000), 1..60)) {
        let (mut core, mut nic) = (core(2), Memory { sparse: usize::MAX, ..Memory::default() });
        let mut now_ns = 0;
        for (what, number) in steps {
            match what {
                0 => core.set_limit(Some((1 + number % 8) * MIB)),
                1 => (0..200).for_each(|at| {
                    holds(&mut core, (number + at) % 3000);
                }),
                2 => (0..number % 20).for_each(|_| {
                    now_ns += 1_000_000;
                    core.tend(now_ns, &mut nic);
                }),
                _ => (0..200).for_each(|at| set(&mut core, (number + at) % 3000)),
            }
        }
        tend(&mut core, &mut nic);
        prop_assert!(core.memory_used() <= core.limit());
    }
}
