//! Calls that never block, between two machines on a wire.

mod common;

use common::{Device, Pair, Random, address};
use nom_net::frame::Marks;
use nom_port::nic::Nic as _;
use nom_socket::{Error, Event, Family, ListenAddress, PortSharing, Ready, Shutdown, SocketId, Sockets};
use std::time::Duration;

const PORT: u16 = 7;

/// A connection from machine 0 to machine 1, as both ends see it.
fn connect(pair: &mut Pair) -> (SocketId, SocketId) {
    let listener = pair.sockets[1].listen(PORT, 8).unwrap();
    let client = pair.sockets[0].connect(address(2, PORT)).unwrap();
    assert_eq!(pair.sockets[0].connected(client), Err(Error::WouldBlock));
    assert_eq!(pair.sockets[1].accept(listener), Err(Error::WouldBlock));
    assert!(pair.run(|[left, _]| left.connected(client) == Ok(())));
    assert!(pair.run(|[_, right]| right.ready(listener) == Ok(Ready::READABLE)));
    let (server, peer) = pair.sockets[1].accept(listener).unwrap();
    assert_eq!(peer.ip(), address(1, 0).ip());
    (client, server)
}

/// All that can be received now.
fn drain(sockets: &mut Sockets<Device>, id: SocketId, into: &mut Vec<u8>) -> Result<(), Error> {
    let mut buffer = [0; 1000];
    loop {
        match sockets.receive(id, &mut buffer)? {
            0 => return Ok(()),
            len => into.extend_from_slice(&buffer[..len]),
        }
    }
}

#[test]
fn who_receives_piece_by_piece_has_as_much_as_it_asks_for_and_the_rest_later() {
    let mut pair = Pair::new(4, 0);
    let (client, server) = connect(&mut pair);
    assert_eq!(
        pair.sockets[1].receive_with(server, 9, |_| panic!("there is nothing")),
        Err(Error::WouldBlock)
    );
    assert_eq!(pair.sockets[0].send(client, b"abcdef"), Ok(6));
    assert!(pair.run(|[_, right]| right.unread(server) == Ok(6)));
    let mut whole = Vec::new();
    for (most, left) in [(0, 6), (4, 2), (4, 0)] {
        let count = pair.sockets[1].receive_with(server, most, |bytes| whole.extend_from_slice(bytes));
        assert!(count.is_ok_and(|count| count <= most));
        assert_eq!(pair.sockets[1].unread(server), Ok(left));
    }
    assert_eq!(whole, b"abcdef");
}

#[test]
fn bytes_arrive_both_ways_whatever_is_lost() {
    for (seed, loss) in [(1, 0), (2, 1), (3, 10)] {
        let mut pair = Pair::new(seed, loss);
        let (client, server) = connect(&mut pair);
        let mut random = Random::new(seed);
        let outgoing = [random.bytes(600_000), random.bytes(300_000)];
        let (mut sent, mut incoming) = ([0, 0], [Vec::new(), Vec::new()]);
        let done = pair.run(|sockets| {
            for (index, id) in [client, server].into_iter().enumerate() {
                let rest = &outgoing[index][sent[index]..];
                if !rest.is_empty() {
                    match sockets[index].send(id, rest) {
                        Ok(len) => sent[index] += len,
                        Err(error) => assert_eq!(error, Error::WouldBlock),
                    }
                }
                let end = drain(&mut sockets[index], id, &mut incoming[index]);
                assert_eq!(end, Err(Error::WouldBlock));
            }
            incoming[0].len() == outgoing[1].len() && incoming[1].len() == outgoing[0].len()
        });
        assert!(done, "seed {seed}, {loss}% lost: {:?}", incoming.map(|bytes| bytes.len()));
        assert!(incoming[0] == outgoing[1] && incoming[1] == outgoing[0], "seed {seed}");
    }
}

#[test]
fn a_half_closed_stream_still_carries_the_other_way() {
    let mut pair = Pair::new(1, 0);
    let (client, server) = connect(&mut pair);
    pair.sockets[0].send(client, b"question").unwrap();
    pair.sockets[0].shutdown(client, Shutdown::Send).unwrap();
    assert_eq!(pair.sockets[0].send(client, b"more"), Err(Error::BrokenPipe));
    let mut question = Vec::new();
    assert!(pair.run(|[_, right]| drain(right, server, &mut question) == Ok(())));
    assert_eq!(question, b"question");
    assert!(pair.sockets[1].ready(server).unwrap().contains(Ready::FINISHED | Ready::READABLE));
    pair.sockets[1].send(server, b"answer").unwrap();
    pair.sockets[1].close(server).unwrap();
    let mut answer = Vec::new();
    assert!(pair.run(|[left, _]| drain(left, client, &mut answer) == Ok(())));
    assert_eq!(answer, b"answer");
    pair.sockets[0].close(client).unwrap();
    assert!(pair.run(|sockets| sockets.iter_mut().all(|side| side.stack().flows().count() == 0)));
}

