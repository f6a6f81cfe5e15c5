use super::*;
use crate::frame::protocol;
use proptest::prelude::*;

const NOW: Instant = Instant::from_micros(5);

fn fragment(id: u32, offset: usize, is_last: bool) -> Fragment {
    let (from, to) = ([10, 0, 0, 2].into(), [10, 0, 0, 1].into());
    let packet = Packet { from, to, protocol: protocol::UDP, start: 34, len: 0, hops: 64 };
    Fragment { packet, id, offset, is_last }
}

/// A store, and what it counted.
#[derive(Default)]
struct Store(Fragments, Counters);

impl Store {
    fn take(&mut self, fragment: &Fragment, bytes: &[u8]) -> Option<Vec<u8>> {
        match self.0.take(NOW, fragment, bytes.to_vec(), b"quote", &mut self.1) {
            Ok(whole) => whole.map(|whole| whole.payload),
            Err(counter) => {
                *counter(&mut self.1) += 1;
                None
            }
        }
    }

    fn dropped(&self) -> u64 {
        self.1.dropped_fragment
    }
}

#[test]
fn fragments_make_a_packet_in_any_order() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1]] {
        let mut store = Store::default();
        let pieces = [(0, &b"abcdefgh"[..]), (8, b"ijklmnop"), (16, b"qr")];
        let mut whole = order.map(|index| {
            let (offset, bytes) = pieces[index];
            store.take(&fragment(7, offset, index == 2), bytes)
        });
        assert_eq!(whole[2].take().as_deref(), Some(&b"abcdefghijklmnopqr"[..]), "{order:?}");
        assert_eq!((store.0.bytes(), store.0.due(), store.dropped()), (0, None, 0));
    }
}

#[test]
fn packets_are_told_apart() {
    let mut store = Store::default();
    let of_other = Fragment {
        packet: Packet { from: [10, 0, 0, 3].into(), ..fragment(1, 0, false).packet },
        ..fragment(1, 0, false)
    };
    let of_icmp = Fragment {
        packet: Packet { protocol: protocol::ICMP, ..fragment(1, 0, false).packet },
        ..fragment(1, 0, false)
    };
    for other in [of_other, of_icmp, fragment(2, 0, false)] {
        assert_eq!(store.take(&other, b"xxxxxxxx"), None);
    }
    assert_eq!(store.take(&fragment(1, 8, true), b"i"), None, "none of these is its begin");
    assert_eq!(store.take(&fragment(1, 0, false), b"abcdefgh").as_deref(), Some(&b"abcdefghi"[..]));
}

#[test]
fn what_comes_twice_is_dropped_alone() {
    let mut store = Store::default();
    store.take(&fragment(1, 0, false), b"abcdefgh");
    store.take(&fragment(1, 0, false), b"ABCDEFGH");
    assert_eq!(store.dropped(), 1);
    assert_eq!(store.take(&fragment(1, 8, true), b"i").as_deref(), Some(&b"abcdefghi"[..]));
}

/// RFC 5722 section 3, and Linux's "teardrop" of 1997.
#[test]
fn what_overlaps_takes_its_packet_along() {
    let overlapping = [(8, 24, false), (0, 16, false), (24, 8, true), (4, 2, true)];
    for (offset, len, is_last) in overlapping {
        let mut store = Store::default();
        store.take(&fragment(1, 0, false), &[0; 8]);
        store.take(&fragment(1, 16, true), &[0; 17]);
        store.take(&fragment(1, offset, is_last), &vec![1; len]);
        assert_eq!(store.take(&fragment(1, 8, false), &[0; 8]), None, "{offset}: it is never whole");
        assert_eq!((store.dropped(), store.0.bytes()), (4, 0), "{offset}");
    }
}

#[test]
fn impossible_fragments_are_malformed() {
    let mut store = Store::default();
    for (offset, len, is_last) in [(0, 7, false), (8, 0, true), (65_512, 8, true), (65_528, 65_528, true)] {
        store.take(&fragment(1, offset, is_last), &vec![0; len]);
    }
    assert_eq!((store.1.dropped_malformed, store.0.due()), (4, None));
}

#[test]
fn one_that_is_all_has_to_do_with_no_other() {
    let mut store = Store::default();
    store.take(&fragment(1, 8, true), b"i");
    assert_eq!(store.take(&fragment(1, 0, true), b"alone").as_deref(), Some(&b"alone"[..]));
    assert_eq!(store.take(&fragment(1, 0, false), b"abcdefgh").as_deref(), Some(&b"abcdefghi"[..]));
}

