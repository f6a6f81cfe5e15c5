//! The driver against a device.

mod broken;
mod mmio;
mod rss;

use super::*;
use crate::memory::DmaBuffer;
use nom_port::buffer::{Buffers as _, Chain, Slice};
use nom_port::nic::{
    Checksum, HEAD_MAX, Head, Nic, Outgoing, PartialChecksum, RingFull, Segmentation, gather,
};
use nom_port::world::Clock;
use nom_virtio_fake::{ALL_FEATURES, FakeFunction, FakeMemory, FakeOptions, FakeRegisters};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// A clock that goes on by one at each look.
#[derive(Clone, Debug, Default)]
struct Ticks(Rc<Cell<u64>>);

impl Clock for Ticks {
    fn now_ns(&self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }
}

/// Frames of a long test: enough to go round all rings several times.
const ROUNDS: usize = if cfg!(miri) { 70 } else { 500 };

type Pair = QueuePair<FakeRegisters, FakeMemory, Ticks>;

struct Bench {
    function: FakeFunction,
    memory: FakeMemory,
    device: NetDevice<FakeRegisters>,
    pair: Pair,
}

fn bench_with(fake: FakeOptions, options: Options, memory_bytes: usize) -> Result<Bench> {
    let memory = FakeMemory::new(memory_bytes);
    let function = FakeFunction::new(fake, memory.clone());
    let mut opened = open(function.clone(), &memory, &options)?;
    let pair = opened.pairs.remove(0).start(Ticks::default(), 5)?;
    Ok(Bench { function, memory, device: opened.device, pair })
}

fn bench(features: u64) -> Bench {
    bench_with(FakeOptions { features, ..Default::default() }, Options::default(), 16 << 20).unwrap()
}

/// Devices with split and packed rings, with all features and with none.
fn benches() -> impl Iterator<Item = Bench> {
    let packed = transport::feature::PACKED;
    [
        ALL_FEATURES,
        ALL_FEATURES & !packed,
        transport::feature::VERSION_1,
        transport::feature::VERSION_1 | packed,
    ]
    .into_iter()
    .map(bench)
}

/// A frame of `bytes`, told from others by `seed`.
fn frame(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 7 + seed * 13 + index / 256) as u8).collect()
}

fn outgoing(pair: &mut Pair, head: &[u8], payload: &[&[u8]]) -> Outgoing<DmaBuffer> {
    let mut made = Head::zeroed(head.len());
    made.copy_from_slice(head);
    let payload = payload.iter().map(|part| pair.buffer(part).expect("memory")).collect();
    Outgoing { head: made, payload, checksum: None, segmentation: None, tag: None }
}

#[test]
fn frames_are_received() {
    for Bench { function, mut pair, .. } in benches() {
        assert!(pair.receive().is_none());
        for seed in 0..ROUNDS {
            let bytes = frame(seed, 14 + seed * 3);
            assert!(function.deliver(0, [0; 12], &bytes));
            let received = pair.receive().unwrap();
            assert_eq!((gather(&received.frame), received.frame.len()), (bytes, 1));
            assert_eq!(received.checksum, Checksum::Unknown);
            assert!(pair.receive().is_none());
        }
        let counters = pair.counters();
        assert_eq!((counters.received_frames, counters.received_batches), (ROUNDS as u64, ROUNDS as u64));
        assert!(counters.refills <= 1 + ROUNDS as u64 / 8, "{counters:?}");
    }
}

#[test]
fn frames_of_one_batch_are_stamped_together() {
    for Bench { function, mut pair, .. } in benches() {
        (0..5).for_each(|seed| assert!(function.deliver(0, [0; 12], &frame(seed, 60))));
        let stamps: Vec<u64> = std::iter::from_fn(|| pair.receive()).map(|frame| frame.at_ns).collect();
        assert_eq!(stamps, [1; 5]);
        function.deliver(0, [0; 12], &frame(9, 60));
        assert_eq!(pair.receive().unwrap().at_ns, 2);
    }
}

