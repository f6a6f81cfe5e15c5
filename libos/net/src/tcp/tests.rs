//! Each state function alone. What they do together stands in the packet scripts.

use super::congestion::Heard;
use super::connection::{Closed, Connection, Context, Effects, Origin, Settings, State, WINDOW_MAX};
use super::memory::Held;
use super::segment::{Flags, Options, Segment, Timestamps};
use super::sequence::Seq;
use crate::buffer::{Chain, Slice};
use crate::counters::Counters;
use crate::time::Instant;
use alloc::rc::Rc;
use alloc::vec;
use core::time::Duration;

type Memory = Rc<[u8]>;

const MS: Duration = Duration::from_millis(1);
const START: Instant = Instant::from_micros(1_000_000);
const ACK: Flags = Flags::ACK;

/// A connection with what it runs in. Both sides began at 0, so that 1 is the first byte.
struct Bench {
    connection: Connection<Memory>,
    settings: Settings,
    counters: Counters,
    held: Held,
    effects: Effects<Memory>,
    now: Instant,
}

impl Bench {
    fn new(change: impl FnOnce(&mut Settings)) -> Bench {
        let mut settings = Settings::default();
        change(&mut settings);
        let options = Options { mss: Some(1000), sack_permitted: true, ..Options::default() };
        let syn = Segment { flags: Flags::SYN, window: 60_000, options, ..Segment::default() };
        let origin = Origin { iss: Seq(0), stamp_offset: 0, mss: 1460, now: START };
        let mut connection = Connection::answer(&syn, origin, &settings);
        connection.state = State::Established;
        for seq in [&mut connection.send.una, &mut connection.send.next, &mut connection.send.max] {
            *seq = Seq(1);
        }
        let (counters, effects) = (Counters::default(), Effects::default());
        Bench { connection, settings, counters, held: Held::default(), effects, now: START }
    }

    fn with<T>(
        &mut self,
        f: impl FnOnce(&mut Connection<Memory>, &mut Context<'_>, &mut Effects<Memory>) -> T,
    ) -> T {
        let (counters, held) = (&mut self.counters, &mut self.held);
        let mut context = Context { now: self.now, settings: &self.settings, counters, held };
        f(&mut self.connection, &mut context, &mut self.effects)
    }

    fn accept(&mut self, segment: &mut Segment) -> bool {
        let mut payload = bytes(segment.len);
        let is_taken = self
            .with(|connection, context, effects| connection.accept(context, segment, &mut payload, effects));
        assert!(!is_taken || crate::buffer::chain_len(&payload) == segment.len as usize);
        is_taken
    }

    fn send(&mut self, len: u32) {
        let slice = bytes(len).remove(0);
        self.connection.push(slice, &self.settings, &mut self.held).expect("the connection is open");
    }

    /// Sequence number and length of everything that is to go now.
    fn emit(&mut self, large_max: u32) -> Vec<(u32, u32)> {
        let one = |connection: &mut Connection<Memory>, context: &mut Context<'_>, _: &mut _| {
            connection.emit(context, large_max)
        };
        core::iter::from_fn(|| self.with(one)).map(|(segment, _)| (segment.seq.0, segment.len)).collect()
    }

    fn acknowledge(&mut self, ack: u32, ranges: &[(u32, u32)]) -> bool {
        let mut segment =
            Segment { seq: Seq(1), ack: Seq(ack), flags: ACK, window: 60_000, ..Segment::default() };
        for (slot, &(from, to)) in segment.options.sack.iter_mut().zip(ranges) {
            *slot = Some((Seq(from), Seq(to)));
        }
        self.with(|connection, context, effects| connection.acknowledge(context, &segment, effects))
    }
}

fn bytes(len: u32) -> Chain<Memory> {
    Chain::from_iter([Slice::new(vec![0; len as usize].into())])
}

fn data(seq: u32, len: u32) -> Segment {
    Segment { seq: Seq(seq), ack: Seq(1), flags: ACK, window: 60_000, len, ..Segment::default() }
}

