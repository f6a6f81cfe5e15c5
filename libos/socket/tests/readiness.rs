//! Interest sets: how often they report, and that idle sockets cost nothing.

mod common;

use common::{Pair, address, config};
use nom_net::Stack;
use nom_socket::{Error, Event, Interest, PollId, Ready, SocketId, Sockets, Trigger};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

/// What machine 1's set reports: tokens, and what for.
fn ready(pair: &mut Pair, poll: PollId) -> Vec<(u64, Ready)> {
    let mut events = [Event::default(); 16];
    let count = pair.sockets[1].take_ready(poll, &mut events).unwrap();
    events[..count].iter().map(|event| (event.token, event.ready)).collect()
}

/// So many connections from machine 0 to machine 1, as both ends see them.
fn connections(pair: &mut Pair, count: usize) -> Vec<(SocketId, SocketId)> {
    let listener = pair.sockets[1].listen(7, count).unwrap();
    let mut ends = Vec::new();
    for _ in 0..count {
        let client = pair.sockets[0].connect(address(2, 7)).unwrap();
        assert!(pair.run(|[_, right]| right.ready(listener).unwrap().contains(Ready::READABLE)));
        ends.push((client, pair.sockets[1].accept(listener).unwrap().0));
    }
    ends
}

#[test]
fn a_socket_is_reported_as_long_as_it_is_ready() {
    let mut pair = Pair::new(1, 0);
    let [(client, server)] = connections(&mut pair, 1)[..] else { panic!("one connection") };
    let poll = pair.sockets[1].add_poll();
    pair.sockets[1].watch(poll, server, 42, Ready::READABLE).unwrap();
    assert_eq!(ready(&mut pair, poll), []);
    pair.sockets[0].send(client, b"ab").unwrap();
    assert!(pair.run(|[_, right]| right.ready(server).unwrap().contains(Ready::READABLE)));
    for _ in 0..3 {
        assert_eq!(ready(&mut pair, poll), [(42, Ready::READABLE)]);
    }
    pair.sockets[1].receive(server, &mut [0; 1]).unwrap();
    assert_eq!(ready(&mut pair, poll), [(42, Ready::READABLE)], "one byte is left");
    pair.sockets[1].receive(server, &mut [0; 1]).unwrap();
    assert_eq!(ready(&mut pair, poll), []);
    pair.sockets[1].watch(poll, server, 43, Ready::READABLE | Ready::WRITABLE).unwrap();
    assert_eq!(ready(&mut pair, poll), [(43, Ready::WRITABLE)]);
}

#[test]
fn an_edge_is_reported_once_whenever_more_comes() {
    let mut pair = Pair::new(1, 0);
    let [(client, server)] = connections(&mut pair, 1)[..] else { panic!("one connection") };
    let poll = pair.sockets[1].add_poll();
    let interest = Interest { wanted: Ready::READABLE, trigger: Trigger::Edge };
    pair.sockets[1].watch(poll, server, 42, interest).unwrap();
    assert_eq!(ready(&mut pair, poll), []);
    for _ in 0..2 {
        pair.sockets[0].send(client, b"ab").unwrap();
        pair.pass(Duration::from_millis(2));
        assert_eq!(ready(&mut pair, poll), [(42, Ready::READABLE)], "though the first bytes are unread");
        assert_eq!(ready(&mut pair, poll), []);
    }
    // To be watched again is an edge, as EPOLL_CTL_MOD is; to become ready for something else is none.
    pair.sockets[1].watch(poll, server, 43, interest).unwrap();
    assert_eq!(ready(&mut pair, poll), [(43, Ready::READABLE)]);
    let filled = vec![0; 1 << 20];
    pair.sockets[1].send(server, &filled).unwrap();
    pair.sockets[0].receive(client, &mut vec![0; 1 << 20]).unwrap_err();
    pair.pass(Duration::from_millis(100));
    assert_eq!(ready(&mut pair, poll), [], "it has room again, which nobody asked about");
}

#[test]
fn a_one_shot_is_reported_once_until_it_is_watched_again() {
    let mut pair = Pair::new(1, 0);
    let [(client, server)] = connections(&mut pair, 1)[..] else { panic!("one connection") };
    let poll = pair.sockets[1].add_poll();
    let interest = Interest { wanted: Ready::READABLE, trigger: Trigger::OneShot };
    pair.sockets[1].watch(poll, server, 42, interest).unwrap();
    for (round, expected) in [1, 0, 0].into_iter().enumerate() {
        pair.sockets[0].send(client, b"a").unwrap();
        pair.pass(Duration::from_millis(2));
        assert_eq!(ready(&mut pair, poll).len(), expected, "round {round}");
    }
    // Not even the end, which is an error here, is told to who has heard.
    pair.sockets[0].close(client).unwrap();
    pair.pass(Duration::from_millis(2));
    assert_eq!(ready(&mut pair, poll), []);
    pair.sockets[1].watch(poll, server, 43, interest).unwrap();
    assert_eq!(ready(&mut pair, poll), [(43, Ready::READABLE)]);
    assert_eq!(ready(&mut pair, poll), []);
}

