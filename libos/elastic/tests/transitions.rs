//! The transitions of a change, one after the other, by their numbers in the crate's description.

use nom_elastic::{CorePool, ElasticCore, Epoch};
use nom_port::world::Doorbell;
use nom_rt::inbox::Remote;
use nom_wire::Memory;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const CORES: usize = 4;
const SECOND_NS: u64 = 1_000_000_000;

struct Deaf;

impl Doorbell for Deaf {
    fn ring(&self, _: usize) {}
}

/// A pool that has so many cores, and gives none back if it is told so.
struct Pool {
    most: AtomicUsize,
    least: AtomicUsize,
    asked: Mutex<Vec<usize>>,
}

impl CorePool for Pool {
    fn resize(&self, cores: usize) -> usize {
        self.asked.lock().unwrap().push(cores);
        cores.clamp(self.least.load(Ordering::Relaxed), self.most.load(Ordering::Relaxed))
    }

    fn leave(&self, _: usize) {}
}

/// A server's cores, which have no flows.
struct Cores {
    cores: Vec<ElasticCore<Memory, ()>>,
    pool: Arc<Pool>,
}

impl Cores {
    fn new() -> Cores {
        let pool = Pool { most: CORES.into(), least: 1.into(), asked: Mutex::default() };
        let pool = Arc::new(pool);
        let remotes = (0..CORES).map(|core| Remote::new(core, Arc::new(Deaf))).collect();
        let mut cores = ElasticCore::group(remotes);
        cores.iter_mut().for_each(|core| core.set_pool(pool.clone()));
        Cores { cores, pool }
    }

    /// The coordinator looks. Returns the newest epoch's ring, active cores, and whether flows move.
    fn step(&mut self, now_ns: u64) -> (u16, u16, bool) {
        self.cores[0].coordinate(now_ns);
        let Epoch { ring, active, is_moving, .. } = self.cores[0].newest();
        (ring, active, is_moving)
    }

    /// All of `range` carry the newest epoch out.
    fn carry_out(&mut self, range: std::ops::Range<usize>) {
        for core in &mut self.cores[range] {
            core.follow(core.newest());
            core.set_done();
        }
    }

    /// From four cores to two, which is over.
    fn narrowed() -> Cores {
        let mut cores = Cores::new();
        cores.cores[0].order(2);
        cores.step(0);
        for _ in 0..2 {
            cores.carry_out(0..CORES);
            cores.step(0);
        }
        cores.cores[2..].iter_mut().for_each(ElasticCore::leave);
        assert_eq!(cores.step(0), (2, 2, false));
        cores
    }

    fn asked(&self) -> Vec<usize> {
        self.pool.asked.lock().unwrap().clone()
    }
}

#[test]
fn fewer_cores_give_their_flows_away_before_the_device_forgets_them() {
    let mut cores = Cores::new();
    cores.cores[0].order(2);
    assert_eq!(cores.step(0), (4, 2, true), "1");
    cores.carry_out(0..3);
    assert_eq!((cores.step(0), cores.asked()), ((4, 2, true), vec![]), "core 3 has not given its flows away");
    cores.carry_out(3..4);
    assert_eq!((cores.step(0), cores.asked()), ((2, 2, false), vec![2]), "2");
    cores.carry_out(2..CORES);
    assert!(!cores.cores[3].can_leave(), "others may still forward something to it");
    cores.carry_out(0..2);
    assert_eq!(cores.step(0), (2, 2, false), "3");
    assert!(cores.cores[2].can_leave() && cores.cores[3].can_leave() && !cores.cores[1].can_leave());
    cores.cores[2].leave();
    cores.step(0);
    cores.cores[0].order(4);
    assert_eq!((cores.step(0), cores.asked()), ((2, 2, false), vec![2]), "core 3 has not left");
    cores.cores[3].leave();
    cores.step(0);
    cores.step(0);
    assert_eq!(cores.asked(), [2, 4], "4, and the next change");
}

#[test]
fn more_cores_are_given_flows_once_all_know_them() {
    let mut cores = Cores::narrowed();
    cores.cores[0].order(4);
    assert_eq!((cores.step(0), cores.asked()), ((2, 2, false), vec![2, 4]), "5");
    assert!(cores.cores[2].come_back());
    assert_eq!(cores.step(0), (2, 2, false), "core 3 is not there yet");
    assert!(cores.cores[3].come_back());
    assert_eq!(cores.step(0), (4, 2, false), "6");
    cores.carry_out(1..CORES);
    assert_eq!(cores.step(0), (4, 2, false), "core 0 has not heard of them");
    cores.carry_out(0..1);
    assert_eq!(cores.step(0), (4, 4, true), "7");
    cores.carry_out(0..CORES);
    assert_eq!(cores.step(0), (4, 4, false), "8");
    cores.carry_out(0..CORES);
    assert!(!cores.cores[0].coordinate(0), "at rest");
}

#[test]
fn a_device_that_keeps_all_its_queues_keeps_all_cores() {
    let mut cores = Cores::new();
    cores.pool.least.store(CORES, Ordering::Relaxed);
    cores.cores[0].order(2);
    cores.step(0);
    cores.carry_out(0..CORES);
    assert_eq!(cores.step(0), (4, 2, true), "2b");
    assert_eq!(cores.step(0), (4, 4, true), "7: what was given away is shared again");
    cores.carry_out(0..CORES);
    assert_eq!(cores.step(0), (4, 4, false));
    cores.carry_out(0..CORES);
    assert!(!cores.cores[0].coordinate(SECOND_NS - 1));
    assert_eq!(cores.step(SECOND_NS), (4, 2, true), "asked again");
}

#[test]
fn who_gets_fewer_cores_than_wanted_asks_again() {
    let mut cores = Cores::narrowed();
    cores.pool.most.store(3, Ordering::Relaxed);
    cores.cores[0].order(0);
    cores.step(0);
    assert!(cores.cores[2].come_back());
    assert_eq!(cores.step(0), (3, 2, false), "one of the two came");
    for _ in 0..2 {
        cores.carry_out(0..3);
        cores.step(0);
    }
    cores.carry_out(0..3);
    assert!(!cores.cores[0].coordinate(SECOND_NS - 1));
    cores.pool.most.store(CORES, Ordering::Relaxed);
    cores.step(SECOND_NS);
    assert_eq!(cores.asked(), [2, 4, 4]);
}
