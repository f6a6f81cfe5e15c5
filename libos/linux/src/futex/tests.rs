use super::*;
use crate::memory::tests::{START, memory};
use crate::memory::{MappedRegion, PAGE, Rights, Sharing, Where};
use core::task::Waker;
use std::pin::pin;

const ALL: u32 = u32::MAX;
const THREAD: u32 = 7;

/// Counts how often its thread was woken.
impl ThreadWaker for Cell<u32> {
    fn wake(&self) {
        self.update(|woken| woken + 1);
    }
}

type Waiter = Rc<FutexWaiter<Cell<u32>>>;

fn waiters<const N: usize>() -> [Waiter; N] {
    core::array::from_fn(|_| FutexWaiter::new(Cell::new(0)))
}

fn key(number: u64) -> FutexKey {
    FutexKey(core::ptr::null(), number)
}

/// How often each was woken.
fn woken<const N: usize>(waiters: &[Waiter; N]) -> [u32; N] {
    core::array::from_fn(|index| waiters[index].waker.get())
}

fn is_over(wait: &mut Wait<'_, Cell<u32>>) -> bool {
    pin!(wait).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn who_waited_longest_at_an_address_for_one_of_the_bits_is_woken_first() {
    let (futexes, waiters) = (Futexes::default(), waiters::<4>());
    let bits = [0b01, 0b10, 0b01, 0b11];
    let mut waits: Vec<_> =
        waiters.iter().zip(bits).map(|(waiter, bits)| futexes.wait(key(8), bits, waiter)).collect();
    assert_eq!(futexes.wake(key(16), ALL, ALL), 0, "nobody waits there");
    assert_eq!(futexes.wake(key(8), ALL, 0b100), 0, "nor for that");
    assert!(!is_over(&mut waits[1]));
    assert_eq!((futexes.wake(key(8), 1, 0b10), woken(&waiters)), (1, [0, 1, 0, 0]));
    assert!(is_over(&mut waits[1]) && !is_over(&mut waits[0]));
    assert_eq!((futexes.wake(key(8), 2, ALL), woken(&waiters)), (2, [1, 1, 1, 0]));
    assert_eq!((futexes.wake(key(8), ALL, ALL), futexes.wake(key(8), ALL, ALL)), (1, 0));
}

#[test]
fn whose_addresses_share_a_place_are_told_apart() {
    let (futexes, waiters) = (Futexes::default(), waiters::<2>());
    let first = key(8);
    let other = (2..).map(|number| key(8 * number)).find(|key| key.place() == first.place()).unwrap();
    let _waits = [futexes.wait(first, ALL, &waiters[0]), futexes.wait(other, ALL, &waiters[1])];
    assert_eq!((futexes.wake(other, ALL, ALL), woken(&waiters)), (1, [0, 1]));
    assert_eq!((futexes.wake(first, ALL, ALL), woken(&waiters)), (1, [1, 1]));
}

#[test]
fn who_gives_up_waits_no_more_wherever_it_was_moved() {
    let (futexes, waiters) = (Futexes::default(), waiters::<3>());
    let mut waits: Vec<_> = waiters.iter().map(|waiter| futexes.wait(key(8), ALL, waiter)).collect();
    assert_eq!(futexes.move_waiters(key(8), key(24), 2), 2);
    assert_eq!((futexes.wake(key(8), ALL, ALL), woken(&waiters)), (1, [0, 0, 1]), "the third stayed");
    drop(waits.remove(0));
    assert_eq!((futexes.wake(key(24), ALL, ALL), woken(&waiters)), (1, [0, 1, 1]));
    assert!(is_over(&mut waits[0]));
    drop(waits);
    assert!(futexes.places.iter().all(|place| place.borrow().is_empty()), "nobody is left behind");
}

#[test]
fn a_word_has_one_key_in_all_memories_that_share_it_and_else_one_in_each() {
    let (_, parent) = memory(4, 100);
    let shared = MappedRegion { sharing: Sharing::Shared, ..MappedRegion::zeros(Rights::READ_WRITE) };
    parent.map(Where::At(START), PAGE, shared).unwrap();
    let own = START + 8 * PAGE;
    parent.map(Where::At(own), PAGE, MappedRegion::zeros(Rights::READ_WRITE)).unwrap();
    parent.write(START, &[0]).unwrap();
    let child = parent.duplicate().unwrap();
    assert_eq!(FutexKey::shared(&parent, START + 4), FutexKey::shared(&child, START + 4));
    assert_ne!(FutexKey::shared(&parent, START + 4), FutexKey::shared(&parent, START + 8));
    assert_ne!(FutexKey::shared(&parent, own), FutexKey::shared(&child, own));
    assert_ne!(FutexKey::private(&parent, START), FutexKey::private(&child, START));
}

/// A list as set_robust_list(2) has it: its head at the beginning of a page, its entries each 64 bytes on
/// with their words 16 bytes behind; of the last the thread was about to take or leave it.
fn robust_list(memory: &ProcessMemory, entries: &[u64], pending: u64) {
    const OFFSET: u64 = 16;
    memory.map(Where::At(START), PAGE, MappedRegion::zeros(Rights::READ_WRITE)).unwrap();
    let mut at = START;
    for entry in entries {
        memory.write_value(at, entry).unwrap();
        at = *entry;
    }
    memory.write_value(at, &START).unwrap();
    memory.write_value(START + 8, &[OFFSET, pending]).unwrap();
}

#[test]
fn who_ends_leaves_its_robust_futexes_and_no_others() {
    let (_, memory) = memory(4, 100);
    let entries = [1, 2, 3, 4].map(|number| START + 64 * number);
    // The last is not in the list: the thread was about to take it.
    robust_list(&memory, &entries[..3], entries[3]);
    let word = |index: usize| entries[index] + 16;
    let owned = [THREAD, THREAD | FUTEX_WAITERS, THREAD + 1, THREAD | FUTEX_WAITERS];
    for (index, value) in owned.iter().enumerate() {
        memory.write_value(word(index), value).unwrap();
    }
    let (futexes, waiters) = (Futexes::default(), waiters::<4>());
    let at = |index| FutexKey::shared(&memory, word(index));
    let _waits: Vec<_> = (0..4).map(|index| futexes.wait(at(index), ALL, &waiters[index])).collect();
    leave_robust(&futexes, &memory, START, THREAD);
    let words = [0, 1, 2, 3].map(|index| memory.read_value::<u32>(word(index)).unwrap());
    let died = FUTEX_OWNER_DIED | FUTEX_WAITERS;
    assert_eq!(words, [FUTEX_OWNER_DIED, died, THREAD + 1, died]);
    assert_eq!(woken(&waiters), [0, 1, 0, 1], "where it is said that somebody waits");
}

#[test]
fn a_robust_list_without_an_end_is_left_after_as_many_as_linux_follows() {
    let (_, memory) = memory(4, 100);
    let entry = START + 64;
    robust_list(&memory, &[entry], 0);
    memory.write_value(entry, &entry).unwrap();
    memory.write_value(entry + 16, &THREAD).unwrap();
    let futexes = Futexes::<Cell<u32>>::default();
    leave_robust(&futexes, &memory, START, THREAD);
    assert_eq!(memory.read_value::<u32>(entry + 16), Ok(FUTEX_OWNER_DIED));
    leave_robust(&futexes, &memory, START + 1, THREAD);
    leave_robust(&futexes, &memory, START - 8, THREAD);
}
