//! Sessions without a network, with a client of rustls' own whose cryptography is ring's.

mod common;

use common::{client, identity};
use nom_tls::{BadIdentity, Error, Identity, Session};
use proptest::prelude::*;
use rustls::ClientConnection;
use std::io::{Read, Write};

/// A client and a server, with what is on its way from the one to the other.
struct Pair {
    client: ClientConnection,
    server: Session,
    /// Lengths of the pieces in which the server gets what comes, over and over.
    pieces: Vec<usize>,
}

impl Pair {
    fn new(pieces: Vec<usize>) -> Pair {
        let (identity, root) = identity();
        let server = Session::new(&identity).unwrap();
        Pair { client: client(&root), server, pieces }
    }

    /// Carries what both have to say until neither says more; what the client heard of the server, as text.
    fn talk(&mut self) -> Result<Vec<u8>, Error> {
        let (mut heard, mut pieces) = (Vec::new(), self.pieces.clone().into_iter().cycle());
        loop {
            let (mut up, down) = (Vec::new(), self.server.take_outgoing());
            while self.client.wants_write() {
                self.client.write_tls(&mut up).unwrap();
            }
            if up.is_empty() && down.is_empty() {
                return Ok(heard);
            }
            let mut down = &down[..];
            while !down.is_empty() {
                self.client.read_tls(&mut down).unwrap();
                self.client.process_new_packets().expect("the server keeps to the protocol");
                let _ = self.client.reader().read_to_end(&mut heard);
            }
            let mut up = &up[..];
            while !up.is_empty() {
                let (piece, rest) = up.split_at(pieces.next().unwrap().min(up.len()));
                self.server.receive(piece)?;
                up = rest;
            }
        }
    }

    fn read(&mut self) -> Vec<u8> {
        let mut text = vec![0; 1 << 20];
        let len = self.server.read(&mut text);
        text.truncate(len);
        text
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever pieces it comes in, and however long it is.
    #[test]
    fn what_is_said_is_heard(
        pieces in prop::collection::vec(1_usize..3000, 1..8),
        asked in prop::collection::vec(any::<u8>(), 0..40_000),
        answered in prop::collection::vec(any::<u8>(), 0..40_000),
    ) {
        let mut pair = Pair::new(pieces);
        prop_assert_eq!(pair.talk().unwrap(), b"");
        prop_assert!(pair.server.is_established() && !pair.server.is_finished());
        pair.client.writer().write_all(&asked).unwrap();
        pair.server.write(&answered).unwrap();
        prop_assert!(pair.talk().unwrap() == answered);
        prop_assert!(pair.read() == asked);
        pair.client.send_close_notify();
        pair.talk().unwrap();
        prop_assert!(pair.server.is_finished(), "the client has said that this was all");
        // The server may say more yet.
        pair.server.write(b"more").unwrap();
        pair.server.close().unwrap();
        prop_assert_eq!(pair.talk().unwrap(), b"more");
        let late = pair.server.write(b"too late").map(|()| pair.talk().unwrap());
        prop_assert_eq!(late.unwrap_or_default(), b"");
    }

    /// Nobody's noise is more than an error, which stays.
    #[test]
    fn noise_is_refused(noise in prop::collection::vec(any::<u8>(), 5..600)) {
        let mut server = Session::new(&identity().0).unwrap();
        if let Err(why) = server.receive(&noise) {
            prop_assert!(matches!(why, Error::Protocol(_)), "{why}");
            prop_assert_eq!(server.receive(b"more"), Err(why));
            // An alert, in a record of its own: RFC 8446 section 5.1.
            let alert = server.take_outgoing();
            prop_assert_eq!((alert.first(), alert.len()), (Some(&21), 7), "{:?}", alert);
        }
        prop_assert!(!server.is_established());
    }

    /// What was changed on its way is not believed.
    #[test]
    fn a_damaged_record_is_refused(at in 5_usize..60, bit in 0..8) {
        let mut pair = Pair::new(vec![usize::MAX]);
        pair.talk().unwrap();
        pair.client.writer().write_all(b"pay 100 dollars to somebody whom I do like").unwrap();
        let mut record = Vec::new();
        pair.client.write_tls(&mut record).unwrap();
        record[at] ^= 1_u8 << bit;
        prop_assert_eq!(pair.server.receive(&record), Err(Error::Protocol(rustls::Error::DecryptError)));
        prop_assert_eq!(pair.read(), b"");
    }
}

#[test]
fn nothing_is_said_in_the_clear() {
    let mut pair = Pair::new(vec![usize::MAX]);
    pair.talk().unwrap();
    pair.server.write(b"a secret of some length").unwrap();
    let records = pair.server.take_outgoing();
    assert!(records.windows(6).all(|window| window != b"secret"));
    assert_eq!(records.len(), 23 + 22, "one record, made in one go");
}

#[test]
fn an_older_version_is_refused_with_an_alert() {
    let mut server = Session::new(&identity().0).unwrap();
    let mut client = common::client_of(&identity().1, &[&rustls::version::TLS12]);
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    assert!(matches!(server.receive(&hello), Err(Error::Protocol(rustls::Error::PeerIncompatible(_)))));
    // protocol_version is 70.
    assert_eq!(server.take_outgoing().last(), Some(&70));
}

#[test]
fn who_is_not_known_yet_is_told_nothing() {
    let mut server = Session::new(&identity().0).unwrap();
    server.write(b"too soon").unwrap();
    assert!(!server.has_outgoing());
}

#[test]
fn a_bad_identity_is_named() {
    let (chain, key) = common::pem();
    let (_, other) = common::pem();
    let new = |chain: &str, key: &str| Identity::new(chain.as_bytes(), key.as_bytes(), || 0);
    assert!(new(&chain, &key).is_ok());
    assert!(matches!(new("", &key), Err(BadIdentity::NoCertificate)));
    assert!(matches!(new(&key, &key), Err(BadIdentity::NoCertificate)));
    assert!(matches!(new(&chain, "no key"), Err(BadIdentity::Key(_))));
    assert!(matches!(new(&chain, &other), Err(BadIdentity::Mismatch)));
    assert!(matches!(new(&chain[..chain.len() / 2], &key), Err(BadIdentity::Certificates(_))));
}