#[test]
fn a_reset_is_told_once_after_what_came_before() {
    let mut pair = Pair::new(1, 0);
    let (client, server) = connect(&mut pair);
    pair.sockets[0].send(client, b"unread").unwrap();
    pair.sockets[1].send(server, b"last words").unwrap();
    pair.pass(Duration::from_millis(50));
    // Whoever closes without having read what came resets (RFC 2525 section 2.17).
    pair.sockets[1].close(server).unwrap();
    assert!(pair.run(|[left, _]| left.ready(client).unwrap().contains(Ready::ERROR)));
    let mut said = Vec::new();
    assert_eq!(drain(&mut pair.sockets[0], client, &mut said), Err(Error::Reset));
    assert_eq!(said, b"last words");
    assert_eq!(pair.sockets[0].receive(client, &mut [0; 8]), Ok(0));
    assert_eq!(pair.sockets[0].send(client, b"anyone?"), Err(Error::BrokenPipe));
    assert!(!pair.sockets[0].ready(client).unwrap().contains(Ready::ERROR), "it was told");
}

#[test]
fn a_refused_connection_says_so() {
    let mut pair = Pair::new(1, 0);
    let client = pair.sockets[0].connect(address(2, 99)).unwrap();
    assert_eq!(pair.sockets[0].receive(client, &mut [0; 8]), Err(Error::NotConnected));
    assert!(pair.run(|[left, _]| left.ready(client).unwrap().contains(Ready::ERROR)));
    assert_eq!(pair.sockets[0].take_error(client), Ok(Some(Error::Refused)));
    assert_eq!(pair.sockets[0].take_error(client), Ok(None));
    assert_eq!(pair.sockets[0].connected(client), Err(Error::NotConnected));
    let nowhere = "192.168.1.1:80".parse().unwrap();
    assert_eq!(pair.sockets[0].connect(nowhere), Err(Error::Unreachable));
}

#[test]
fn who_does_not_read_stops_who_sends() {
    const RECEIVE_MAX: usize = 64 << 10;
    let mut pair = Pair::new(1, 0);
    pair.sockets[1].set_receive_max(RECEIVE_MAX);
    let (client, server) = connect(&mut pair);
    let outgoing = Random::new(5).bytes(2 << 20);
    let mut sent = 0;
    // Until neither side takes any more.
    for _ in 0..200 {
        while let Ok(len) = pair.sockets[0].send(client, &outgoing[sent..]) {
            sent += len;
        }
        pair.pass(Duration::from_millis(10));
    }
    assert!(sent < outgoing.len(), "all {sent} bytes were taken though nobody reads");
    assert!(!pair.sockets[0].ready(client).unwrap().contains(Ready::WRITABLE));
    let send_max = pair.sockets[0].stack().config().tcp.send_max;
    // The window of the handshake is the stack's; what it allowed may come.
    let window = pair.sockets[1].stack().config().tcp.receive_window as usize;
    // The queue grows with what is in flight, which the window bounds.
    assert!(sent <= send_max.max(3 * window) + window + (16 << 10), "{sent} bytes");
    let mut incoming = Vec::new();
    let done = pair.run(|[left, right]| {
        if sent < outgoing.len() && left.ready(client).unwrap().contains(Ready::WRITABLE) {
            sent += left.send(client, &outgoing[sent..]).unwrap();
        }
        let _ = drain(right, server, &mut incoming);
        incoming.len() == outgoing.len()
    });
    assert!(done, "{} of {} bytes arrived", incoming.len(), outgoing.len());
    assert!(incoming == outgoing);
}

