//! A host of several stacks, between which its flows move: its peer notices nothing.

mod common;

use common::{Device, Faults, Machine, Peer, Random, bytes, config, server};
use nom_net::tcp::segment::{Flags, Segment};
use nom_net::tcp::sequence::Seq;
use nom_net::{AdoptError, Closed, Config, Detached, Instant};
use nom_port::nic::Offloads;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

const OFFLOADS: Offloads = Offloads { checksum: true, segment_tcp4: true, segment_tcp6: true };
const DELAY: Duration = Duration::from_micros(100);

/// Small windows, so that there is time to move between round trips.
fn settings(number: u8, seed: u64) -> Config {
    let mut config = config(number, seed);
    config.tcp.fix_windows(6000, 256 << 10);
    // Over the worst of these links, data takes longer than peers are commonly waited for.
    config.tcp.linger = LINGER;
    config.half_open_max = 1;
    config
}

const LINGER: Duration = Duration::from_secs(1000);

/// A client, and a host whose one flow is on one of its stacks, with the application.
struct World {
    client: Machine<Peer>,
    stacks: Vec<Machine<Peer>>,
    /// Where the flow is.
    at: usize,
    random: Random,
    faults: Faults,
    now: Instant,
    /// Frames on their way, by arrival: whether to the host.
    flying: BTreeMap<(Instant, u64), (bool, Vec<u8>)>,
    count: u64,
    moves: u64,
}

impl World {
    fn new(seed: u64, stacks: usize, client: Peer, host: Peer) -> World {
        let machine =
            |number| Machine::new(Device::new(number, OFFLOADS), settings(number, seed), Peer::default());
        let mut world = World {
            client: machine(1),
            // Each stack has the same addresses and secrets, and a queue pair of its own.
            stacks: (0..stacks).map(|_| machine(2)).collect(),
            at: 0,
            random: Random::new(seed),
            faults: Faults::default(),
            now: Instant::default(),
            flying: BTreeMap::new(),
            count: 0,
            moves: 0,
        };
        world.stacks.iter_mut().for_each(|machine| machine.stack.listen(80));
        world.client.application = client;
        world.stacks[0].application = host;
        world.client.application.flow = Some(world.client.stack.connect(server(2)).expect("a route"));
        world
    }

    fn host(&mut self) -> &mut Machine<Peer> {
        &mut self.stacks[self.at]
    }

    /// Moves the flow, if there is one, with the application.
    fn relocate(&mut self, to: usize) {
        let from = self.at;
        let Some(flow) = self.stacks[from].stack.flow_from(0).filter(|_| from != to) else { return };
        let knew = self.stacks[from].stack.now();
        let detached = self.stacks[from].stack.detach(flow).expect("a flow");
        let is_known = detached.is_known();
        assert_eq!(self.stacks[from].stack.flow_count(), 0);
        let id = self.stacks[to].stack.adopt(detached).expect("room");
        assert!(self.stacks[to].stack.now() >= knew, "a timestamp would go back");
        self.stacks[to].application = std::mem::take(&mut self.stacks[from].application);
        if is_known {
            self.stacks[to].application.flow = Some(id);
        }
        self.stacks[to].due = Some(self.now);
        (self.at, self.moves) = (to, self.moves + 1);
    }

    fn carry(&mut self, is_to_host: bool, frame: Vec<u8>) {
        if self.random.chance(self.faults.loss) {
            return;
        }
        for _ in 0..1 + u64::from(self.random.chance(self.faults.duplicate)) {
            let late = if self.random.chance(self.faults.reorder) { self.random.below(2000) } else { 0 };
            self.count += 1;
            let at = self.now + DELAY + Duration::from_micros(late);
            self.flying.insert((at, self.count), (is_to_host, frame.clone()));
        }
    }

    /// Goes to the next thing that happens; `false` if nothing ever will.
    fn step(&mut self) -> bool {
        let due = self.stacks.iter().map(|machine| machine.due).chain([self.client.due]).flatten();
        let Some(next) = due.chain(self.flying.keys().next().map(|(at, _)| *at)).min() else { return false };
        self.now = self.now.max(next);
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now) {
            match entry.remove() {
                (false, frame) => self.client.device.deliver(self.now.nanos(), frame),
                // What is no segment concerns all stacks.
                (true, frame) if frame[12..14] == [8, 6] => {
                    let now_ns = self.now.nanos();
                    self.stacks.iter().for_each(|machine| machine.device.deliver(now_ns, frame.clone()));
                }
                (true, frame) => self.stacks[self.at].device.deliver(self.now.nanos(), frame),
            }
        }
        self.client.poll(self.now);
        self.client.take_sent().into_iter().for_each(|frame| self.carry(true, frame));
        for index in 0..self.stacks.len() {
            self.stacks[index].poll(self.now);
            self.stacks[index].take_sent().into_iter().for_each(|frame| self.carry(false, frame));
        }
        true
    }

    fn run(&mut self, limit: Duration, mut done: impl FnMut(&mut World) -> bool) -> bool {
        let end = self.now + limit;
        while self.now < end && !done(self) {
            if !self.step() {
                break;
            }
        }
        done(self)
    }

    fn is_over(&mut self) -> bool {
        self.client.application.closed.is_some() && self.host().application.closed.is_some()
    }

    /// Both heard what the other sent, and ended in peace.
    fn check(&mut self, what: &str, up: &[u8], down: &[u8]) {
        let (client, host) = (&self.client.application, &self.stacks[self.at].application);
        let ends = (client.closed, host.closed);
        let finished = Some(Closed::Finished);
        assert_eq!(ends, (finished, finished), "{what}");
        assert!(host.incoming == up, "{what}: {} of {} bytes up", host.incoming.len(), up.len());
        assert!(client.incoming == down, "{what}: {} of {} bytes down", client.incoming.len(), down.len());
    }
}