#[test]
fn large_frames_fill_several_buffers() {
    for features in [ALL_FEATURES, ALL_FEATURES & !transport::feature::PACKED] {
        let Bench { function, mut pair, .. } = bench(features);
        for bytes in [2036, 2037, 4096, 65535] {
            assert!(function.deliver(0, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &frame(bytes, bytes)));
            let received = pair.receive().unwrap();
            assert_eq!(received.frame.len(), (bytes + 12usize).div_ceil(2048));
            assert_eq!(gather(&received.frame), frame(bytes, bytes));
            assert_eq!(received.checksum, Checksum::Good);
        }
        assert_eq!(pair.counters().received_bytes, 2036 + 2037 + 4096 + 65535);
    }
}

#[test]
fn kept_buffers_stay_as_they_are() {
    for Bench { function, mut pair, .. } in benches() {
        let mut kept: Vec<(Vec<u8>, Slice<DmaBuffer>)> = Vec::new();
        for seed in 0..ROUNDS {
            let bytes = frame(seed, 200);
            assert!(function.deliver(0, [0; 12], &bytes), "frame {seed} finds no buffer");
            let received = pair.receive().unwrap();
            kept.push((bytes[50..100].to_vec(), received.frame[0].part(50..100)));
        }
        assert!(kept.iter().all(|(bytes, slice)| **slice == bytes[..]));
        assert!(kept.iter().all(|(_, slice)| slice.buffer().handles() == 1));
        assert_eq!(pair.counters().starved, 0);
    }
}

#[test]
fn a_pair_without_memory_starves_and_recovers() {
    let options = Options { memory_bytes: 384 << 10, receive_buffers: 32, ..Options::default() };
    let Bench { function, mut pair, .. } = bench_with(FakeOptions::default(), options, 4 << 20).unwrap();
    let mut kept = Vec::new();
    while function.deliver(0, [0; 12], &frame(1, 100)) {
        kept.extend(pair.receive());
        assert!(kept.len() < 1000, "the limit holds");
    }
    assert!(pair.receive().is_none());
    assert!(pair.counters().starved > 0 && kept.len() >= 32, "{} kept", kept.len());
    assert!(pair.buffer(&[0; 100_000]).is_none());
    drop(kept);
    assert!(pair.receive().is_none());
    assert!(function.deliver(0, [0; 12], &frame(2, 100)));
    assert_eq!(gather(&pair.receive().unwrap().frame), frame(2, 100));
}

/// A store that keeps what it is sent unless buffers are scarce, and copies what it answers; `batch` requests
/// are received before the first of them is handled, and every other is answered at length. Requests without
/// answer are returned.
fn keeps_and_answers(memory_bytes: usize, world_bytes: usize, batch: usize) -> usize {
    let options = Options { memory_bytes, receive_buffers: 32, queue_size: 64, ..Options::default() };
    let Bench { function, mut pair, .. } = bench_with(FakeOptions::default(), options, world_bytes).unwrap();
    let (mut kept, mut answers, mut unanswered) = (Vec::new(), Vec::new(), 0);
    for round in 0..4 * ROUNDS {
        for seed in 0..batch {
            assert!(
                function.deliver(0, [0; 12], &frame(seed, 1100)),
                "round {round}: nothing to receive into"
            );
        }
        let requests: Vec<_> = std::iter::from_fn(|| pair.receive()).collect();
        assert_eq!(requests.len(), batch);
        answers.clear();
        for (number, request) in requests.into_iter().enumerate() {
            match request.frame.into_iter().next().expect("one slice") {
                _ if (round + number) % 2 == 0 => answers.push(pair.buffer(&[7; 1100])),
                slice if slice.is_scarce() => {}
                slice => kept.push(slice),
            }
        }
        unanswered += answers.iter().filter(|answer| answer.is_none()).count();
        assert!(pair.receive().is_none());
    }
    assert!(pair.counters().starved > 0, "{} kept, and still there is memory", kept.len());
    unanswered
}

