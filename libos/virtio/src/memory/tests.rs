//! Buffers that leave their core; under Miri these look for data races, too.

use super::*;
use crate::fake::FakeMemory;
use crate::pool::Pool;
use nom_port::device::Dma as _;
use std::sync::mpsc::channel;
use std::thread;

/// Frames that each test sends round.
const ROUNDS: u32 = if cfg!(miri) { 40 } else { 20_000 };

fn is_send_and_sync<T: Send + Sync>() {}

#[test]
fn a_buffer_may_go_to_other_cores() {
    is_send_and_sync::<DmaBuffer>();
}

/// What comes back from other cores is used again, and nobody writes where somebody reads.
#[test]
fn places_come_back_from_other_cores() {
    let memory = FakeMemory::new(64 * 1024);
    let mut pool = Pool::new(memory, 64 * 1024);
    let (senders, readers): (Vec<_>, Vec<_>) = (0..2)
        .map(|_| {
            let (sender, receiver) = channel::<(DmaBuffer, u32)>();
            let read = move || {
                let mut kept = Vec::new();
                for (buffer, number) in receiver {
                    assert_eq!(buffer.as_ref(), number.to_le_bytes());
                    kept.push(buffer);
                    if kept.len() == 8 {
                        kept.clear();
                    }
                }
            };
            (sender, thread::spawn(read))
        })
        .unzip();
    let mut number = 0;
    while number < ROUNDS {
        // 64 KiB are 512 places: fewer than the rounds, so that they must come back.
        let Some(buffer) = pool.copy(&number.to_le_bytes()) else {
            thread::yield_now();
            continue;
        };
        senders.iter().for_each(|sender| sender.send((buffer.clone(), number)).expect("it reads"));
        number += 1;
    }
    drop(senders);
    readers.into_iter().for_each(|reader| reader.join().expect("it read what was written"));
    assert_eq!(pool.free(4), 512, "all places are back, and each once");
}

#[test]
fn buffers_say_when_there_are_too_few_of_them() {
    let mut pool = Pool::new(FakeMemory::new(64 * 1024), 64 * 1024);
    let mut kept: Vec<DmaBuffer> =
        core::iter::from_fn(|| pool.take_to_receive(2048)).map(|slot| slot.share(2048)).collect();
    assert_eq!(kept.len(), 28, "an eighth is to send from");
    pool.set_scarce(true);
    assert!(kept.iter().all(|buffer| buffer.is_scarce()));
    assert!(!pool.copy(&[8; 2048]).expect("memory to send from").is_scarce());
    assert!(kept[0].is_scarce(), "whatever is sent");
    kept.pop();
    assert!(pool.take_to_receive(2048).is_some(), "one came back");
    pool.set_scarce(false);
    assert!(!kept[0].is_scarce());
}

#[test]
fn the_last_handle_gives_back_once_wherever_it_is_dropped() {
    let list = FreeList::default();
    let block = FakeMemory::new(4096).allocate(4096).expect("memory");
    Carver::new(block).slots(1024, &list);
    for _ in 0..ROUNDS / 20 {
        let first = list.take().expect("three are free").share(4);
        let second = first.clone();
        thread::scope(|scope| {
            scope.spawn(|| drop(first));
            scope.spawn(|| drop(second));
        });
        assert_eq!(list.count(), 4);
    }
}