/// A transfer in both directions, in which `relocate` may move the flow before each step.
fn transfer(
    what: &str,
    mut world: World,
    (up, down): (&[u8], &[u8]),
    mut relocate: impl FnMut(&mut World),
) -> World {
    let is_over = world.run(Duration::from_secs(3000), |world| {
        relocate(world);
        world.is_over()
    });
    assert!(is_over, "{what}: not over at {:?}", world.now);
    world.check(what, up, down);
    world
}

fn texts(seed: u64, len: usize) -> (Vec<u8>, Vec<u8>) {
    let mut random = Random::new(!seed);
    (bytes(&mut random, len), bytes(&mut random, len / 2))
}

/// The last segment on its way to the host whose flags are as wanted.
fn sent_with(world: &World, is_wanted: fn(u8) -> bool) -> Option<Vec<u8>> {
    let mut there = world.flying.values().filter(|(is_to_host, _)| *is_to_host).map(|(_, frame)| frame);
    there.rfind(|frame| frame.get(47).is_some_and(|flags| is_wanted(*flags))).cloned()
}

fn retransmissions(world: &World) -> u64 {
    let machines = world.stacks.iter().chain([&world.client]);
    machines.map(|machine| machine.stack.counters().retransmissions).sum()
}

#[test]
fn a_flow_can_move_between_tasks() {
    fn is_send<T: Send>() {}
    is_send::<Detached<std::sync::Arc<[u8]>>>();
}

/// From the SYN to the last acknowledgement, with all that is on its way meanwhile.
#[test]
fn one_move_loses_nothing_whenever_it_comes() {
    let (up, down) = texts(1, 150_000);
    let mut moved = 0;
    for when in 0..150 {
        let what = format!("move before step {when}");
        let world = World::new(when, 2, Peer::sending(up.clone()), Peer::sending(down.clone()));
        let mut step = 0;
        let world = transfer(&what, world, (&up, &down), |world| {
            step += 1;
            if step == when {
                world.relocate(1);
            }
        });
        moved += world.moves;
        // A SYN-ACK goes again with its flow, so that the device learns.
        assert!(retransmissions(&world) <= 1, "{what}: {} retransmissions", retransmissions(&world));
    }
    assert!(moved > 50, "{moved} moves in a flow's life");
}

#[test]
fn moves_without_end_over_a_bad_link_lose_nothing() {
    let mut moves = 0;
    for seed in 0..150 {
        let (up, down) = texts(seed, 100_000);
        let mut random = Random::new(seed);
        let stacks = 2 + random.below(3);
        let percent = 1 + random.below(60);
        let client = Peer::sending(up.clone());
        let mut world = World::new(seed, stacks as usize, client, Peer::sending(down.clone()));
        world.faults.loss = random.below(12);
        world.faults.reorder = random.below(30);
        world.faults.duplicate = random.below(10);
        let world = transfer(&format!("seed {seed}"), world, (&up, &down), |world| {
            if random.chance(percent) {
                world.relocate(random.below(stacks) as usize);
            }
        });
        moves += world.moves;
    }
    assert!(moves > 3_000, "{moves} moves");
}

/// A client that sends and closes only when it is told to.
fn hesitant(outgoing: &[u8]) -> Peer {
    Peer { outgoing: outgoing.to_vec(), sent: usize::MAX, ..Peer::default() }
}

fn tell(client: &mut Machine<Peer>, now: Instant) {
    (client.application.sent, client.application.is_closing_when_sent) = (0, true);
    client.application.pump(&mut client.stack);
    client.due = Some(now);
}

/// A host that has sent all it has, and a client that has not.
fn half_closed() -> (World, Vec<u8>) {
    let (up, down) = texts(3, 20_000);
    let mut world = World::new(3, 2, hesitant(&up), Peer::sending(down));
    let is_closed = world.run(Duration::from_secs(5), |world| world.client.application.is_finished);
    assert!(is_closed && world.host().application.closed.is_none());
    world.run(Duration::from_millis(10), |_| false);
    (world, up)
}

#[test]
fn a_flow_in_fin_wait_hears_the_rest_where_it_went() {
    let (mut world, up) = half_closed();
    world.relocate(1);
    tell(&mut world.client, world.now);
    assert!(world.run(Duration::from_secs(5), World::is_over));
    assert!(world.host().application.incoming == up);
}