#[test]
fn nobody_sleeps_while_there_is_nothing_to_receive_into() {
    let options = Options { memory_bytes: 256 << 10, receive_buffers: 32, ..Options::default() };
    let Bench { function, mut pair, .. } = bench_with(FakeOptions::default(), options, 4 << 20).unwrap();
    assert!(pair.arm());
    pair.disarm();
    let mut kept = Vec::new();
    while function.deliver(0, [0; 12], &frame(1, 100)) {
        kept.extend(pair.receive());
    }
    kept.extend(std::iter::from_fn(|| pair.receive()));
    assert!(!pair.arm(), "a frame would not be said");
    // They come back from elsewhere, without a poll.
    kept.clear();
    assert!(pair.arm());
    assert!(function.deliver(0, [0; 12], &frame(1, 100)), "there is something again");
}

#[test]
fn answers_leave_the_device_something_to_receive_into() {
    for batch in [1, 4, 12] {
        assert_eq!(keeps_and_answers(256 << 10, 4 << 20, batch), 0, "batches of {batch}");
    }
}

#[test]
fn a_world_without_memory_is_still_heard() {
    for batch in [1, 4, 12] {
        keeps_and_answers(4 << 20, 256 << 10, batch);
    }
}

#[test]
fn frames_are_sent() {
    for Bench { function, mut pair, .. } in benches() {
        let parts: Vec<Vec<u8>> = (0..80).map(|seed| frame(seed, 1 + seed * 10)).collect();
        for count in [0, 1, 2, 3, 20, 80] {
            let payload: Vec<&[u8]> = parts[..count].iter().map(|part| &part[..]).collect();
            let mut made = outgoing(&mut pair, &frame(count, 54), &payload);
            assert_eq!(pair.transmit(&mut made).map_err(|_| "full"), Ok(()));
            pair.kick();
            let expected = [vec![0; 12], frame(count, 54), payload.concat()].concat();
            assert_eq!(function.sent(0), [expected], "{count} slices");
        }
        let counters = pair.counters();
        assert_eq!((counters.sent_frames, counters.kicks + counters.kicks_suppressed), (6, 6));
    }
}

#[test]
fn what_is_short_is_sent_behind_the_headers() {
    for Bench { function, mut pair, .. } in benches() {
        for len in [0, 1, 30, 100, HEAD_MAX - 54] {
            let mut made = outgoing(&mut pair, &frame(1, 54), &[]);
            assert!(pair.transmit_behind(&mut made, &frame(2, len)).is_ok());
            pair.kick();
            let expected = [vec![0; 12], frame(1, 54), frame(2, len)].concat();
            assert_eq!(function.sent(0), [expected], "{len} bytes");
        }
    }
}

#[test]
fn payload_is_not_copied_and_is_let_go_when_sent() {
    for Bench { function, mut pair, .. } in benches() {
        let mut made = outgoing(&mut pair, &frame(1, 54), &[&frame(2, 3000)]);
        let kept = made.payload[0].part(1000..2000);
        let bus = kept.buffer().bus();
        pair.transmit(&mut made).unwrap();
        pair.kick();
        let (lent, _) = function.take_sent(0).unwrap();
        assert_eq!((lent.pieces[1].bus, lent.pieces[1].bytes), (bus, 3000));
        assert_eq!(kept.buffer().handles(), 2, "the device reads it");
        function.put(1, &lent, 0);
        pair.room();
        assert_eq!(kept.buffer().handles(), 1, "the device has read it");
    }
}

#[test]
fn received_memory_is_sent_without_a_copy() {
    let Bench { function, mut pair, .. } = bench(ALL_FEATURES);
    function.deliver(0, [0; 12], &frame(1, 200));
    let received = pair.receive().unwrap();
    let mut made = outgoing(&mut pair, &frame(3, 42), &[]);
    made.payload = Chain::from_iter([received.frame[0].part(42..200)]);
    drop(received);
    pair.transmit(&mut made).unwrap();
    pair.kick();
    assert_eq!(function.sent(0)[0][12..], [frame(3, 42), frame(1, 200)[42..].to_vec()].concat());
}