#[test]
fn who_finds_a_queue_full_waits_and_connects_when_there_is_room() {
    let mut pair = Pair::new(1, 0);
    let listener = pair.sockets[1].listen(PORT, 2).unwrap();
    assert_eq!(pair.sockets[1].listen(PORT, 2), Err(Error::InUse));
    // Three begin while there is room for two: the third's handshake does not end. The fourth is not heard.
    let mut clients: Vec<_> = (0..3).map(|_| pair.sockets[0].connect(address(2, PORT)).unwrap()).collect();
    pair.pass(Duration::from_millis(50));
    clients.push(pair.sockets[0].connect(address(2, PORT)).unwrap());
    pair.pass(Duration::from_millis(50));
    let is_failed = |sockets: &mut Sockets<Device>, id| sockets.ready(id).unwrap().contains(Ready::ERROR);
    assert!(clients.iter().all(|id| !is_failed(&mut pair.sockets[0], *id)));
    assert_eq!(pair.sockets[0].connected(clients[3]), Err(Error::WouldBlock));
    assert!(pair.sockets[1].stack().counters().dropped_tcp_queue_full >= 2);
    for id in &clients[..3] {
        assert_eq!(pair.sockets[0].send(*id, b"hello"), Ok(5));
    }
    let mut accepted = 0;
    assert!(pair.run(|[_, right]| {
        accepted += usize::from(right.accept(listener).is_ok());
        accepted == clients.len()
    }));
    assert_eq!(pair.sockets[0].connected(clients[3]), Ok(()));
    assert_eq!(pair.sockets[1].accept(listener), Err(Error::WouldBlock));
}

#[test]
fn a_queue_may_be_made_longer_while_peers_wait() {
    let mut pair = Pair::new(1, 0);
    let listener = pair.sockets[1].listen(PORT, 1).unwrap();
    let first = pair.sockets[0].connect(address(2, PORT)).unwrap();
    pair.pass(Duration::from_millis(50));
    let second = pair.sockets[0].connect(address(2, PORT)).unwrap();
    pair.pass(Duration::from_millis(50));
    assert_eq!(pair.sockets[0].connected(second), Err(Error::WouldBlock));
    pair.sockets[1].set_pending_max(listener, 2).unwrap();
    assert!(pair.run(|[left, _]| left.connected(second) == Ok(())));
    assert_eq!(pair.sockets[0].set_pending_max(first, 2), Err(Error::NotSupported));
}

#[test]
fn who_waits_is_reset_when_nobody_listens_any_more() {
    let mut pair = Pair::new(1, 0);
    let listener = pair.sockets[1].listen(PORT, 2).unwrap();
    let clients: Vec<_> = (0..3).map(|_| pair.sockets[0].connect(address(2, PORT)).unwrap()).collect();
    pair.pass(Duration::from_millis(50));
    pair.sockets[1].close(listener).unwrap();
    // The handshake that did not end is told when it asks again.
    let all_reset = |[left, _]: &mut [Sockets<Device>; 2]| {
        clients.iter().all(|id| left.ready(*id).unwrap().contains(Ready::ERROR))
    };
    assert!(pair.run(all_reset));
    assert!(pair.run(|[_, right]| right.is_empty()));
    assert!(pair.sockets[1].listen(PORT, 2).is_ok(), "the port is free again");
}

/// A listener of the second machine's at these addresses.
fn listener_at(
    pair: &mut Pair,
    addresses: &[ListenAddress],
    sharing: PortSharing,
) -> Result<SocketId, Error> {
    pair.sockets[1].listen_at(addresses, PORT, 64, sharing)
}

#[test]
fn each_family_may_have_a_listener_of_its_own() {
    let mut pair = Pair::new(1, 0);
    let [v4, v6] = [Family::V4, Family::V6].map(|family| [ListenAddress::Any(family)]);
    let six = listener_at(&mut pair, &v6, PortSharing::Alone).unwrap();
    assert_eq!(pair.sockets[1].listen(PORT, 2), Err(Error::InUse), "both, of which one is taken");
    let four = listener_at(&mut pair, &v4, PortSharing::Alone).unwrap();
    let client = pair.sockets[0].connect(address(2, PORT)).unwrap();
    pair.pass(Duration::from_millis(50));
    assert_eq!(pair.sockets[1].accept(six), Err(Error::WouldBlock), "the client came by IPv4");
    assert!(pair.sockets[1].accept(four).is_ok());
    pair.sockets[1].close(four).unwrap();
    assert_eq!(listener_at(&mut pair, &v6, PortSharing::Alone), Err(Error::InUse));
    assert!(listener_at(&mut pair, &v4, PortSharing::Alone).is_ok(), "the port is free again");
    pair.sockets[0].close(client).unwrap();
}

