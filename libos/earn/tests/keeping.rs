//! How much memory a simulated service is told to take, by what it costs and what it brings.

mod common;

use common::World;
use nom_abi::prices::PricedResource;
use nom_service::Governor;
use nom_service::{Curve, Demand};

const MIB: u64 = 1 << 20;
const MOST_MIB: u64 = 64;
/// What the hits of all memory together bring in a second, about, for each GiB.
const WORTH: f64 = 20.0;

/// A service whose look-ups find the more the more it keeps, up to half of what it may.
struct Service {
    world: World,
    limit_mib: u64,
}

impl Service {
    fn new(knobs: &'static str) -> Service {
        let world = World::new(&[("utility", "Gbit; value 20"), ("knobs", knobs)], 11);
        world.board.post(PricedResource::NetworkOut, 1.0, 0);
        Service { world, limit_mib: MOST_MIB }
    }

    fn demand(&self) -> Demand {
        let points = [(4 * MIB, 0.5), (MOST_MIB / 2 * MIB, 0.95), (MOST_MIB * MIB, 0.95)];
        Demand {
            curve: Curve::new(points.into()).expect("a curve"),
            samples: 1e5,
            lookups: 20_000.0,
            hit_bytes: 1000.0,
            limit_bytes: self.limit_mib * MIB,
            least_bytes: 0,
            most_bytes: MOST_MIB * MIB,
        }
    }

    /// Serves so many seconds, telling once a second what memory is worth.
    fn serve(&mut self, seconds: u64) {
        for _ in 0..seconds {
            let until_ns = self.world.now_ns + 1_000_000_000;
            if self.world.earner.wants_demand() {
                let demand = self.demand();
                self.world.earner.hear(&demand);
            }
            while self.world.now_ns < until_ns {
                self.world.window(16.0);
                self.take();
            }
        }
    }

    fn take(&mut self) {
        let told = self.world.earner.setting().memory_mib;
        if told > 0 {
            self.limit_mib = told.into();
        }
    }

    fn post(&mut self, dollars: f64) {
        self.world.board.post(PricedResource::Memory, dollars, self.world.now_ns);
    }
}

#[test]
fn what_brings_nothing_is_given_back() {
    let mut service = Service::new("memory");
    service.serve(3);
    assert_eq!(service.limit_mib, MOST_MIB, "nothing is known to cost anything");
    service.post(0.01 * WORTH);
    service.serve(10);
    assert!((30..=34).contains(&service.limit_mib), "half brings all: {} MiB", service.limit_mib);
}

#[test]
fn what_costs_more_than_it_brings_is_given_back_and_taken_again() {
    let mut service = Service::new("batching_delay,memory");
    service.post(0.01 * WORTH);
    service.serve(10);
    service.post(1000.0 * WORTH);
    service.serve(2);
    let on_the_way = service.limit_mib;
    assert!((10..30).contains(&on_the_way), "little by little: {on_the_way} MiB");
    service.serve(20);
    assert_eq!(service.limit_mib, 2, "the floor");
    service.post(0.01 * WORTH);
    let setting = service.world.earner.look(service.world.now_ns).expect("a price is answered at once");
    assert!((30..=34).contains(&setting.memory_mib), "{setting:?}");
    service.take();
    service.serve(5);
    assert!((30..=34).contains(&service.limit_mib), "and it stays: {} MiB", service.limit_mib);
}

#[test]
fn without_the_knob_nobody_asks() {
    let mut service = Service::new("batching_delay");
    service.post(1000.0 * WORTH);
    service.serve(5);
    assert_eq!(service.world.earner.setting().memory_mib, 0);
}
