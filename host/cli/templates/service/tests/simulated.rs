//! The service between its clients, on a simulated network: a run is the same again from its seed.

use application_name::{Lines, PORT};
use nom_sim::{Talk, Trial};

#[test]
fn lines_are_numbered_whatever_the_network_does() {
    for seed in 0..4 {
        let talk = Talk::new().say("one\ntwo\nthr").hear("1 one\n2 two\n").say("ee\n").hear("3 three\n");
        Trial::new(seed).sound().client(PORT, talk.clone()).run(Lines::default());
    }
}

#[test]
fn a_line_without_an_end_is_cut_off() {
    let talk = Talk::new().say("x".repeat(2000)).hear("a line is too long\n");
    Trial::new(1).client(PORT, talk).run(Lines::default());
}
