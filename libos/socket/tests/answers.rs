//! What sockets tell of requests: of a connection's, what came until it answers; of datagrams, each answer.

mod common;

use common::{Device, Pair, address};
use nom_net::Answer;
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
    let listener = pair.sockets[1].listen(7, 8).expect("free");
    let client = pair.sockets[0].connect(address(2, 7)).expect("a way");
    let mut accepted = None;
    assert!(pair.run(|sockets| {
        accepted = accepted.or_else(|| sockets[1].accept(listener).ok());
        accepted.is_some() && sockets[0].connected(client).is_ok()
    }));
    let (server, _) = accepted.expect("accepted");
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