#[test]
fn who_listens_at_one_address_gets_what_is_sent_there() {
    let mut pair = Pair::new(1, 0);
    let any = listener_at(&mut pair, &[ListenAddress::Any(Family::V4)], PortSharing::Alone).unwrap();
    let [own, other] = [2, 9].map(|host| [ListenAddress::One(address(host, PORT).ip())]);
    let other = listener_at(&mut pair, &other, PortSharing::Alone).unwrap();
    let accepts = |pair: &mut Pair| {
        pair.sockets[0].connect(address(2, PORT)).unwrap();
        pair.pass(Duration::from_millis(50));
        [any, other].map(|listener| pair.sockets[1].accept(listener).is_ok())
    };
    assert_eq!(accepts(&mut pair), [true, false]);
    let one = listener_at(&mut pair, &own, PortSharing::Alone).unwrap();
    assert_eq!(listener_at(&mut pair, &own, PortSharing::Shared), Err(Error::InUse), "it shares nothing");
    assert_eq!(accepts(&mut pair), [false, false]);
    assert!(pair.sockets[1].accept(one).is_ok());
    pair.sockets[1].close(one).unwrap();
    assert_eq!(accepts(&mut pair), [true, false], "what nobody else gets");
}

#[test]
fn connections_are_spread_over_those_who_share_a_port() {
    const CLIENTS: usize = 40;
    let mut pair = Pair::new(1, 0);
    let any = [ListenAddress::Any(Family::V4)];
    let shared = [(); 2].map(|()| listener_at(&mut pair, &any, PortSharing::Shared).unwrap());
    assert_eq!(listener_at(&mut pair, &any, PortSharing::Alone), Err(Error::InUse));
    let accepted = |pair: &mut Pair| {
        for _ in 0..CLIENTS {
            pair.sockets[0].connect(address(2, PORT)).unwrap();
            pair.pass(Duration::from_millis(5));
        }
        pair.pass(Duration::from_millis(50));
        shared.map(|listener| core::iter::from_fn(|| pair.sockets[1].accept(listener).ok()).count())
    };
    let counts = accepted(&mut pair);
    assert!(
        counts.iter().sum::<usize>() == CLIENTS && counts.iter().all(|count| *count > CLIENTS / 5),
        "{counts:?}"
    );
    pair.sockets[1].close(shared[0]).unwrap();
    assert_eq!(accepted(&mut pair), [0, CLIENTS], "who stays gets all");
    pair.sockets[1].close(shared[1]).unwrap();
    assert!(listener_at(&mut pair, &any, PortSharing::Alone).is_ok(), "the port is free again");
}

#[test]
fn datagrams_go_where_they_are_sent_and_unread_ones_are_counted() {
    let mut pair = Pair::new(1, 0);
    let server = pair.sockets[1].bind(53).unwrap();
    assert_eq!(pair.sockets[1].bind(53), Err(Error::InUse));
    let client = pair.sockets[0].bind(0).unwrap();
    let mut buffer = [0; 4];
    assert_eq!(pair.sockets[1].receive_from(server, &mut buffer), Err(Error::WouldBlock));
    pair.sockets[0].send_to(client, b"longer than 4", address(2, 53)).unwrap();
    assert!(pair.run(|[_, right]| right.ready(server).unwrap().contains(Ready::READABLE)));
    let (len, from) = pair.sockets[1].receive_from(server, &mut buffer).unwrap();
    assert_eq!((len, &buffer), (4, b"long"));
    assert_eq!(from, address(1, pair.sockets[0].port(client).unwrap()));
    let marks = Marks { hops: 3, class: 0xb9 };
    pair.sockets[1].send_marked(server, b"back", from, marks).unwrap();
    assert!(pair.run(|[left, _]| left.ready(client).unwrap().contains(Ready::READABLE)));
    let came = pair.sockets[0].receive_datagram(client, &mut buffer).unwrap();
    assert_eq!((came.len, came.arrived.to, came.arrived.marks), (4, address(1, 0).ip(), marks));
    assert_eq!(pair.sockets[0].send_to(client, &[0; 65_508], from), Err(Error::TooLong));
    assert_eq!(pair.sockets[0].send(client, b"x"), Err(Error::NotSupported));
    pair.sockets[1].set_receive_max(2000);
    let small = pair.sockets[1].bind(54).unwrap();
    for _ in 0..5 {
        pair.sockets[0].send_to(client, &[0; 1000], address(2, 54)).unwrap();
    }
    pair.pass(Duration::from_millis(10));
    assert!(pair.sockets[1].dropped(small).unwrap() >= 3);
}