#[test]
fn accept_cuts_to_the_window() {
    let mut bench = Bench::new(|_| {});
    bench.connection.receive.next = Seq(101);
    bench.connection.receive.edge = Seq(201);
    for (seq, len, expected) in [
        (101, 50, Some((101, 50))),
        (51, 100, Some((101, 50))),
        (151, 100, Some((151, 50))),
        (1, 1000, Some((101, 100))),
        (1, 100, None),
        (201, 1, None),
        (200, 1, Some((200, 1))),
        (101, 0, Some((101, 0))),
        (201, 0, None),
    ] {
        let mut segment = data(seq, len);
        let found = bench.accept(&mut segment).then_some((segment.seq.0, segment.len));
        assert_eq!(found, expected, "{seq} {len}");
    }
    assert_eq!(bench.counters.dropped_tcp_window, 3);
}

#[test]
fn a_fin_beyond_the_window_is_cut_off() {
    let mut bench = Bench::new(|_| {});
    bench.connection.receive.edge = Seq(51);
    let mut segment = Segment { flags: ACK | Flags::FIN, ..data(1, 100) };
    assert!(bench.accept(&mut segment));
    assert_eq!((segment.len, segment.flags), (50, ACK));
}

#[test]
fn a_closed_window_takes_acknowledgements_only() {
    let mut bench = Bench::new(|_| {});
    bench.connection.receive.edge = Seq(1);
    let mut probe = data(1, 1);
    assert!(bench.accept(&mut data(1, 0)) && bench.accept(&mut probe) && !bench.accept(&mut data(2, 1)));
    assert_eq!(probe.len, 0, "the byte is not taken, what it acknowledges is");
    assert!(bench.connection.receive.is_acknowledgement_due, "the peer learns that it is closed");
}

#[test]
fn old_timestamps_are_told_from_wrapped_ones() {
    let mut bench = Bench::new(|_| {});
    let stamped = |value| {
        let timestamps = Some(Timestamps { value, echo: 0 });
        Segment { options: Options { timestamps, ..Options::default() }, ..data(1, 0) }
    };
    bench.connection.negotiate(&stamped(u32::MAX).options, START);
    assert!(!bench.accept(&mut stamped(u32::MAX - 1)));
    assert!(bench.accept(&mut stamped(3)), "the clock went round");
    assert!(!bench.accept(&mut stamped(2)));
    bench.now = START + Duration::from_secs(25 * 24 * 3600);
    assert!(bench.accept(&mut stamped(2)), "nothing is known after so long");
}

#[test]
fn acknowledge_forgets_what_arrived_and_grows_the_window() {
    let mut bench = Bench::new(|_| {});
    let window = bench.connection.cubic.window();
    bench.send(9000);
    assert_eq!(bench.emit(0).len(), 9);
    bench.now = START + 100 * MS;
    assert!(bench.acknowledge(3001, &[]));
    let connection = &bench.connection;
    assert_eq!((connection.send.una, connection.send.queue.len()), (Seq(3001), 6000));
    assert_eq!(connection.cubic.window(), window + 3000);
    assert_eq!(connection.deadlines.retransmit, Some(bench.now + connection.rtt.timeout()));
    assert!(!bench.acknowledge(9002, &[]), "never sent");
    assert!(bench.acknowledge(2001, &[]), "late, and no harm");
    assert!(bench.acknowledge(9001, &[]));
    assert_eq!(bench.connection.deadlines.retransmit, None);
}

#[test]
fn a_round_trip_is_never_measured_by_what_was_sent_twice() {
    let mut bench = Bench::new(|_| {});
    bench.send(1000);
    bench.emit(0);
    bench.now = bench.connection.deadlines.retransmit.unwrap();
    bench.with(|connection, context, effects| connection.expire(context, effects));
    assert_eq!(bench.emit(0), [(1, 1000)]);
    bench.now = bench.now + MS;
    bench.acknowledge(1001, &[]);
    assert_eq!(bench.connection.rtt.smoothed(), None);
}

#[test]
fn emit_makes_large_segments_of_whole_pieces_where_the_device_cuts() {
    let mut bench = Bench::new(|_| {});
    bench.send(9500);
    assert_eq!(bench.emit(4999), [(1, 4000), (4001, 4000), (8001, 1500)]);
}

#[test]
fn emit_respects_the_smaller_of_both_windows() {
    let mut bench = Bench::new(|_| {});
    bench.connection.send.window = 2500;
    bench.connection.send.window_max = 60_000;
    bench.send(9000);
    assert_eq!(bench.emit(0), [(1, 1000), (1001, 1000)], "500 more would be silly");
    bench.connection.send.window = 60_000;
    assert_eq!(bench.emit(0).len(), 7);
    bench.send(20_000);
    assert_eq!(bench.emit(0), [(9001, 1000)], "ten segments are in flight");
}

