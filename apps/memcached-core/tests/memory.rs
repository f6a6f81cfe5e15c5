//! A limit of memory that changes while clients are served.

use nom_memcached_core::{Connection, Flow, Options, Server};
use nom_port::buffer::{Buffer, Slice};
use nom_port::nic::{Nic, Outgoing, Properties, Received, Trimmed};
use proptest::prelude::*;
use std::sync::Arc;

const UNIX: u64 = 1_700_000_000;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Received memory that stands in the way, or a copy that does not.
#[derive(Clone)]
struct Piece {
    bytes: Arc<[u8]>,
    is_sparse: bool,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Buffer for Piece {
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

impl Nic for Memory {
    type Buffer = Piece;

    fn properties(&self) -> Properties {
        Properties::default()
    }

    fn receive(&mut self) -> Option<Received<Piece>> {
        None
    }

    fn room(&mut self) -> usize {
        0
    }

    fn transmit(&mut self, frame: Outgoing<Piece>) -> Result<(), Outgoing<Piece>> {
        Err(frame)
    }

    fn kick(&mut self) {}

    fn buffer(&mut self, bytes: &[u8]) -> Option<Slice<Piece>> {
        self.copied += bytes.len();
        let copy = Piece { bytes: bytes.into(), is_sparse: false };
        (!self.is_exhausted).then(|| Slice::new(copy))
    }

    fn trim(&mut self, _: usize) -> Trimmed {
        self.trims += 1;
        let sparse_bytes = if self.trims <= self.sparse { KIB } else { 0 };
        Trimmed { sparse_bytes, ..Trimmed::default() }
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}
}

type Core = Server<Piece, parking_lot::RawMutex>;

fn core(threads: u32) -> Core {
    let options = Options { threads, memory: 64 * MIB, item_max: 64 * KIB, ..Options::default() };
    Core::new(options, UNIX, 7)
}

fn talk(core: &mut Core, request: &[u8]) -> Vec<u8> {
    let mut reply = Vec::new();
    let received = Slice::new(Piece { bytes: request.into(), is_sparse: true });
    assert_eq!(Connection::new().receive(core, received, &mut reply), Flow::Open);
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
    let at = |bytes: u64| demand.curve.iter().find(|point| point.0 >= bytes).expect("a point").1;
    assert!(at(MIB as u64) < 0.2 && at(4 * MIB as u64) > 0.7, "{demand:?}");
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