#[test]
fn who_sends_datagrams_hears_that_nobody_takes_them() {
    let mut pair = Pair::new(1, 0);
    let client = pair.sockets[0].bind(0).unwrap();
    let other = pair.sockets[0].bind(0).unwrap();
    for port in [53, 54, 53] {
        pair.sockets[0].send_to(client, b"question", address(2, port)).unwrap();
        pair.pass(Duration::from_millis(10));
    }
    let refusals = |pair: &mut Pair, id| {
        core::iter::from_fn(|| pair.sockets[0].take_refusal(id).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(refusals(&mut pair, client), [address(2, 53), address(2, 54)]);
    assert_eq!((refusals(&mut pair, client), refusals(&mut pair, other)), (vec![], vec![]));
    // Somebody is there now; of many others only some are remembered.
    pair.sockets[1].bind(53).unwrap();
    for port in 53..100 {
        pair.sockets[0].send_to(client, b"question", address(2, port)).unwrap();
    }
    pair.pass(Duration::from_millis(10));
    assert_eq!(refusals(&mut pair, client), (54..70).map(|port| address(2, port)).collect::<Vec<_>>());
}

#[test]
fn datagrams_without_bytes_take_memory_too() {
    const SENT: usize = 500;
    let mut pair = Pair::new(1, 0);
    pair.sockets[1].set_receive_max(8 << 10);
    let server = pair.sockets[1].bind(53).unwrap();
    let client = pair.sockets[0].bind(0).unwrap();
    for round in 0..2 {
        for _ in 0..SENT {
            pair.sockets[0].send_to(client, b"", address(2, 53)).unwrap();
            pair.pass(Duration::from_millis(1));
        }
        let read = core::iter::from_fn(|| pair.sockets[1].receive_from(server, &mut []).ok()).count();
        assert!((10..100).contains(&read), "{read} were kept in round {round}");
        let dropped = (round + 1) * (SENT - read) as u64;
        assert_eq!(pair.sockets[1].dropped(server), Ok(dropped), "what was read makes room");
    }
}

#[test]
fn a_full_ring_blocks_datagrams_until_it_has_room() {
    let mut pair = Pair::new(1, 0);
    let client = pair.sockets[0].bind(0).unwrap();
    // The neighbour must be known, or datagrams wait for that.
    pair.sockets[0].send_to(client, b"hello", address(2, 9)).unwrap();
    pair.pass(Duration::from_millis(10));
    let poll = pair.sockets[0].add_poll();
    pair.sockets[0].watch(poll, client, 0, Ready::WRITABLE).unwrap();
    let is_told = |pair: &mut Pair| pair.sockets[0].take_ready(poll, &mut [Event::default()]) == Ok(1);
    let mut device = pair.wire.device(0).clone();
    for _ in 0..2 {
        device.port.borrow_mut().is_stalled = true;
        let send = |pair: &mut Pair| pair.sockets[0].send_to(client, b"x", address(2, 9));
        let sent = (0..1000).take_while(|_| send(&mut pair).is_ok()).count();
        assert!((1..1000).contains(&sent));
        assert_eq!(send(&mut pair), Err(Error::WouldBlock));
        assert!(!is_told(&mut pair));
        pair.pass(Duration::from_millis(1));
        assert!(!is_told(&mut pair), "the ring is full");
        device.port.borrow_mut().is_stalled = false;
        device.kick();
        pair.pass(Duration::from_millis(1));
        assert!(is_told(&mut pair));
        assert_eq!(send(&mut pair), Ok(()));
    }
}

#[test]
fn a_datagram_that_goes_ends_the_wait_for_the_ring() {
    let mut pair = Pair::new(1, 0);
    let client = pair.sockets[0].bind(0).unwrap();
    pair.sockets[0].send_to(client, b"hello", address(2, 9)).unwrap();
    pair.pass(Duration::from_millis(10));
    let mut device = pair.wire.device(0).clone();
    device.port.borrow_mut().is_stalled = true;
    while pair.sockets[0].send_to(client, b"x", address(2, 9)).is_ok() {}
    device.port.borrow_mut().is_stalled = false;
    device.kick();
    pair.sockets[0].send_to(client, b"x", address(2, 9)).unwrap();
    assert!(pair.sockets[0].ready(client).unwrap().contains(Ready::WRITABLE));
}

#[test]
fn closed_sockets_are_no_sockets() {
    let mut pair = Pair::new(1, 0);
    let socket = pair.sockets[0].bind(0).unwrap();
    pair.sockets[0].close(socket).unwrap();
    assert_eq!(pair.sockets[0].close(socket), Err(Error::BadSocket));
    assert_eq!(pair.sockets[0].ready(socket), Err(Error::BadSocket));
    assert_eq!(pair.sockets[0].receive(socket, &mut [0]), Err(Error::BadSocket));
}