#[test]
fn offloads_are_in_the_header() {
    let Bench { function, mut pair, .. } = bench(ALL_FEATURES);
    let offloads = pair.properties().offloads;
    assert_eq!(offloads, Offloads { checksum: true, segment_tcp4: true, segment_tcp6: true });
    let checksum = Some(PartialChecksum { start: 34, offset: 16 });
    for (is_ipv6, kind) in [(false, 1), (true, 4)] {
        let mut made = outgoing(&mut pair, &frame(1, 54), &[&frame(2, 9000)]);
        made.checksum = checksum;
        made.segmentation = Some(Segmentation { payload_max: 1448, is_ipv6 });
        pair.transmit(&mut made).unwrap();
        pair.kick();
        assert_eq!(function.sent(0)[0][..12], [1, kind, 54, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0]);
    }
    let mut made = outgoing(&mut pair, &frame(1, 54), &[]);
    made.checksum = checksum;
    pair.transmit(&mut made).unwrap();
    pair.kick();
    assert_eq!(function.sent(0)[0][..12], [1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0]);
}

#[test]
fn what_no_device_can_send_is_refused_and_counted() {
    let Bench { function, mut pair, .. } = bench(transport::feature::VERSION_1);
    assert_eq!(pair.properties().offloads, Offloads::default());
    let mut wants_checksum = outgoing(&mut pair, &frame(1, 54), &[]);
    wants_checksum.checksum = Some(PartialChecksum { start: 34, offset: 16 });
    let empty = outgoing(&mut pair, &[], &[]);
    let long = outgoing(&mut pair, &frame(1, 54), &[&frame(1, 65535)]);
    for mut bad in [wants_checksum, empty, long] {
        assert!(pair.transmit(&mut bad).is_ok());
    }
    pair.kick();
    let counters = pair.counters();
    assert_eq!((counters.refused_offload, counters.refused_length, counters.sent_frames), (1, 2, 0));
    assert!(function.sent(0).is_empty());
}

#[test]
fn empty_slices_are_left_out() {
    let Bench { function, mut pair, .. } = bench(ALL_FEATURES);
    for payload in [vec![], vec![1], vec![1, 2, 3]] {
        let parts: Vec<[u8; 1]> = payload.iter().map(|byte| [*byte]).collect();
        let spaced: Vec<&[u8]> = parts.iter().flat_map(|part| [&[][..], &part[..], &[][..]]).collect();
        let mut made = outgoing(&mut pair, &[9; 20], &spaced);
        pair.transmit(&mut made).unwrap();
        pair.kick();
        assert_eq!(function.sent(0)[0][12..], [&[9; 20][..], &payload].concat());
    }
}

#[test]
fn room_is_kept_and_a_full_ring_gives_the_frame_back() {
    for Bench { function, mut pair, .. } in benches() {
        let room = pair.room();
        assert_eq!(room, 32);
        for seed in 0..room {
            let mut made = outgoing(&mut pair, &frame(seed, 54), &[&frame(seed, 10)]);
            assert!(pair.transmit(&mut made).is_ok(), "frame {seed} of {room}");
        }
        assert_eq!(pair.room(), 0);
        let mut made = outgoing(&mut pair, &frame(77, 54), &[&[5]]);
        assert_eq!(pair.transmit(&mut made), Err(RingFull));
        assert_eq!((&made.head[..], made.payload.len()), (&frame(77, 54)[..], 1));
        pair.kick();
        assert_eq!(function.sent(0).len(), room);
        assert!(pair.transmit(&mut made).is_ok());
        assert_eq!(pair.counters().ring_full, 1);
    }
}

/// A stack that waits for room sleeps until there is some.
#[test]
fn an_interrupt_says_that_there_is_room() {
    for Bench { function, mut pair, .. } in benches() {
        let mut seed = 0;
        while pair.room() > 0 {
            let mut made = outgoing(&mut pair, &frame(seed, 54), &[]);
            pair.transmit(&mut made).unwrap();
            seed += 1;
        }
        pair.kick();
        assert!(pair.arm());
        function.interrupts();
        function.sent(0);
        assert_eq!(function.interrupts(), 1 << 5);
        assert!(pair.room() > 0);
        pair.disarm();
    }
}

