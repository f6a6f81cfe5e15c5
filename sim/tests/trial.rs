//! A service of one's own in the simulator.

use nom_port::buffer::{Buffer, Sink, Slice};
use nom_service::{Reply, Service, Stream};
use nom_sim::{Talk, Trial};
use std::net::SocketAddr;
use std::panic::catch_unwind;
use std::time::Duration;

/// Says what it hears in capitals.
struct Capitals;

impl<B: Buffer> Service<B> for Capitals {
    type Connection = ();

    fn connected(&mut self, _: SocketAddr, _: &mut Reply<B>) -> Option<()> {
        Some(())
    }

    fn received(&mut self, (): &mut (), bytes: Slice<B>, reply: &mut Reply<B>) -> Stream {
        reply.copy(&bytes.to_ascii_uppercase());
        if bytes.contains(&b'.') { Stream::Close } else { Stream::Open }
    }
}

fn talk() -> Talk {
    Talk::new().say("one").hear("ONE").wait(Duration::from_secs(3)).say("two").hear("TWO")
}

#[test]
fn a_trial_is_the_same_again_from_its_seed() {
    let run = |seed| Trial::new(seed).client(7, talk()).client(8, talk()).client(7, talk()).run(Capitals);
    let first = run(1);
    assert_eq!(first.achieved, 6);
    assert!(first.virtual_ns > 3_000_000_000);
    assert_eq!(first, run(1));
    assert_ne!(first.hash, run(2).hash);
}

/// What a trial says that fails.
fn failure(talk: Talk) -> String {
    let run = move || Trial::new(3).sound().client(7, talk).run(Capitals);
    *catch_unwind(run).expect_err("it fails").downcast::<String>().expect("a text")
}

#[test]
fn a_wrong_answer_is_told_with_what_was_expected() {
    let wrong = failure(Talk::new().say("one").hear("One"));
    assert!(wrong.contains("heard `ONE`, expected `One`"), "{wrong}");
    let closed = failure(Talk::new().say("end.").hear("END.").say("more").hear("MORE"));
    assert!(closed.contains("ended the connection"), "{closed}");
    let silent = failure(Talk::new().hear("anything"));
    assert!(silent.contains("starves"), "{silent}");
}