#[test]
fn who_waits_too_long_is_given_up_with_its_first_fragment_quoted() {
    let mut store = Store::default();
    store.take(&fragment(1, 0, false), &[0; 8]);
    store.take(&fragment(2, 8, false), &[0; 8]);
    assert_eq!(store.0.due(), Some(NOW + LIFETIME));
    assert_eq!(store.0.expire(NOW), None);
    let expired = store.0.expire(NOW + LIFETIME).expect("the first");
    assert_eq!((&expired.quote[..], expired.fragments), (&b"quote"[..], 1));
    assert!(store.0.expire(NOW + LIFETIME).expect("the second").quote.is_empty(), "its begin never came");
    assert_eq!((store.0.expire(NOW + LIFETIME), store.0.bytes()), (None, 0));
}

#[test]
fn packets_that_nobody_finishes_do_not_keep_others_out() {
    let mut store = Store::default();
    for id in 0..10_000 {
        store.take(&fragment(id, 0, false), &[0; 1480]);
        assert!(store.0.bytes() <= BYTES_MAX && store.0.waiting.len() <= PACKETS_MAX);
    }
    assert_eq!(store.take(&fragment(9_999, 1480, true), b"end").map(|packet| packet.len()), Some(1483));
    assert_eq!(store.dropped(), 10_000 - PACKETS_MAX as u64);
}

/// As many packets as may wait, each as long as one can be: the oldest go, and only as many as must.
#[test]
fn long_packets_that_nobody_finishes_are_bounded_in_bytes() {
    const STEP: usize = 1480;
    let (mut store, mut fullest) = (Store::default(), 0);
    for id in 0..PACKETS_MAX as u32 {
        for index in 0..PACKET_MAX / STEP {
            store.take(&fragment(id, index * STEP, false), &[0; STEP]);
            assert!(store.0.bytes() <= BYTES_MAX, "packet {id}: {} bytes", store.0.bytes());
            fullest = fullest.max(store.0.bytes());
        }
    }
    assert!(fullest > BYTES_MAX - STEP, "what there is room for is kept: {fullest} bytes");
    let kept = store.0.waiting.iter().map(|packet| packet.pieces.len() as u64).sum::<u64>();
    let sent = (PACKETS_MAX * (PACKET_MAX / STEP)) as u64;
    assert_eq!(store.dropped(), sent - kept, "each that went is counted");
    let end = fragment(PACKETS_MAX as u32 - 1, PACKET_MAX / STEP * STEP, true);
    assert!(store.take(&end, b"end").is_some(), "the youngest is still taken whole");
}

#[test]
fn crumbs_are_refused() {
    let mut store = Store::default();
    for index in 0..=PIECES_MAX {
        store.take(&fragment(1, 16 * index, false), &[0; 8]);
    }
    assert_eq!((store.dropped(), store.0.bytes()), (PIECES_MAX as u64 + 1, 0));
}

proptest! {
    /// However a payload is cut, shuffled and repeated, it comes out as it was, once.
    #[test]
    fn what_was_cut_is_whole_again(
        payload in proptest::collection::vec(any::<u8>(), 9..1000),
        step in 1..40usize,
        order in any::<u64>(),
    ) {
        let step = 8 * step;
        let starts: Vec<usize> = (0..payload.len()).step_by(step).collect();
        prop_assume!(starts.len() > 1);
        let place = |index: usize| order.rotate_left(index as u32 * 7) ^ index as u64;
        let mut order: Vec<_> = (0..starts.len()).map(|index| (place(index), index)).collect();
        order.sort_unstable();
        let mut store = Store::default();
        let mut whole = None;
        for (_, index) in order {
            let start = starts[index];
            let end = payload.len().min(start + step);
            let fragment = fragment(1, start, end == payload.len());
            prop_assert_eq!(&whole, &None, "too early");
            whole = store.take(&fragment, &payload[start..end]);
            if whole.is_none() {
                store.take(&fragment, &payload[start..end]);
            }
        }
        prop_assert_eq!(whole, Some(payload));
        prop_assert_eq!(store.0.bytes(), 0);
    }

    /// Whatever comes, memory is bounded and its account is right, and what is made is no longer than a
    /// packet.
    #[test]
    fn no_fragments_break_the_account(
        pieces in proptest::collection::vec((0..4u32, 0..1000usize, 0..2000usize, any::<bool>()), 0..200),
    ) {
        let mut store = Store::default();
        for (id, offset, len, is_last) in pieces {
            if let Some(whole) = store.take(&fragment(id, 8 * offset, is_last), &vec![0; len]) {
                prop_assert!(whole.len() <= PACKET_MAX);
            }
            let kept: usize = store.0.waiting.iter().map(Waiting::bytes).sum();
            prop_assert_eq!(kept, store.0.bytes());
            prop_assert!(kept <= BYTES_MAX);
        }
    }
}