#[test]
fn the_device_is_kicked_only_when_it_wants() {
    for Bench { function, mut pair, .. } in benches() {
        let mut send = |count: usize| {
            for seed in 0..count {
                let mut made = outgoing(&mut pair, &frame(seed, 54), &[]);
                pair.transmit(&mut made).unwrap();
            }
            pair.kick();
            pair.counters()
        };
        let first = send(3);
        assert_eq!((first.kicks, first.kicks_suppressed, function.kicks(1)), (1, 0, 1));
        function.queue(1, |queue, _| queue.refuse_kicks());
        let second = send(3);
        assert_eq!((second.kicks, second.kicks_suppressed, function.kicks(1)), (1, 1, 1));
        assert_eq!((send(0).sent_batches, function.sent(0).len()), (2, 6));
    }
}

#[test]
fn it_sleeps_on_interrupts_without_missing_a_frame() {
    for Bench { function, mut pair, .. } in benches() {
        function.deliver(0, [0; 12], &frame(1, 60));
        assert_eq!(function.interrupts(), 0, "it begins by polling");
        assert!(!pair.arm(), "a frame is there already");
        assert!(pair.receive().is_some());
        assert!(pair.arm());
        function.deliver(0, [0; 12], &frame(2, 60));
        assert_eq!(function.interrupts(), 1 << 5);
        pair.disarm();
        assert!(pair.receive().is_some() && pair.receive().is_none());
        function.deliver(0, [0; 12], &frame(3, 60));
        assert_eq!(function.interrupts(), 0, "it polls again");
        let counters = pair.counters();
        assert_eq!((counters.interrupts, counters.switches_raced), (1, 1));
        assert_eq!((counters.switches_to_interrupts, counters.switches_to_polling), (1, 1));
    }
}

#[test]
fn malformed_frames_are_dropped_and_counted() {
    for features in [ALL_FEATURES, ALL_FEATURES & !transport::feature::PACKED] {
        let Bench { function, mut pair, .. } = bench(features);
        let raw = |header: &[u8], written: u32| {
            let lent = function.queue(0, |queue, _| queue.take()).unwrap();
            function.queue(0, |_, memory| lent.write(memory, header));
            function.put(0, &lent, written);
        };
        raw(&[], 0);
        raw(&[0; 12], 11);
        raw(&[0; 30], 25);
        raw(&[0; 60], 60); // no buffers
        raw(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0], 60); // three, of which one is there
        assert!(pair.receive().is_none());
        raw(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], 70_000);
        assert_eq!(pair.receive().unwrap().frame[0].len(), 2036);
        let counters = pair.counters();
        assert_eq!((counters.dropped_short, counters.dropped_incomplete), (3, 2));
        assert_eq!((counters.cut_overlong, counters.received_frames), (1, 1));
        assert!(function.deliver(0, [0; 12], &frame(1, 60)));
        assert!(pair.receive().is_some(), "it goes on");
    }
}

#[test]
fn features_are_chosen_with_what_they_need() {
    let needs_checksum = feature::HOST_TSO4 | feature::HOST_TSO6;
    assert_eq!(choose(needs_checksum, 0), 0);
    assert_eq!(choose(u64::MAX, 0), WANTED);
    let without_control = choose(u64::MAX, feature::CONTROL);
    assert_eq!(without_control & (feature::MULTIQUEUE | feature::CONTROL_MAC | feature::CONTROL_RECEIVE), 0);
    let without_merging = choose(u64::MAX, feature::MERGEABLE);
    assert_eq!(without_merging & (feature::GUEST_TSO4 | feature::GUEST_TSO6), 0);
    for (features, need) in NEEDS {
        assert_eq!(choose(u64::MAX, need) & features, 0);
    }
}