#[test]
fn patience_with_a_peer_that_does_not_close_goes_with_the_flow() {
    let (mut world, _) = half_closed();
    world.relocate(1);
    world.run(LINGER, |_| false);
    assert_eq!(world.host().application.closed, Some(Closed::TimedOut));
    assert_eq!(world.host().stack.flow_count(), 0);
}

#[test]
fn strays_of_a_flow_in_time_wait_are_answered_where_it_went() {
    let (up, down) = texts(4, 1000);
    let world = World::new(4, 2, hesitant(&up), Peer::sending(down.clone()));
    let mut client_fin = None;
    let mut world = transfer("to be moved", world, (&up, &down), |world| {
        if world.client.application.is_finished && world.client.application.sent == usize::MAX {
            tell(&mut world.client, world.now);
        }
        client_fin = sent_with(world, |flags| flags & 1 == 1).or(client_fin.take());
    });
    assert_eq!((world.stacks[0].stack.flow_count(), world.client.stack.flow_count()), (1, 0));
    world.relocate(1);
    let time_wait = world.stacks[1].stack.config().time_wait;
    world.stacks[1].take(world.now, client_fin.expect("the client's FIN"));
    let answers = world.stacks[1].take_sent();
    let (_, _, answer) = common::parse_frame(answers.last().expect("an answer")).expect("a segment");
    assert_eq!(answer.flags, nom_net::tcp::segment::Flags::ACK);
    assert_eq!(world.stacks[1].stack.flow_count(), 1);
    world.run(time_wait, |_| false);
    assert_eq!(world.stacks[1].stack.flow_count(), 0, "it waits no longer than it would have");
}

#[test]
fn a_flow_that_finds_no_place_is_given_back_whole() {
    let (up, down) = texts(5, 5000);
    let mut world = World::new(5, 1, Peer::sending(up.clone()), Peer::sending(down.clone()));
    let mut full = settings(2, 5);
    full.flows_max = 0;
    let mut other = Machine::new(Device::new(2, OFFLOADS), full, Peer::default());
    let is_halfway = |world: &mut World| world.stacks[0].application.incoming.len() > 1000;
    assert!(world.run(Duration::from_secs(5), is_halfway));
    let flow = world.stacks[0].stack.flow_from(0).expect("a flow");
    let detached = world.stacks[0].stack.detach(flow).expect("the flow");
    assert!(world.stacks[0].stack.detach(flow).is_none(), "its name means nothing any more");
    let (why, detached) = other.stack.adopt(detached).expect_err("no place");
    assert_eq!((why, other.stack.flow_count()), (AdoptError::Full, 0));
    let back = world.stacks[0].stack.adopt(detached).expect("its own place");
    world.stacks[0].application.flow = Some(back);
    world.stacks[0].due = Some(world.now);
    transfer("given back", world, (&up, &down), |_| {});
}

/// The client's SYN came twice, and began a flow on each of two stacks.
#[test]
fn of_two_flows_of_the_same_addresses_the_one_that_is_open_stays() {
    for is_young_to_move in [true, false] {
        let (up, down) = texts(6, 5000);
        let mut world = World::new(6, 2, Peer::sending(up.clone()), Peer::sending(down.clone()));
        let mut syn = None;
        let has_begun = |world: &mut World| {
            syn = sent_with(world, |flags| flags == 2).or(syn.take());
            world.stacks[0].application.incoming.len() > 1000
        };
        assert!(world.run(Duration::from_secs(5), has_begun));
        world.stacks[1].take(world.now, syn.expect("a SYN"));
        world.stacks[1].take_sent();
        if is_young_to_move {
            let young = world.stacks[1].stack.flow_from(0).expect("a flow");
            let young = world.stacks[1].stack.detach(young).expect("the flow");
            let (why, _) = world.stacks[0].stack.adopt(young).expect_err("no place");
            assert_eq!(why, AdoptError::Present);
        } else {
            world.relocate(1);
            assert_eq!(world.stacks[1].stack.flow_count(), 1, "the other has given way");
        }
        transfer("of two", world, (&up, &down), |_| {});
    }
}

/// With one handshake at a time, a second one is answered by a cookie.
#[test]
fn a_handshake_is_counted_where_it_is() {
    let mut world = World::new(8, 2, Peer::default(), Peer::default());
    assert!(world.run(Duration::from_secs(1), |world| world.stacks[0].stack.flow_count() == 1));
    let cookies = |world: &mut World, at: usize, port: u16| {
        let from = SocketAddr::from(([10, 0, 0, 1], port));
        let syn = Segment { flags: Flags::SYN, seq: Seq(7), window: 1000, ..Segment::default() };
        let mut frame = common::segment_frame(from, server(2), &syn, &[]);
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        world.stacks[at].take(world.now, frame);
        world.stacks[at].stack.counters().cookies_sent
    };
    assert_eq!(cookies(&mut world, 0, 5), 1);
    world.relocate(1);
    assert_eq!(cookies(&mut world, 1, 6), 1);
    assert_eq!(cookies(&mut world, 0, 7), 1, "there is room where it was");
}
