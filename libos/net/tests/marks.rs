//! What is said of how a flow's packets are to be treated stands in each of them, and in nobody else's.

mod common;

use common::{Device, Faults, Machine, Memory, Peer, Random, World, bytes, config};
use nom_net::frame::{Marks, Packet};
use nom_net::{Application, Chain, FlowId, Slice, Stack};
use nom_port::nic::Offloads;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const MARKS: Marks = Marks { hops: 7, class: 0xb8 };
const ETHERNET: usize = 14;

/// The marks of a frame.
fn marks(frame: &[u8]) -> Marks {
    let ip = &frame[ETHERNET..];
    match ip[0] >> 4 {
        4 => {
            assert!(Packet::parse_v4(frame).is_ok(), "a bad header: {frame:02x?}");
            Marks { hops: ip[8], class: ip[1] }
        }
        _ => Marks { hops: ip[7], class: ip[0] << 4 | ip[1] >> 4 },
    }
}

/// What frames say once the connection from left to `address` is open: those of the left, whose flow is
/// marked, and of the right.
fn told(address: IpAddr, offloads: Offloads) -> [Vec<Marks>; 2] {
    let mut random = Random::new(1);
    let machine =
        |number, bytes| Machine::new(Device::new(number, offloads), config(number, 1), Peer::sending(bytes));
    let (left, right) = (machine(1, bytes(&mut random, 20_000)), machine(2, bytes(&mut random, 20_000)));
    let mut world = World::new(left, right, 1, Faults::default());
    world.right.stack.listen(80);
    let flow = world.left.stack.connect(SocketAddr::new(address, 80)).unwrap();
    world.left.stack.set_marks(flow, MARKS);
    let mut told = [Vec::new(), Vec::new()];
    let mut seen = 0;
    let is_done = world.run(Duration::from_secs(10), |world| {
        for ((_, number), (is_to_right, frame)) in &world.flying {
            // Of others than TCP nothing was said.
            let is_tcp = [ETHERNET + 9, ETHERNET + 6].iter().zip([0x40, 0x60]).any(|(at, version)| {
                frame[ETHERNET] & 0xf0 == version && frame[*at] == 6 && frame[12..14] != [8, 6]
            });
            if *number > seen && is_tcp {
                told[usize::from(!is_to_right)].push(marks(frame));
            }
        }
        seen = world.count;
        world.left.application.closed.is_some() && world.right.application.closed.is_some()
    });
    assert!(is_done);
    told
}

#[test]
fn a_flows_packets_say_how_they_are_to_be_treated() {
    let all = Offloads { checksum: true, segment_tcp4: true, segment_tcp6: true };
    for address in [IpAddr::from([10, 0, 0, 2]), [0xfd00, 0, 0, 0, 0, 0, 0, 2].into()] {
        for offloads in [Offloads::default(), all] {
            let [marked, others] = told(address, offloads);
            assert!(marked.len() > 4 && others.len() > 4, "{} and {} frames", marked.len(), others.len());
            assert!(marked.iter().all(|marks| *marks == MARKS), "{address}, {offloads:?}: {marked:?}");
            assert!(others.iter().all(|marks| *marks == Marks::USUAL), "{address}, {offloads:?}: {others:?}");
        }
    }
}

/// Keeps how datagrams came, and their lengths.
#[derive(Default)]
struct Hearing(Vec<(Marks, usize)>);

impl Application<Device> for Hearing {
    fn received(&mut self, _: &mut Stack<Device>, _: FlowId, _: Slice<Memory>) {}

    fn datagram(&mut self, stack: &mut Stack<Device>, _: SocketAddr, _: SocketAddr, bytes: Chain<Memory>) {
        self.0.push((stack.arrived_marks(), nom_port::buffer::chain_len(&bytes)));
    }
}

#[test]
fn a_datagram_comes_as_it_was_sent_in_fragments_too() {
    let six = |number| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, number]);
    for (own, address) in [([10, 0, 0, 1].into(), [10, 0, 0, 2].into()), (six(1), six(2))] {
        let machine = |number| {
            Machine::new(Device::new(number, Offloads::default()), config(number, 1), Hearing::default())
        };
        let mut world = World::new(machine(1), machine(2), 1, Faults::default());
        world.right.stack.bind(9);
        for (count, len) in (1..).zip([100, 5000]) {
            let payload = [world.left.stack.buffer(&vec![7; len]).unwrap()].into_iter().collect();
            let (from, to) = (SocketAddr::new(own, 8), SocketAddr::new(address, 9));
            world.left.stack.send_in_answer(from, to, payload, None, MARKS).unwrap();
            world.left.due = Some(world.now);
            let has_come =
                world.run(Duration::from_secs(10), |world| world.right.application.0.len() == count);
            assert!(has_come, "{len} bytes to {address}: {:?}", world.right.stack.counters());
            assert_eq!(world.right.application.0.last(), Some(&(MARKS, len)), "{address}");
        }
    }
}