#[test]
fn who_finds_no_room_comes_first_the_next_time() {
    let mut pair = Pair::new(1, 0);
    let ends = connections(&mut pair, 3);
    let poll = pair.sockets[1].add_poll();
    for (token, (_, server)) in ends.iter().enumerate() {
        pair.sockets[1].watch(poll, *server, token as u64, Ready::WRITABLE).unwrap();
    }
    let mut tokens = Vec::new();
    for _ in 0..6 {
        let mut events = [Event::default()];
        assert_eq!(pair.sockets[1].take_ready(poll, &mut events), Ok(1));
        tokens.push(events[0].token);
    }
    assert_eq!(tokens, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn sockets_leave_a_set_when_told_or_closed() {
    let mut pair = Pair::new(1, 0);
    let ends = connections(&mut pair, 2);
    let poll = pair.sockets[1].add_poll();
    for (token, (_, server)) in ends.iter().enumerate() {
        pair.sockets[1].watch(poll, *server, token as u64, Ready::WRITABLE).unwrap();
    }
    pair.sockets[1].close(ends[0].1).unwrap();
    assert_eq!(ready(&mut pair, poll), [(1, Ready::WRITABLE)]);
    pair.sockets[1].unwatch(poll, ends[1].1).unwrap();
    assert_eq!(pair.sockets[1].unwatch(poll, ends[1].1), Err(Error::BadSocket));
    assert_eq!(ready(&mut pair, poll), []);
    pair.sockets[1].watch(poll, ends[1].1, 9, Ready::WRITABLE).unwrap();
    assert_eq!(ready(&mut pair, poll), [(9, Ready::WRITABLE)], "once, though it was in there before");
    pair.sockets[1].remove_poll(poll).unwrap();
    assert_eq!(pair.sockets[1].take_ready(poll, &mut [Event::default()]), Err(Error::BadSocket));
}

#[test]
fn a_failed_connection_is_reported_to_whoever_watches() {
    let mut pair = Pair::new(1, 0);
    let poll = pair.sockets[0].add_poll();
    let client = pair.sockets[0].connect(address(2, 99)).unwrap();
    pair.sockets[0].watch(poll, client, 5, Ready::WRITABLE).unwrap();
    let mut events = [Event::default()];
    assert!(pair.run(|[left, _]| left.take_ready(poll, &mut events) == Ok(1)));
    assert!(events[0].ready.contains(Ready::WRITABLE | Ready::ERROR), "{events:?}");
}

/// The same load on ten sockets among ten, and among a thousand: as many are looked at.
#[test]
fn a_wait_does_not_cost_more_with_idle_sockets() {
    let examined = [10, 1000].map(|count| {
        let mut pair = Pair::new(1, 0);
        let ends = connections(&mut pair, count);
        let poll = pair.sockets[1].add_poll();
        for (token, (_, server)) in ends.iter().enumerate() {
            pair.sockets[1].watch(poll, *server, token as u64, Ready::READABLE).unwrap();
        }
        assert_eq!(ready(&mut pair, poll), []);
        // Each was looked at once when it was taken in.
        while !ready(&mut pair, poll).is_empty() {}
        let before = pair.sockets[1].examined(poll);
        for round in 0..20 {
            for (client, _) in &ends[..10] {
                pair.sockets[0].send(*client, b"!").unwrap();
            }
            pair.pass(Duration::from_millis(2));
            let mut found = ready(&mut pair, poll);
            found.sort_unstable_by_key(|(token, _)| *token);
            assert_eq!(
                found.iter().map(|(token, _)| *token).collect::<Vec<_>>(),
                Vec::from_iter(0..10),
                "{round}"
            );
            for (_, server) in &ends[..10] {
                pair.sockets[1].receive(*server, &mut [0; 8]).unwrap();
            }
            assert_eq!(ready(&mut pair, poll), []);
        }
        pair.sockets[1].examined(poll) - before
    });
    assert_eq!(examined[0], examined[1]);
}

/// Connections of machine 0 whose stack holds little: one with some bytes in its queue and room for more, and
/// others that then take the room.
fn crowded_out() -> (Pair, SocketId) {
    let mut pair = Pair::new(1, 0);
    let mut config = config(1);
    config.tcp.queued_max = 256 << 10;
    pair.sockets[0] = Sockets::new(Stack::new(pair.wire.device(0).clone(), config));
    let ids: Vec<_> = connections(&mut pair, 8).into_iter().map(|(client, _)| client).collect();
    // Nothing is acknowledged.
    pair.wire.loss = 100;
    assert_eq!(pair.sockets[0].send(ids[0], &[1; 20_000]), Ok(20_000));
    assert!(pair.sockets[0].ready(ids[0]).unwrap().contains(Ready::WRITABLE));
    for id in &ids[1..] {
        while pair.sockets[0].send(*id, &[2; 1000]).is_ok() {}
    }
    (pair, ids[0])
}

#[test]
fn who_finds_room_gone_is_told_when_it_is_back() {
    let (mut pair, id) = crowded_out();
    let poll = pair.sockets[0].add_poll();
    pair.sockets[0].watch(poll, id, 7, Ready::WRITABLE).unwrap();
    let mut events = [Event::default(); 2];
    assert_eq!(pair.sockets[0].take_ready(poll, &mut events), Ok(0), "others took the room");
    pair.wire.loss = 0;
    assert!(pair.run(|[left, _]| left.take_ready(poll, &mut events) == Ok(1)));
    assert_eq!((events[0].token, events[0].ready), (7, Ready::WRITABLE));
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn who_is_to_wait_for_room_is_woken_though_there_was_no_memory() {
    let (mut pair, id) = crowded_out();
    let bell = Arc::new(Bell::default());
    let port = pair.wire.device(0).port.clone();
    port.borrow_mut().is_memory_short = true;
    assert_eq!(pair.sockets[0].send(id, b"x"), Err(Error::WouldBlock));
    pair.sockets[0].wake_for(id, Ready::WRITABLE, &Waker::from(bell.clone())).unwrap();
    port.borrow_mut().is_memory_short = false;
    pair.wire.loss = 0;
    assert!(pair.run(|[left, _]| {
        left.take_woken().into_iter().for_each(Waker::wake);
        bell.0.load(Ordering::Relaxed) == 1
    }));
    assert_eq!(pair.sockets[0].send(id, b"x"), Ok(1));
}