#[test]
fn each_core_has_a_pair() {
    let memory = FakeMemory::new(16 << 20);
    let function = FakeFunction::new(FakeOptions::default(), memory.clone());
    let options = Options { pairs: 3, ..Options::default() };
    let opened = open(function.clone(), &memory, &options).unwrap();
    assert_eq!(function.commands(), [[4, 0, 3, 0]]);
    let start = |(setup, bit): (PairSetup<_, _>, u8)| setup.start(Ticks::default(), bit).unwrap();
    let mut pairs: Vec<Pair> = opened.pairs.into_iter().zip(1..).map(start).collect();
    drop(opened.device);
    for (number, pair) in pairs.iter_mut().enumerate() {
        assert!(pair.arm());
        function.deliver(number as u16, [0; 12], &frame(number, 99));
        assert_eq!(function.interrupts(), 2 << number);
        assert_eq!(gather(&pair.receive().unwrap().frame), frame(number, 99));
        let mut made = outgoing(pair, &frame(number, 60), &[]);
        pair.transmit(&mut made).unwrap();
        pair.kick();
        assert_eq!(function.sent(number as u16).len(), 1);
    }
    let resets = function.resets();
    drop(pairs);
    assert_eq!(function.resets(), resets + 1, "the last pair leaves the device reset");
}

/// Pairs run while there are fewer of them and more again, and one of them changes its core.
#[test]
fn pairs_are_spread_over_while_they_run() {
    let memory = FakeMemory::new(16 << 20);
    let function = FakeFunction::new(FakeOptions::default(), memory.clone());
    let options = Options { pairs: 2, ..Options::default() };
    let Opened { mut device, pairs } = open(function.clone(), &memory, &options).unwrap();
    let mut interrupt = pairs[1].interrupt();
    let mut pairs: Vec<Pair> =
        pairs.into_iter().map(|setup| setup.start(Ticks::default(), 1).unwrap()).collect();
    for (round, bit) in (2..40).enumerate() {
        device.set_pairs(1).unwrap();
        // What was on its way when the command came is received.
        function.deliver(1, [0; 12], &frame(round, 70));
        function.interrupts();
        assert_eq!(gather(&pairs[1].receive().unwrap().frame), frame(round, 70));
        device.set_pairs(2).unwrap();
        interrupt.bind(bit).unwrap();
        assert!(pairs[1].receive().is_none() && pairs[1].arm());
        function.deliver(1, [0; 12], &frame(round, 71));
        assert_eq!(function.interrupts(), 1 << bit, "by its new core's bit, and by no other");
        assert_eq!(gather(&pairs[1].receive().unwrap().frame), frame(round, 71));
        pairs[1].disarm();
    }
    let commands = function.commands();
    assert!(commands[1..].chunks(2).all(|two| two == [[4, 0, 1, 0], [4, 0, 2, 0]]), "{commands:?}");
    assert_eq!(commands.len(), 1 + 2 * 38);
    assert!(matches!(interrupt.bind(64), Err(Error::World(_))));
}

#[test]
fn commands_are_answered() {
    let Bench { function, mut device, .. } = bench(ALL_FEATURES);
    assert_eq!(device.is_link_up(), Ok(true));
    device.set_promiscuous(true).unwrap();
    device.set_all_multicast(false).unwrap();
    device.set_mac([1, 2, 3, 4, 5, 6]).unwrap();
    let expected: [&[u8]; 3] = [&[0, 0, 1], &[0, 1, 0], &[1, 1, 1, 2, 3, 4, 5, 6]];
    assert_eq!(function.commands(), expected);
    let refusing = FakeOptions { answer: 1, ..Default::default() };
    let mut device = bench_with(refusing, Options::default(), 4 << 20).unwrap().device;
    assert_eq!(device.set_promiscuous(true), Err(Error::CommandRefused(0, 0)));
    let mut device = bench(transport::feature::VERSION_1).device;
    assert_eq!(device.set_pairs(1), Err(Error::NotOffered("several queue pairs")));
}