#[test]
fn recovery_sends_what_is_lost_as_others_arrive() {
    let mut bench = Bench::new(|_| {});
    bench.send(10_000);
    assert_eq!(bench.emit(0).len(), 10);
    bench.now = START + 100 * MS;
    bench.acknowledge(1, &[(2001, 4001)]);
    assert_eq!(bench.emit(0), [], "two segments may have overtaken");
    bench.acknowledge(1, &[(2001, 5001)]);
    assert_eq!(bench.emit(0), [(1, 1000), (1001, 1000)], "three have not: both are lost");
    assert_eq!(bench.connection.cubic.window(), 7000);
    bench.acknowledge(1, &[(2001, 8001)]);
    assert_eq!(bench.emit(0), [], "each is sent again once");
    bench.send(10_000);
    assert_eq!(bench.emit(0).len(), 3, "new data goes as far as the smaller window has room");
    bench.acknowledge(2001, &[(2001, 8001)]);
    bench.acknowledge(10_001, &[]);
    assert!(bench.connection.rare.point.is_none());
    assert_eq!((bench.counters.fast_retransmits, bench.counters.retransmissions), (1, 2));
}

#[test]
fn deliver_keeps_no_more_than_all_connections_may() {
    let mut bench = Bench::new(|settings| settings.kept_max = 41);
    let deliver = |bench: &mut Bench, seq| {
        bench.with(|connection, context, effects| {
            connection.deliver(context, &data(seq, 10), &mut bytes(10), effects)
        });
    };
    for seq in [101, 201, 301] {
        deliver(&mut bench, seq);
    }
    assert_eq!((bench.held.kept, bench.counters.dropped_tcp_reassembly), (20, 1));
    bench.connection.receive.next = Seq(91);
    deliver(&mut bench, 91);
    assert_eq!((bench.held.kept, bench.connection.receive.next, bench.effects.data.len()), (10, Seq(111), 2));
}

#[test]
fn all_send_queues_hold_no_more_than_they_may() {
    let mut bench = Bench::new(|settings| settings.queued_max = 400_000);
    let limit = |bench: &Bench| bench.connection.send_limit(&bench.settings, &bench.held);
    assert_eq!(limit(&bench), 200_000, "a lone connection may have half");
    bench.held.queued = 300_000;
    assert_eq!(limit(&bench), 50_000);
    bench.held.queued = 500_000;
    assert_eq!(limit(&bench), 1, "and who has nothing queued may send something in any case");
    bench.send(10);
    assert_eq!((bench.held.queued, bench.connection.send.queue.len()), (500_010, 10));
    bench.emit(0);
    bench.acknowledge(11, &[]);
    assert_eq!(bench.held.queued, 500_000);
}

#[test]
fn a_send_queue_grows_with_the_congestion_window() {
    let mut bench = Bench::new(|_| {});
    bench.connection.send.window_max = 1 << 30;
    let limit = |bench: &Bench| bench.connection.send_limit(&bench.settings, &bench.held);
    assert_eq!(limit(&bench), 256 << 10);
    let heard = |count| Heard { count, ack: Seq(1), max: Seq(2), smoothed: MS, rtt: MS };
    bench.connection.cubic.acknowledged(START, &heard(1_000_000));
    assert_eq!(limit(&bench), 3 * 1_010_000);
    bench.connection.cubic.acknowledged(START, &heard(100_000_000));
    assert_eq!(limit(&bench), 16 << 20);
    bench.connection.send.window_max = 200_000;
    assert_eq!(limit(&bench), 600_000, "no more can fly than the peer takes");
}

#[test]
fn a_window_grows_no_further_than_it_may() {
    for (most, expected) in [(300_000, 300_000), (WINDOW_MAX, 16_776_960)] {
        let mut bench = Bench::new(|settings| settings.receive_window_max = most);
        bench.connection.rtt.sample(100 * MS);
        bench.connection.receive.scale = 8;
        for round in 0..3 {
            let (len, seq) = (6_000_000, bench.connection.receive.next.0);
            bench.now = START + round * 100 * MS;
            bench.connection.receive.edge = Seq(seq) + len;
            bench.with(|connection, context, effects| {
                connection.deliver(context, &data(seq, len), &mut bytes(len), effects)
            });
        }
        assert_eq!(bench.connection.receive.tuning.grown, expected);
        assert_eq!(bench.connection.receive.window, expected);
    }
}

