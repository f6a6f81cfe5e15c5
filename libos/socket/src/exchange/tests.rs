use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// One of the steps that a connection goes through.
#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive(usize),
    Read(usize),
    Send(usize),
    Forget,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_usize..5).prop_map(Step::Arrive),
        4 => (0_usize..8).prop_map(Step::Read),
        3 => (0_usize..4).prop_map(Step::Send),
        1 => Just(Step::Forget),
    ];
    prop::collection::vec(step, 0..120)
}

/// The same rule, with each byte by itself.
#[derive(Default)]
struct Bytewise {
    unread: VecDeque<u64>,
    read: Vec<u64>,
    has_asked: bool,
}

impl Bytewise {
    fn read(&mut self, bytes: usize) -> usize {
        let count = bytes.min(self.unread.len());
        self.read.extend(self.unread.drain(..count));
        self.has_asked |= count > 0;
        count
    }

    fn sent(&mut self, bytes: usize) -> Sent {
        if bytes == 0 || !self.has_asked {
            return Sent::default();
        }
        let oldest = self.read.first().copied();
        self.read.clear();
        Sent { asked_ns: oldest, answered: bytes }
    }
}

proptest! {
    /// Nothing is counted twice, or without a byte that was read for it; no answer is older than its request.
    #[test]
    fn exchanges_are_what_byte_by_byte_they_must_be(steps in steps()) {
        let (mut exchanges, mut model) = (Exchanges::default(), Bytewise::default());
        let (mut now_ns, mut waiting, mut counted, mut read_runs) = (0, 0_usize, 0, 0);
        let mut has_read = false;
        for step in steps {
            now_ns += 1;
            match step {
                Step::Arrive(bytes) => {
                    exchanges.arrived(bytes, now_ns);
                    model.unread.extend(std::iter::repeat_n(now_ns, bytes));
                    waiting += usize::from(bytes > 0);
                }
                Step::Read(bytes) => {
                    let count = model.read(bytes);
                    exchanges.read(count);
                    read_runs += usize::from(count > 0 && !has_read);
                    has_read |= count > 0;
                }
                Step::Send(bytes) => {
                    let (said, expected) = (exchanges.sent(bytes), model.sent(bytes));
                    prop_assert_eq!(said.answered, expected.answered);
                    prop_assert_eq!(said.asked_ns.is_some(), expected.asked_ns.is_some());
                    if let (Some(said_ns), Some(oldest_ns)) = (said.asked_ns, expected.asked_ns) {
                        prop_assert!(said_ns <= oldest_ns, "it seems to be younger than it is");
                        prop_assert!(waiting > ARRIVALS_MAX || said_ns == oldest_ns);
                        counted += 1;
                    }
                    has_read &= bytes == 0;
                }
                Step::Forget => {
                    exchanges.forget_unread();
                    model.unread.clear();
                }
            }
            prop_assert!(exchanges.unread.len() <= ARRIVALS_MAX);
            prop_assert!(exchanges.read <= exchanges.received);
            prop_assert!(counted <= read_runs, "{} answers to {} requests", counted, read_runs);
        }
    }
}

#[test]
fn what_came_in_pieces_is_one_request_as_old_as_its_first() {
    let mut exchanges = Exchanges::default();
    exchanges.arrived(3, 10);
    exchanges.read(3);
    exchanges.arrived(3, 20);
    exchanges.read(3);
    assert_eq!(exchanges.sent(5), Sent { asked_ns: Some(10), answered: 5 });
    assert_eq!(exchanges.sent(5), Sent { asked_ns: None, answered: 5 }, "the answer goes on");
}

#[test]
fn what_is_unread_is_not_answered_yet() {
    let mut exchanges = Exchanges::default();
    exchanges.arrived(4, 10);
    exchanges.read(4);
    exchanges.arrived(4, 20);
    assert_eq!(exchanges.sent(1).asked_ns, Some(10), "of the second the program knows nothing");
    assert_eq!(exchanges.sent(1).asked_ns, None);
    exchanges.read(4);
    assert_eq!(exchanges.sent(1).asked_ns, Some(20));
}

#[test]
fn of_a_piece_that_is_read_by_and_by_each_part_is_as_old_as_the_piece() {
    let mut exchanges = Exchanges::default();
    exchanges.arrived(4, 10);
    exchanges.read(2);
    assert_eq!(exchanges.sent(1).asked_ns, Some(10));
    exchanges.read(2);
    assert_eq!(exchanges.sent(1).asked_ns, Some(10));
}

#[test]
fn a_greeting_answers_nothing_and_a_push_goes_on_with_an_answer() {
    let mut exchanges = Exchanges::default();
    assert_eq!(exchanges.sent(20), Sent::default());
    exchanges.arrived(1, 10);
    assert_eq!(exchanges.sent(20), Sent::default(), "nobody has read it");
    exchanges.read(1);
    assert_eq!(exchanges.sent(0), Sent::default(), "nothing was sent");
    assert_eq!(exchanges.sent(2), Sent { asked_ns: Some(10), answered: 2 });
    assert_eq!(exchanges.sent(9), Sent { asked_ns: None, answered: 9 });
}

#[test]
fn what_is_thrown_away_is_not_asked() {
    let mut exchanges = Exchanges::default();
    exchanges.arrived(4, 10);
    exchanges.read(1);
    exchanges.forget_unread();
    assert_eq!(exchanges.sent(1).asked_ns, Some(10), "a part was read");
    exchanges.arrived(4, 20);
    exchanges.forget_unread();
    assert_eq!(exchanges.sent(1).asked_ns, None);
    exchanges.arrived(4, 30);
    exchanges.read(4);
    assert_eq!(exchanges.sent(1).asked_ns, Some(30));
}

#[test]
fn who_asks_and_asks_does_not_have_us_remember_without_end() {
    let mut exchanges = Exchanges::default();
    (0..1000).for_each(|at_ns| exchanges.arrived(1, at_ns));
    assert_eq!(exchanges.unread.len(), ARRIVALS_MAX);
    exchanges.read(900);
    assert_eq!(exchanges.sent(1).asked_ns, Some(0));
    exchanges.read(100);
    assert_eq!(exchanges.sent(1).asked_ns, Some(ARRIVALS_MAX as u64 - 1), "with the last that was noted");
}
