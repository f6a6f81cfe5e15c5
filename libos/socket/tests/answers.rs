//! What sockets tell of requests: of a connection's, what came until it answers; of datagrams, each answer.

mod common;

use common::{Device, Pair, address};
use nom_net::Answer;
use nom_socket::{Shutdown, SocketId};
use std::time::Duration;

/// The answers to requests that machine 2 has sent.
fn answers(pair: &Pair) -> Vec<Answer> {
    let answers = pair.wire.device(1).port.borrow().answers.clone();
    answers.into_iter().flatten().filter(|answer| answer.requests > 0).collect()
}

/// Answers of machine 1, which only asks.
fn asker_answers(pair: &Pair) -> usize {
    let device: &Device = pair.wire.device(0);
    device.port.borrow().answers.iter().flatten().filter(|answer| answer.requests > 0).count()
}

#[test]
fn what_came_until_it_is_answered_is_one_request() {
    let mut pair = Pair::new(1, 0);
    let (client, server) = connected(&mut pair);
    for round in 1..=3 {
        // In two pieces, a millisecond apart.
        let asked_ns = pair.now_ns;
        for piece in [b"one", b"two"] {
            pair.sockets[0].send(client, piece).expect("room");
            pair.pass(Duration::from_millis(1));
        }
        assert_eq!(pair.sockets[1].receive(server, &mut [0; 10]), Ok(6));
        // Thinking takes a while, and the answer goes in two pieces, of which only the first is one.
        pair.pass(Duration::from_millis(5));
        for piece in [b"yes", b"sir"] {
            pair.sockets[1].send(server, piece).expect("room");
            pair.pass(Duration::from_millis(1));
        }
        let told = answers(&pair);
        assert_eq!(told.len(), round, "{told:?}");
        let Some(Answer { arrived_ns, requests: 1, flow: Some(_) }) = told.last().copied() else {
            panic!("{told:?}")
        };
        assert!((asked_ns..asked_ns + 1_000_000).contains(&arrived_ns), "with its first piece: {told:?}");
        assert_eq!(pair.sockets[0].receive(client, &mut [0; 10]), Ok(6));
    }
    assert_eq!(asker_answers(&pair), 0, "who asks answers nothing");
}

/// A client and a connection to it that a server has accepted.
fn connected(pair: &mut Pair) -> (SocketId, SocketId) {
    let listener = pair.sockets[1].listen(7, 8).expect("free");
    connected_at(pair, listener)
}

fn connected_at(pair: &mut Pair, listener: SocketId) -> (SocketId, SocketId) {
    let client = pair.sockets[0].connect(address(2, 7)).expect("a way");
    let mut accepted = None;
    assert!(pair.run(|sockets| {
        accepted = accepted.or_else(|| sockets[1].accept(listener).ok());
        accepted.is_some() && sockets[0].connected(client).is_ok()
    }));
    (client, accepted.expect("accepted").0)
}

/// Sends `bytes` from one to the other, whatever is lost on the way.
fn carry(pair: &mut Pair, (from, sender): (usize, SocketId), receiver: SocketId, bytes: &[u8]) {
    assert_eq!(pair.sockets[from].send(sender, bytes), Ok(bytes.len()));
    let mut left = bytes.len();
    assert!(pair.run(|sockets| {
        left -= sockets[1 - from].receive(receiver, &mut [0; 4000]).unwrap_or(0);
        left == 0
    }));
}

#[test]
fn what_the_network_sends_again_is_asked_and_answered_once() {
    let mut pair = Pair::new(5, 20);
    let (client, server) = connected(&mut pair);
    const ROUNDS: usize = 100;
    for _ in 0..ROUNDS {
        carry(&mut pair, (0, client), server, b"a question");
        carry(&mut pair, (1, server), client, &[1; 3000]);
    }
    assert_eq!(answers(&pair).len(), ROUNDS);
    assert_eq!(pair.wire.device(1).port.borrow().answered_bytes, ROUNDS * 3000);
}

#[test]
fn who_greets_or_asks_by_himself_answers_nothing() {
    let mut pair = Pair::new(6, 0);
    let (client, server) = connected(&mut pair);
    carry(&mut pair, (1, server), client, b"220 ready");
    assert_eq!((answers(&pair).len(), pair.wire.device(1).port.borrow().answered_bytes), (0, 0));
    carry(&mut pair, (0, client), server, b"HELO");
    carry(&mut pair, (1, server), client, b"250");
    assert_eq!((answers(&pair).len(), pair.wire.device(1).port.borrow().answered_bytes), (1, 3));
    assert_eq!(pair.wire.device(0).port.borrow().answered_bytes, 0, "the client is nobody's server");
}

#[test]
fn what_is_asked_where_nobody_pays_counts_for_nothing() {
    let mut pair = Pair::new(8, 0);
    let listener = pair.sockets[1].listen(7, 8).expect("free");
    pair.sockets[1].leave_uncounted(listener).expect("it listens");
    let (client, server) = connected_at(&mut pair, listener);
    carry(&mut pair, (0, client), server, b"a question");
    carry(&mut pair, (1, server), client, b"an answer");
    assert_eq!((answers(&pair).len(), pair.wire.device(1).port.borrow().answered_bytes), (0, 0));
    let refusal = pair.sockets[1].leave_uncounted(server);
    assert_eq!(refusal, Err(nom_socket::Error::NotSupported), "only who listens has clients");
}

#[test]
fn who_has_no_more_to_say_is_answered_all_the_same() {
    let mut pair = Pair::new(7, 0);
    let (client, server) = connected(&mut pair);
    carry(&mut pair, (0, client), server, b"all there is");
    pair.sockets[0].shutdown(client, Shutdown::Send).expect("open");
    assert!(pair.run(|sockets| sockets[1].receive(server, &mut [0; 10]) == Ok(0)));
    carry(&mut pair, (1, server), client, b"thanks");
    assert_eq!(answers(&pair).len(), 1);
}

#[test]
fn a_datagram_that_goes_back_is_an_answer_and_another_is_none() {
    let mut pair = Pair::new(2, 0);
    let asker = pair.sockets[0].bind(9).expect("free");
    let server = pair.sockets[1].bind(7).expect("free");
    pair.sockets[0].send_to(asker, b"question", address(2, 7)).expect("room");
    pair.pass(Duration::from_millis(1));
    let mut target = [0; 20];
    let (_, from) = pair.sockets[1].receive_from(server, &mut target).expect("it came");
    pair.sockets[1].send_to(server, b"unasked", address(1, 77)).expect("room");
    assert!(answers(&pair).is_empty(), "to somebody else");
    for _ in 0..2 {
        pair.sockets[1].send_to(server, b"answer", from).expect("room");
        pair.pass(Duration::from_millis(1));
    }
    let told = answers(&pair);
    assert!(matches!(told[..], [Answer { requests: 1, flow: None, .. }]), "{told:?}");
}