#[test]
fn a_window_grows_by_what_is_read_and_shrinks_by_what_is_not() {
    let mut bench = Bench::new(|settings| settings.kept_max = 8_000_000);
    bench.connection.rtt.sample(100 * MS);
    bench.connection.receive.scale = 8;
    let take = |bench: &mut Bench, len| {
        let seq = bench.connection.receive.next.0;
        bench.connection.receive.edge = Seq(seq) + len;
        bench.with(|connection, context, effects| {
            connection.deliver(context, &data(seq, len), &mut bytes(len), effects)
        });
        bench.connection.receive.window
    };
    let hold = |bench: &mut Bench, len| bench.with(|connection, context, _| connection.hold(len, context));
    take(&mut bench, 1000);
    assert_eq!(take(&mut bench, 200_000), 256 << 10, "the round is not over");
    bench.now = START + 100 * MS;
    assert_eq!(take(&mut bench, 1000), 804_000);
    // What comes and is not read makes nothing grow, and takes away what may come.
    hold(&mut bench, 500_000);
    assert_eq!(bench.connection.receive.window, 304_000);
    take(&mut bench, 500_000);
    bench.now = START + 200 * MS;
    assert_eq!(take(&mut bench, 1000), 304_000);
    hold(&mut bench, 0);
    assert_eq!(bench.connection.receive.window, 804_000);
    bench.held.kept = 7_000_000;
    bench.with(|connection, context, _| connection.refresh_window(context));
    assert_eq!(bench.connection.receive.window, 500_000, "half of what is free");
    bench.held.kept = 8_000_000;
    bench.with(|connection, context, _| connection.refresh_window(context));
    assert_eq!(bench.connection.receive.window, 2 * 1460, "nobody is locked out");
    assert_eq!(bench.counters.receive_windows_grown, 1);
}

#[test]
fn expire_does_only_what_is_due() {
    let mut bench = Bench::new(|_| {});
    bench.connection.deadlines.acknowledge = Some(START + MS);
    bench.connection.rare.make().linger = Some(START + 2 * MS);
    bench.with(|connection, context, effects| connection.expire(context, effects));
    assert!(!bench.connection.receive.is_acknowledgement_due);
    bench.now = START + MS;
    bench.with(|connection, context, effects| connection.expire(context, effects));
    assert!(bench.connection.receive.is_acknowledgement_due && bench.effects.closed.is_none());
    bench.now = START + 2 * MS;
    bench.with(|connection, context, effects| connection.expire(context, effects));
    assert_eq!((bench.effects.closed, bench.connection.first_deadline()), (Some(Closed::TimedOut), None));
}

#[test]
fn only_an_attempt_ends_because_a_router_says_so() {
    let mut bench = Bench::new(|_| {});
    bench.send(3000);
    bench.emit(0);
    bench.with(|connection, _, effects| connection.unreachable(Seq(1), effects));
    assert_eq!(bench.effects.closed, None);
    bench.with(|connection, context, _| connection.too_big(context, Seq(5000), 500));
    assert_eq!(bench.emit(0), [], "that was never sent");
    bench.with(|connection, context, _| connection.too_big(context, Seq(1001), 500));
    assert_eq!(bench.emit(0).first(), Some(&(1, 500)));
    let origin = Origin { iss: Seq(0), stamp_offset: 0, mss: 1460, now: START };
    bench.connection = Connection::ask(origin, &bench.settings);
    bench.emit(0);
    bench.with(|connection, _, effects| connection.unreachable(Seq(0), effects));
    assert_eq!(bench.effects.closed, Some(Closed::Unreachable));
}

#[test]
fn nothing_is_taken_for_sending_after_close() {
    let mut bench = Bench::new(|_| {});
    bench.connection.close(bench.now);
    let refused = bench.connection.push(bytes(1).remove(0), &bench.settings, &mut bench.held);
    assert_eq!(refused, Err(super::close::SendError::Closed));
    assert_eq!(bench.connection.state, State::FinWait1);
}

#[test]
fn a_hundred_thousand_connections_fit_into_42_mib() {
    let each = size_of::<Connection<Memory>>();
    assert!(each <= 440, "{each} bytes");
}
