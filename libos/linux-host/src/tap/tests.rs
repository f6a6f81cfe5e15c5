//! The interface over a pair of sockets, whose other end shows each frame with its header; and, where that is
//! allowed, over a TAP device.

use super::*;
use nom_port::buffer::Buffer as _;
use nom_port::nic::{Checksum, Head, PartialChecksum, Segmentation};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io::{Read, Write};

/// An interface, and what Linux would be. Sockets of this type keep frames apart, as a TAP device does.
fn interface(memory_bytes: usize) -> (TapNic, std::fs::File) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (near, far) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair of sockets");
    let nic = TapNic::over(near, Properties::default(), &Options { memory_bytes }).expect("memory");
    (nic, far.into())
}

/// Gives a frame of `bytes` to the interface, with `flags` in its header.
fn give(far: &mut std::fs::File, flags: u8, frame: &[u8]) {
    let mut header = vec![0; header::BYTES];
    header[0] = flags;
    assert_eq!(far.write(&[header.as_slice(), frame].concat()).expect("sent"), header::BYTES + frame.len());
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 7 + index / 256) as u8).collect()
}

fn outgoing(head: &[u8], payload: Vec<Slice<PoolBuffer>>) -> Outgoing<PoolBuffer> {
    let mut storage = Head::zeroed(head.len());
    storage.copy_from_slice(head);
    Outgoing { head: storage, payload: payload.into(), checksum: None, segmentation: None, tag: None }
}

#[test]
fn frames_of_every_size_arrive_whole_with_their_headers_in_the_first_slice() {
    let (mut nic, mut far) = interface(16 << 20);
    for bytes in [1, 60, 1514, FRONT_BYTES, FRONT_BYTES + 1, FRONT_BYTES + COPY_BELOW, 65_549] {
        let sent = pattern(bytes);
        give(&mut far, 0, &sent);
        let received = nic.receive().expect("a frame");
        assert!(gather(&received.frame) == sent, "{bytes} bytes");
        assert_eq!(received.frame[0].len(), bytes.min(FRONT_BYTES));
        assert_eq!(received.checksum, Checksum::Unknown);
    }
    assert!(nic.receive().is_none());
    let counters = nic.counters();
    assert_eq!((counters.received_frames, counters.reads, counters.reads_empty), (7, 8, 1));
}

#[test]
fn a_kept_frame_is_not_overwritten_by_the_next() {
    let (mut nic, mut far) = interface(1 << 20);
    give(&mut far, 1, b"first");
    let kept = nic.receive().expect("a frame");
    assert_eq!(kept.checksum, Checksum::Good);
    give(&mut far, 0, b"other");
    nic.receive().expect("a frame");
    assert_eq!(gather(&kept.frame), b"first");
}

#[test]
fn a_small_rest_pins_little() {
    let (mut nic, mut far) = interface(1 << 20);
    give(&mut far, 0, &pattern(FRONT_BYTES + 100));
    let received = nic.receive().expect("a frame");
    assert_eq!(received.frame[1].buffer().pinned(), 128);
}

#[test]
fn without_memory_frames_are_lost_and_counted_until_some_is_given_back() {
    let (mut nic, mut far) = interface(REST_BYTES + 2 * FRONT_BYTES);
    for _ in 0..3 {
        give(&mut far, 0, b"frame");
    }
    let kept = nic.receive().expect("memory for one");
    assert!(nic.receive().is_none());
    assert_eq!(nic.counters().received_lost, 1);
    assert!(nic.buffer(&[0; 4096]).is_none());
    drop(kept);
    assert!(nic.receive().is_some());
}

#[test]
fn what_is_no_frame_is_counted() {
    let (mut nic, mut far) = interface(1 << 20);
    for bytes in [1, header::BYTES] {
        far.write_all(&pattern(bytes)).expect("sent");
        assert!(nic.receive().is_none());
    }
    assert_eq!(nic.counters().received_short, 2);
}

