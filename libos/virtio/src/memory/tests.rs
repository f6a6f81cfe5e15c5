//! Buffers that leave their core; under Miri these look for data races, too.

use super::*;
use crate::pool::Pool;
use nom_port::buffer::Trimmed;
use nom_port::device::Dma as _;
use nom_virtio_fake::FakeMemory;
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
fn what_others_give_back_is_a_list_of_its_own() {
    let mut list = FreeList::default();
    list.add(FakeMemory::new(4096).allocate(4096).expect("memory"), 1024);
    let given_back = |list: &FreeList| {
        let returned = list.returned;
        [&returned.own.0, &returned.first].map(|first| !first.load(Relaxed).is_null())
    };
    let (first, second) = (list.take().expect("four are free"), list.take().expect("three are free"));
    drop(first);
    assert_eq!(given_back(&list), [true, false], "plain where it is the list's core");
    let second = second.share(4);
    thread::spawn(|| drop(second)).join().expect("it drops");
    assert_eq!(given_back(&list), [true, true]);
    let all: Vec<_> = core::iter::from_fn(|| list.take()).collect();
    assert_eq!((all.len(), given_back(&list)), (4, [false, false]));
}

#[test]
fn the_last_handle_gives_back_once_wherever_it_is_dropped() {
    let mut list = FreeList::default();
    let block = FakeMemory::new(4096).allocate(4096).expect("memory");
    list.add(block, 1024);
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

/// Trims until nothing more is given back.
fn trim(pool: &mut Pool<FakeMemory>, keep_bytes: usize) -> Trimmed {
    loop {
        let trimmed = pool.trim(keep_bytes);
        if trimmed.left_bytes == 0 {
            return trimmed;
        }
    }
}

/// A pool of which everything was in use, and with it its memory and what is kept.
fn filled(kib: usize) -> (FakeMemory, Pool<FakeMemory>, Vec<DmaBuffer>) {
    let memory = FakeMemory::new(kib * 1024);
    let mut pool = Pool::new(memory.clone(), kib * 1024);
    let fill = |number: u32| pool.copy(&[number as u8; 1024]);
    let kept = (0..).map_while(fill).collect();
    (memory, pool, kept)
}

#[test]
fn what_is_free_goes_back_and_can_be_had_again() {
    let (memory, mut pool, kept) = filled(256);
    assert_eq!((kept.len(), memory.held()), (256, 256 << 10));
    drop(kept);
    trim(&mut pool, 64 << 10);
    assert_eq!(memory.held(), 64 << 10, "what was to stay");
    trim(&mut pool, 0);
    assert_eq!(memory.held(), 0);
    for _ in 0..3 {
        let kept: Vec<_> = core::iter::from_fn(|| pool.copy(&[1; 1024])).collect();
        assert_eq!((kept.len(), memory.held()), (256, 256 << 10), "as much as before");
        drop(kept);
        trim(&mut pool, 0);
        assert_eq!(memory.held(), 0);
    }
}

#[test]
fn nothing_that_is_in_use_goes_back() {
    let (memory, mut pool, mut kept) = filled(256);
    // One in each block stays.
    let mut number = 0;
    kept.retain(|_| {
        number += 1;
        number % 64 == 0
    });
    let trimmed = trim(&mut pool, 0);
    assert_eq!((trimmed.released_bytes, memory.held()), (0, 256 << 10));
    assert!(kept.iter().zip(1..).all(|(buffer, n): (_, u32)| buffer.as_ref() == [(64 * n - 1) as u8; 1024]));
}

#[test]
fn what_is_sparse_can_be_moved_and_is_told_until_it_was() {
    let (memory, mut pool, mut kept) = filled(512);
    let mut number = 0;
    kept.retain(|_| {
        number += 1;
        number % 8 == 0
    });
    let trimmed = trim(&mut pool, 0);
    assert_eq!(trimmed.sparse_bytes, 6 * (64 << 10), "an eighth fits into one block, with some room in two");
    let bytes: Vec<Vec<u8>> = kept.iter().map(|buffer| buffer.as_ref().to_vec()).collect();
    for buffer in &mut kept {
        if buffer.is_sparse() {
            *buffer = pool.copy(buffer.as_ref()).expect("there is room in the others");
        }
    }
    assert_eq!(trim(&mut pool, 0).sparse_bytes, 0);
    assert_eq!(memory.held(), 2 * (64 << 10));
    assert!(kept.iter().zip(&bytes).all(|(buffer, bytes)| buffer.as_ref() == bytes && !buffer.is_sparse()));
}

#[test]
fn a_block_stays_while_another_core_reads_it() {
    let (memory, mut pool, kept) = filled(if cfg!(miri) { 64 } else { 1024 });
    let all = memory.held();
    let (sender, receiver) = channel::<DmaBuffer>();
    let reader = thread::spawn(move || receiver.into_iter().map(|b| u64::from(b.as_ref()[7])).sum::<u64>());
    let expected: u64 = kept.iter().map(|buffer| u64::from(buffer.as_ref()[0])).sum();
    for buffer in kept {
        sender.send(buffer).expect("it reads");
        pool.trim(0);
    }
    drop(sender);
    assert_eq!(reader.join().expect("it read what was written"), expected);
    assert!(memory.held() <= all);
    trim(&mut pool, 0);
    assert_eq!(memory.held(), 0);
}

mod order {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 128 }))]
        /// Whatever is taken, kept, dropped here or on another core, and trimmed in whatever order, no two
        /// handles share a place, none changes, and all memory goes back in the end.
        #[test]
        fn no_place_is_lost_or_had_twice(
            steps in prop::collection::vec((0_u8..8, any::<prop::sample::Index>(), 1_usize..4000), 1..200),
        ) {
            let memory = FakeMemory::new(1 << 20);
            let mut pool = Pool::new(memory.clone(), 1 << 20);
            let mut kept: Vec<(DmaBuffer, Vec<u8>)> = Vec::new();
            for (number, (step, pick, length)) in steps.into_iter().enumerate() {
                let content = vec![number as u8; length];
                match step {
                    0 => drop(pool.trim(length * 16)),
                    1 if !kept.is_empty() => drop(kept.swap_remove(pick.index(kept.len()))),
                    2 if !kept.is_empty() => {
                        let elsewhere = kept.split_off(pick.index(kept.len()));
                        thread::spawn(|| drop(elsewhere)).join().expect("it drops");
                    }
                    3 => kept.extend(pool.take_to_receive(2048).map(|mut slot| {
                        let content = vec![number as u8; length.min(2048)];
                        slot.write(0, &content);
                        (slot.share(content.len() as u32), content)
                    })),
                    _ => kept.extend(pool.copy(&content).map(|buffer| (buffer, content))),
                }
            }
            for (buffer, content) in &kept {
                prop_assert_eq!(buffer.as_ref(), &content[..]);
            }
            kept.clear();
            trim(&mut pool, 0);
            prop_assert_eq!(memory.held(), 0);
        }
    }
}
