use super::ring::{Consumer, Frames, Producer};
use super::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::xdp::XdpRingOffset;

const PLACES: XdpRingOffset = XdpRingOffset { producer: 0, consumer: 64, desc: 128, flags: None };

/// Both ends of a ring of `entries` numbers; a file stands for what a socket maps.
fn ring(entries: u32) -> (Producer<u64>, Consumer<u64>) {
    let file = memfd_create("ring", MemfdFlags::CLOEXEC).expect("a file in memory");
    ftruncate(&file, 4096).expect("its size");
    let producer = Producer::map(&file, 0, PLACES, entries).expect("mapped");
    (producer, Consumer::map(&file, 0, PLACES, entries).expect("mapped"))
}

#[test]
fn a_ring_holds_as_much_as_it_has_entries_and_shows_what_is_published() {
    let (mut producer, mut consumer) = ring(4);
    assert_eq!((0..6).map(|number| producer.push(number)).filter(|pushed| *pushed).count(), 4);
    assert!(consumer.pop().is_none(), "nothing is published");
    producer.publish();
    assert_eq!((consumer.pop(), consumer.pop(), producer.held()), (Some(0), Some(1), 2));
    assert!(producer.push(4) && producer.push(5) && !producer.push(6));
    producer.publish();
    assert_eq!([2, 3, 4, 5].map(Some), std::array::from_fn(|_| consumer.pop()));
    assert!(consumer.is_empty() && producer.held() == 0);
}

#[test]
fn a_ring_hands_everything_over_in_order_to_another_thread() {
    let file = memfd_create("ring", MemfdFlags::CLOEXEC).expect("a file in memory");
    ftruncate(&file, 4096).expect("its size");
    let mut producer = Producer::<u64>::map(&file, 0, PLACES, 16).expect("mapped");
    let reader = std::thread::spawn(move || {
        let mut consumer = Consumer::<u64>::map(&file, 0, PLACES, 16).expect("mapped");
        let mut expected = 0;
        while expected < 200_000 {
            match consumer.pop() {
                Some(number) => {
                    assert_eq!(number, expected);
                    expected += 1;
                }
                None => std::thread::yield_now(),
            }
        }
    });
    for number in 0..200_000 {
        while !producer.push(number) {
            std::thread::yield_now();
        }
        producer.publish();
    }
    reader.join().expect("all came");
}

#[test]
fn memory_of_frames_is_written_and_read_where_it_was_said() {
    let mut frames = Frames::map(8192).expect("memory");
    frames.write(4090, b"across pages");
    let mut read = [0; 14];
    frames.read(4089, &mut read);
    assert_eq!(&read, b"\0across pages\0");
}

#[test]
#[should_panic(expected = "12 bytes at 8190 of 8192")]
fn memory_of_frames_ends_where_it_ends() {
    Frames::map(8192).expect("memory").write(8190, &b"across its end"[..12]);
}

#[test]
fn an_interface_that_cannot_be_is_refused_with_what_was_expected() {
    let said = |name: &str| Queue::open(name, 1).expect_err(name).to_string();
    assert!(said("").ends_with("expected a name of 1 to 15 bytes"), "{}", said(""));
    assert!(said("no-such").contains("cannot find it: No such device"), "{}", said("no-such"));
    let errno = Errno::MSGSIZE;
    let large = NicError { way: Way::Xdp, name: "eth0".to_owned(), step: "have frames of its size", errno }
        .to_string();
    assert!(large.ends_with("expected an MTU of at most 1778 bytes"), "{large}");
}