#[test]
fn devices_that_cannot_be_used_are_named() {
    let error = |fake: FakeOptions, memory| bench_with(fake, Options::default(), memory).err().unwrap();
    let fake = FakeOptions::default;
    assert_eq!(
        error(FakeOptions { identifier: 0x1042_1af4, ..fake() }, 1 << 20),
        Error::OtherDevice(0x1042_1af4)
    );
    assert_eq!(error(FakeOptions { features: 0, ..fake() }, 1 << 20), Error::NotModern);
    let stubborn = error(FakeOptions { is_stubborn: true, ..fake() }, 1 << 20);
    assert!(matches!(stubborn, Error::FeaturesRefused(bits) if bits & transport::feature::VERSION_1 != 0));
    assert_eq!(error(FakeOptions { is_restless: true, ..fake() }, 1 << 20), Error::Unsettled);
    assert_eq!(error(FakeOptions { vectors: 0, ..fake() }, 1 << 20), Error::NoVector(0));
    assert_eq!(error(FakeOptions { queue_size: 0, ..fake() }, 1 << 20), Error::NoQueue(0));
    for memory in [0, 4096, 12288, 20000] {
        assert_eq!(error(fake(), memory), Error::OutOfMemory, "{memory} bytes");
    }
    assert!(bench_with(fake(), Options::default(), 60000).is_ok(), "little memory is enough to begin");
}

#[test]
fn a_device_of_few_words_has_defaults() {
    let Bench { pair, device, function, .. } = bench(transport::feature::VERSION_1 | 1 << 33);
    assert_eq!(pair.properties().mtu, 1500);
    assert_eq!(pair.properties().mac, MAC_DEFAULT);
    assert_eq!(device.features(), transport::feature::VERSION_1 | transport::feature::ACCESS_PLATFORM);
    assert_eq!((function.driver_features(), function.status()), (device.features(), 15));
}

/// A step of the stack, the application or the network.
#[derive(Clone, Debug)]
enum Step {
    Deliver(usize),
    Receive { keep: bool },
    Forget(usize),
    Send(Vec<usize>),
    Echo,
    Kick,
    Collect(usize),
    Finish(usize),
    Sleep,
    Scribble(u16, u8),
}

fn steps(hostile: bool) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (14usize..6000).prop_map(Step::Deliver),
        6 => any::<bool>().prop_map(|keep| Step::Receive { keep }),
        2 => any::<usize>().prop_map(Step::Forget),
        4 => prop::collection::vec(0usize..3000, 0..6).prop_map(Step::Send),
        2 => Just(Step::Echo),
        3 => Just(Step::Kick),
        3 => (1usize..4).prop_map(Step::Collect),
        3 => any::<usize>().prop_map(Step::Finish),
        1 => Just(Step::Sleep),
        if hostile { 8 } else { 0 } => any::<(u16, u8)>().prop_map(|(at, value)| Step::Scribble(at, value)),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 25 } else { 200 })
}

/// Everybody at once.
struct Scene {
    bench: Bench,
    seed: usize,
    /// Frames on their way to the stack, and to the network.
    incoming: VecDeque<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
    /// Slices that the application keeps, with what they must hold.
    kept: Vec<(Vec<u8>, Slice<DmaBuffer>)>,
    /// Frames that the device has read and not given back.
    held: Vec<nom_virtio_fake::Lent>,
}

impl Scene {
    fn step(&mut self, step: &Step) {
        self.seed += 1;
        let Bench { function, pair, .. } = &mut self.bench;
        match step {
            Step::Deliver(bytes) => {
                let bytes = frame(self.seed, *bytes);
                if function.deliver(0, [0; 12], &bytes) {
                    self.incoming.push_back(bytes);
                }
            }
            Step::Receive { keep } => {
                let received = pair.receive().map(|received| received.frame);
                assert_eq!(received.as_deref().map(gather), self.incoming.pop_front());
                for slice in received.into_iter().flatten().filter(|_| *keep) {
                    self.kept.push((slice.to_vec(), slice));
                }
            }
            Step::Forget(which) => {
                if !self.kept.is_empty() {
                    self.kept.swap_remove(which % self.kept.len());
                }
            }
            Step::Send(parts) => {
                let parts: Vec<Vec<u8>> = parts.iter().map(|bytes| frame(self.seed, *bytes)).collect();
                let made =
                    outgoing(pair, &frame(self.seed, 60), &parts.iter().map(|p| &p[..]).collect::<Vec<_>>());
                self.send(made);
            }
            Step::Echo => {
                let mut made = outgoing(pair, &frame(self.seed, 42), &[]);
                made.payload = self.kept.iter().map(|(_, slice)| slice.clone()).take(4).collect();
                self.send(made);
            }
            Step::Kick => pair.kick(),
            Step::Collect(count) => self.collect(*count),
            Step::Finish(which) => {
                if !self.held.is_empty() {
                    let lent = self.held.swap_remove(which % self.held.len());
                    function.put(1, &lent, 0);
                }
            }
            Step::Sleep => {
                // Awake it stays for a frame, or for room that the stack was waiting for.
                let armed = pair.arm();
                let is_blocked = pair.counters().ring_full > 0;
                assert!(if armed {
                    self.incoming.is_empty()
                } else {
                    is_blocked || !self.incoming.is_empty()
                });
            }
            Step::Scribble(..) => unreachable!("only hostile devices do"),
        }
    }