#[test]
fn a_frame_is_gathered_behind_its_header() {
    let (mut nic, mut far) = interface(1 << 20);
    let slices = |nic: &mut TapNic, count: usize| -> Vec<_> {
        (0..count).map(|index| nic.buffer(&[index as u8; 3]).expect("memory")).collect()
    };
    for (count, copied) in [(0, 0), (1, 0), (PIECES - 2, 0), (PIECES - 1, 1), (500, 2)] {
        let mut frame = outgoing(b"head", slices(&mut nic, count));
        frame.checksum = Some(PartialChecksum { start: 34, offset: 16 });
        frame.segmentation = Some(Segmentation { payload_max: 1000, is_ipv6: false });
        let expected = [b"head".as_slice(), &gather(&frame.payload)].concat();
        nic.transmit(&mut frame).expect("room");
        let mut seen = vec![0; 2000];
        let bytes = far.read(&mut seen).expect("a frame");
        assert_eq!(
            seen[..header::BYTES],
            header::outgoing(
                Some(PartialChecksum { start: 34, offset: 16 }),
                Some(Segmentation { payload_max: 1000, is_ipv6: false }),
                4,
            )
        );
        assert_eq!(seen[header::BYTES..bytes], expected);
        assert_eq!(nic.counters().sent_copied, copied);
    }
}

#[test]
fn a_frame_without_room_is_given_back_and_one_that_nobody_takes_is_lost() {
    let (mut nic, far) = interface(1 << 20);
    let frame = loop {
        let payload = nic.buffer(&[0; 60_000]).expect("memory");
        let mut frame = outgoing(b"head", vec![payload]);
        if nic.transmit(&mut frame).is_err() {
            break frame;
        }
    };
    assert_eq!((frame.len(), nic.counters().writes_full), (60_004, 1));
    drop(far);
    assert!(nic.transmit(&mut outgoing(b"head", Vec::new())).is_ok());
    assert_eq!(nic.counters().writes_refused, 1);
}

#[test]
fn a_device_is_opened_with_its_properties() {
    let options = Options { memory_bytes: 1 << 20 };
    let name = format!("nom{}", std::process::id());
    let nic = match TapNic::open(&name, &options) {
        Err(error) if matches!(error.errno, Errno::PERM | Errno::ACCESS | Errno::NOENT | Errno::NODEV) => {
            return println!("skipped: {error}");
        }
        opened => opened.expect("a device"),
    };
    let properties = nic.properties();
    assert_eq!(properties.mtu, 1500);
    assert!(properties.mac[0] & 3 == 2, "{:x?}: expected a local address of one interface", properties.mac);
    assert!(properties.offloads.checksum && properties.offloads.segment_tcp4);
    let second = TapNic::open(&name, &options).expect_err("the first one has it");
    assert!(second.to_string().contains("another process has it"), "{second}");
}

/// Each queue by itself, and a device of one kind by whoever wants the other.
#[test]
fn a_device_has_as_many_queues_as_it_was_made_for() {
    let name = format!("nomq{}", std::process::id());
    let queues = match Queue::open(&name, 2) {
        Err(error) if matches!(error.errno, Errno::PERM | Errno::ACCESS | Errno::NOENT | Errno::NODEV) => {
            return println!("skipped: {error}");
        }
        opened => opened.expect("a device of two queues"),
    };
    assert_eq!(queues.len(), 2);
    assert_eq!(Queue::open(&name, 1).expect("a third queue").len(), 1, "one of several is enough");
    let start = |queue: Queue| queue.start(&Options { memory_bytes: 1 << 20 }).expect("memory");
    let macs: Vec<_> = queues.into_iter().map(|queue| start(queue).properties().mac).collect();
    assert_eq!(macs[0], macs[1], "they are one interface");
    let single = format!("nom{}s", std::process::id());
    let one = Queue::open(&single, 1).expect("a device of one queue");
    let second = Queue::open(&single, 2).expect_err("its only queue is taken");
    assert!(second.to_string().contains("another process has it"), "{second}");
    drop(one);
}