    fn send(&mut self, mut frame: Outgoing<DmaBuffer>) {
        let bytes = [&frame.head[..], &gather(&frame.payload)].concat();
        if self.bench.pair.transmit(&mut frame).is_ok() {
            self.outgoing.push_back(bytes);
        }
    }

    fn collect(&mut self, count: usize) {
        for _ in 0..count {
            let Some((lent, bytes)) = self.bench.function.take_sent(0) else { return };
            assert_eq!(Some(&bytes[12..]), self.outgoing.pop_front().as_deref());
            self.held.push(lent);
        }
    }
}

fn scene(packed: bool, receive_buffers: u16) -> Scene {
    let features = if packed { ALL_FEATURES } else { ALL_FEATURES & !transport::feature::PACKED };
    let fake = FakeOptions { features, queue_size: 16, ..Default::default() };
    let options = Options { receive_buffers, memory_bytes: 1 << 20, ..Options::default() };
    let bench = bench_with(fake, options, 4 << 20).unwrap();
    let (incoming, outgoing, kept, held) = Default::default();
    Scene { bench, seed: 0, incoming, outgoing, kept, held }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 128 }, ..Default::default() })]

    /// Whatever the order: frames arrive whole and in order both ways, and kept memory never changes.
    #[test]
    fn frames_survive_any_order(packed in any::<bool>(), steps in steps(false)) {
        let mut scene = scene(packed, 16);
        for step in &steps {
            scene.step(step);
            for (bytes, slice) in &scene.kept {
                prop_assert_eq!(&bytes[..], &**slice);
            }
        }
        let counters = scene.bench.pair.counters();
        let wrong = counters.named().find(|(name, count)| name.starts_with("error") && *count > 0);
        prop_assert_eq!(wrong, None);
    }

    /// A device that writes anything to the rings makes no panic, and memory that the application keeps does
    /// not change but by the device's own hand.
    #[test]
    fn hostile_rings_are_survived(packed in any::<bool>(), steps in steps(true)) {
        let Scene { bench: Bench { memory, mut pair, .. }, .. } = scene(packed, 8);
        let rings = nom_virtio_fake::first_blocks(&memory, 2);
        let mut kept = Vec::new();
        for step in steps {
            match step {
                Step::Receive { keep } => kept.extend(pair.receive().filter(|_| keep)),
                Step::Forget(_) => drop(kept.pop()),
                Step::Send(parts) => {
                    if let Some(slice) = pair.buffer(&frame(1, parts.len() * 100)) {
                        let mut made = outgoing(&mut pair, &[7; 60], &[]);
                        made.payload = parts.iter().map(|_| slice.clone()).collect();
                        let _ = pair.transmit(&mut made);
                    }
                }
                Step::Kick => pair.kick(),
                Step::Sleep => drop(pair.arm()),
                Step::Scribble(at, value) => {
                    let (bus, bytes) = rings[usize::from(at & 1)];
                    memory.write(bus + u64::from(at) % bytes as u64, &[value % 32]);
                }
                _ => drop(pair.room()),
            }
        }
    }
}
