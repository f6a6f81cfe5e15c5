//! Message rings in memory that two applications share.
//!
//! A channel is one region of shared memory with two rings, one in each direction, each with one producer
//! and one consumer. The kernel copies nothing: it only passes on a notification when asked to.
//!
//! ```text
//! line 0   identity: MAGIC and version, bytes of the region         either end, always the same values
//! line 1   ring 0: tail, words produced since the channel began     end 0
//! line 2   ring 0: head, words consumed; 1 while its consumer waits end 1 (the waiting word also end 0)
//! line 3   ring 1: tail                                             end 1
//! line 4   ring 1: head; waiting word                               end 0 (the waiting word also end 1)
//! line 8.. ring 0's words, then as many words of ring 1             its producer
//! ```
//!
//! A line is a cache line of 64 bytes, so the two ends never write the same one but to say that they
//! sleep. A message is a word with its length in bytes, then its bytes in whole words; it may wrap around the
//! ring's end. All zeros is a channel that nobody has used, so neither end has to wait for the other to
//! set it up, and an end that is started anew goes on where its predecessor stopped.
//!
//! Neither end trusts the other: an index or length that cannot be is [`RingError::Corrupt`], found before
//! anything is read or written by it. Whatever the peer writes, and whenever, at worst the messages are
//! nonsense.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// Identifies a channel: letters and [`crate::VERSION`].
pub const MAGIC: u64 = u64::from_le_bytes(*b"nomring\0") | (crate::VERSION as u64) << 56;

const LINE_WORDS: usize = 8;
const HEADER_WORDS: usize = 8 * LINE_WORDS;
const WORD_BYTES: usize = 8;

/// Why a ring refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// The shared memory is too small for two rings.
    TooSmall,
    /// The peer speaks another version of the channel, or something else.
    Mismatch,
    /// The peer has written indices or lengths that cannot be.
    Corrupt,
    /// The ring has no room for the message until the peer takes others out.
    Full,
    /// The message is longer than the ring will ever hold: `most` bytes.
    TooLong {
        /// Bytes of the longest message.
        most: usize,
    },
    /// The next message is longer than the buffer; it stays in the ring.
    BufferTooSmall {
        /// Bytes of the message.
        needed: usize,
    },
}

/// Both directions of the channel in `memory`, seen from `end` (0 or 1, in the manifest's order).
///
/// # Errors
/// `TooSmall`, `Mismatch`; `Corrupt` if an own index left by a predecessor cannot be.
pub fn open(memory: &[AtomicU64], end: usize) -> Result<(Producer<'_>, Consumer<'_>), RingError> {
    let capacity = memory.len().saturating_sub(HEADER_WORDS) / 2;
    if capacity < 2 {
        return Err(RingError::TooSmall);
    }
    identify(&memory[0], MAGIC)?;
    identify(&memory[1], (memory.len() * WORD_BYTES) as u64)?;
    let ring = |number: usize| {
        let lines = &memory[LINE_WORDS * (1 + 2 * number)..];
        let data = &memory[HEADER_WORDS + number * capacity..][..capacity];
        Ring { tail: &lines[0], head: &lines[LINE_WORDS], waiting: &lines[LINE_WORDS + 1], data }
    };
    Ok((Producer::new(ring(end & 1))?, Consumer::new(ring(!end & 1))?))
}

/// Writes a word of the channel's identity, unless the peer has done so already.
fn identify(word: &AtomicU64, value: u64) -> Result<(), RingError> {
    match word.compare_exchange(0, value, Relaxed, Relaxed) {
        Ok(_) => Ok(()),
        Err(found) if found == value => Ok(()),
        Err(_) => Err(RingError::Mismatch),
    }
}

/// The shared words of one direction.
#[derive(Clone, Copy, Debug)]
struct Ring<'m> {
    tail: &'m AtomicU64,
    head: &'m AtomicU64,
    waiting: &'m AtomicU64,
    data: &'m [AtomicU64],
}

impl Ring<'_> {
    fn capacity(&self) -> u64 {
        self.data.len() as u64
    }

    /// Words between two indices, if they can be indices of this ring.
    fn distance(&self, head: u64, tail: u64) -> Result<u64, RingError> {
        let words = tail.wrapping_sub(head);
        if words <= self.capacity() { Ok(words) } else { Err(RingError::Corrupt) }
    }
}

/// An end's own index, which it keeps to itself, so that the peer cannot change it.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    /// Words since the channel began.
    index: u64,
    /// The same within the ring.
    position: usize,
}

impl Cursor {
    fn new(index: u64, capacity: usize) -> Cursor {
        Cursor { index, position: (index % capacity as u64) as usize }
    }

    /// The present word, and goes on to the next.
    fn next<'m>(&mut self, data: &'m [AtomicU64]) -> &'m AtomicU64 {
        let word = &data[self.position];
        self.index = self.index.wrapping_add(1);
        self.position += 1;
        if self.position == data.len() {
            self.position = 0;
        }
        word
    }
}

/// Words that a message of `bytes` takes, with its length.
const fn message_words(bytes: usize) -> usize {
    1 + bytes.div_ceil(WORD_BYTES)
}

/// The sending end of one direction.
#[derive(Debug)]
pub struct Producer<'m> {
    ring: Ring<'m>,
    tail: Cursor,
    /// The peer's index when last looked at; it can only have moved on.
    head: u64,
}

impl<'m> Producer<'m> {
    fn new(ring: Ring<'m>) -> Result<Producer<'m>, RingError> {
        let (head, tail) = (ring.head.load(Acquire), ring.tail.load(Relaxed));
        ring.distance(head, tail)?;
        Ok(Producer { ring, tail: Cursor::new(tail, ring.data.len()), head })
    }

    /// Bytes of the longest message that the ring can hold.
    pub fn message_bytes_max(&self) -> usize {
        (self.ring.data.len() - 1) * WORD_BYTES
    }

    /// Puts a message in.
    ///
    /// # Errors
    /// `TooLong`, `Full`, `Corrupt`; then the ring is as before.
    pub fn push(&mut self, message: &[u8]) -> Result<(), RingError> {
        if message.len() > self.message_bytes_max() {
            return Err(RingError::TooLong { most: self.message_bytes_max() });
        }
        self.make_room(message_words(message.len()) as u64)?;
        let mut cursor = self.tail;
        cursor.next(self.ring.data).store(message.len() as u64, Relaxed);
        for chunk in message.chunks(WORD_BYTES) {
            cursor.next(self.ring.data).store(to_word(chunk), Relaxed);
        }
        self.tail = cursor;
        self.ring.tail.store(cursor.index, Release);
        Ok(())
    }

    fn make_room(&mut self, words: u64) -> Result<(), RingError> {
        let capacity = self.ring.capacity();
        if words <= capacity - self.ring.distance(self.head, self.tail.index)? {
            return Ok(());
        }
        let head = self.ring.head.load(Acquire);
        let used = self.ring.distance(head, self.tail.index)?;
        self.head = head;
        if words <= capacity - used { Ok(()) } else { Err(RingError::Full) }
    }

    /// Takes the consumer's request to be notified: if there is one, it sleeps, and the caller must notify it
    /// of what was pushed. True once for each request.
    #[must_use = "the consumer sleeps until it is notified"]
    pub fn take_notify_request(&self) -> bool {
        // With the fence in `prepare_wait`: either the consumer sees the message, or its word is seen here.
        fence(SeqCst);
        self.ring.waiting.load(Relaxed) != 0 && self.ring.waiting.swap(0, Relaxed) != 0
    }
}

/// The receiving end of one direction.
#[derive(Debug)]
pub struct Consumer<'m> {
    ring: Ring<'m>,
    head: Cursor,
}

impl<'m> Consumer<'m> {
    fn new(ring: Ring<'m>) -> Result<Consumer<'m>, RingError> {
        let (head, tail) = (ring.head.load(Relaxed), ring.tail.load(Acquire));
        ring.distance(head, tail)?;
        Ok(Consumer { ring, head: Cursor::new(head, ring.data.len()) })
    }

    /// Takes the next message out, into the first bytes of `buffer`, and returns its length; `None` if the
    /// ring is empty.
    ///
    /// # Errors
    /// `BufferTooSmall`, `Corrupt`; then the ring is as before.
    pub fn pop(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, RingError> {
        let available = self.available()?;
        if available == 0 {
            return Ok(None);
        }
        let mut cursor = self.head;
        let length = usize::try_from(cursor.next(self.ring.data).load(Relaxed));
        let length = length.map_err(|_| RingError::Corrupt)?;
        if message_words(length) as u64 > available {
            return Err(RingError::Corrupt);
        }
        let message = buffer.get_mut(..length).ok_or(RingError::BufferTooSmall { needed: length })?;
        for chunk in message.chunks_mut(WORD_BYTES) {
            let word = cursor.next(self.ring.data).load(Relaxed).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        self.head = cursor;
        self.ring.head.store(cursor.index, Release);
        Ok(Some(length))
    }

    /// Says that the consumer is about to sleep, so that the producer notifies it. Returns whether it may:
    /// the ring is empty, and whatever comes later will be notified.
    pub fn prepare_wait(&self) -> bool {
        self.ring.waiting.store(1, Relaxed);
        fence(SeqCst);
        let empty = self.available() == Ok(0);
        if !empty {
            self.ring.waiting.store(0, Relaxed);
        }
        empty
    }

    fn available(&self) -> Result<u64, RingError> {
        self.ring.distance(self.head.index, self.ring.tail.load(Acquire))
    }
}

/// Up to eight bytes as a word.
fn to_word(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD_BYTES];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    /// Few, but enough for messages that wrap, under Miri.
    const MESSAGES: u64 = if cfg!(miri) { 200 } else { 200_000 };

    fn memory(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn each_direction_has_its_own_ring() {
        let memory = memory(512);
        let (mut to_1, mut from_1) = open(&memory, 0).unwrap();
        let (mut to_0, mut from_0) = open(&memory, 1).unwrap();
        let mut buffer = [0; 16];
        to_1.push(b"ping").unwrap();
        assert_eq!(from_1.pop(&mut buffer), Ok(None));
        assert_eq!(from_0.pop(&mut buffer), Ok(Some(4)));
        assert_eq!(&buffer[..4], b"ping");
        to_0.push(b"pong!").unwrap();
        assert_eq!(from_1.pop(&mut buffer), Ok(Some(5)));
        assert_eq!(&buffer[..5], b"pong!");
    }

    /// Two ends that agree with each other and not with the drawing would not understand an older one.
    #[test]
    fn each_word_is_where_the_drawing_says() {
        assert_eq!(MAGIC.to_le_bytes(), [b'n', b'o', b'm', b'r', b'i', b'n', b'g', crate::VERSION as u8]);
        let (memory, capacity) = (memory(512), (512 - 64) / 2);
        let word = |index: usize| memory[index].load(Relaxed);
        let (mut to_1, from_1) = open(&memory, 0).unwrap();
        let (mut to_0, mut from_0) = open(&memory, 1).unwrap();
        assert_eq!((word(0), word(1)), (MAGIC, 512 * 8));
        assert_eq!(to_1.message_bytes_max(), (capacity - 1) * 8);
        to_1.push(&[7; 9]).unwrap();
        to_0.push(&[5; 8]).unwrap();
        assert_eq!((word(8), word(64), word(65), word(66)), (3, 9, u64::from_le_bytes([7; 8]), 7));
        assert_eq!((word(24), word(64 + capacity), word(65 + capacity)), (2, 8, u64::from_le_bytes([5; 8])));
        from_0.pop(&mut [0; 9]).unwrap();
        assert_eq!((word(16), word(17), word(32), word(33)), (3, 0, 0, 0));
        assert!(from_0.prepare_wait() && !from_1.prepare_wait());
        assert_eq!((word(17), word(33)), (1, 0));
        assert!(to_1.take_notify_request() && !to_1.take_notify_request() && !to_0.take_notify_request());
        assert_eq!(word(17), 0);
        let used = memory.iter().filter(|word| word.load(Relaxed) != 0).count();
        assert_eq!(used, 2 + 3 + 3 + 2, "identity, indices, messages");
    }

    /// The smallest channel that there can be, and one with a word to spare.
    #[test]
    fn a_ring_has_two_words_at_least() {
        for (words, bytes) in [(67, None), (68, Some(8)), (69, Some(8)), (70, Some(16))] {
            let memory = memory(words);
            assert_eq!(open(&memory, 0).ok().map(|(ring, _)| ring.message_bytes_max()), bytes, "{words}");
        }
    }

    #[test]
    fn a_channel_of_another_kind_is_refused() {
        assert_eq!(open(&memory(67), 0).unwrap_err(), RingError::TooSmall);
        let other = memory(512);
        other[0].store(MAGIC + (1 << 56), Relaxed);
        assert_eq!(open(&other, 0).unwrap_err(), RingError::Mismatch);
        let larger = memory(512);
        open(&larger, 0).unwrap();
        assert_eq!(open(&larger[..256], 1).unwrap_err(), RingError::Mismatch);
    }

    #[test]
    fn a_full_ring_takes_the_message_once_there_is_room() {
        let memory = memory(HEADER_WORDS + 2 * 4);
        let (mut producer, _) = open(&memory, 0).unwrap();
        let (_, mut consumer) = open(&memory, 1).unwrap();
        assert_eq!(producer.push(&[0; 25]), Err(RingError::TooLong { most: 24 }));
        producer.push(&[1; 8]).unwrap();
        assert_eq!(producer.push(&[2; 16]), Err(RingError::Full));
        assert_eq!(consumer.pop(&mut [0; 4]), Err(RingError::BufferTooSmall { needed: 8 }));
        assert_eq!(consumer.pop(&mut [0; 8]), Ok(Some(8)));
        producer.push(&[3; 24]).unwrap();
        assert_eq!(consumer.pop(&mut [0; 24]), Ok(Some(24)));
    }

    #[test]
    fn an_end_that_starts_anew_goes_on_where_it_stopped() {
        let memory = memory(512);
        open(&memory, 0).unwrap().0.push(b"before").unwrap();
        open(&memory, 0).unwrap().0.push(b"after").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(open(&memory, 1).unwrap().1.pop(&mut buffer), Ok(Some(6)));
        assert_eq!(open(&memory, 1).unwrap().1.pop(&mut buffer), Ok(Some(5)));
    }

    #[test]
    fn threads_see_every_message_whole_and_in_order() {
        let memory = memory(HEADER_WORDS + 2 * 11);
        let ((mut producer, _), (_, mut consumer)) = (open(&memory, 0).unwrap(), open(&memory, 1).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..MESSAGES {
                    let message = [number as u8; 40];
                    let message = &message[..number as usize % 41];
                    while producer.push(message) == Err(RingError::Full) {
                        std::thread::yield_now();
                    }
                }
            });
            let mut buffer = [0; 40];
            for number in 0..MESSAGES {
                let length = loop {
                    match consumer.pop(&mut buffer).unwrap() {
                        Some(length) => break length,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(length, number as usize % 41);
                assert!(buffer[..length].iter().all(|byte| *byte == number as u8));
            }
        });
    }

    #[test]
    fn a_consumer_that_sleeps_is_always_woken() {
        let memory = memory(512);
        let ((mut producer, _), (_, mut consumer)) = (open(&memory, 0).unwrap(), open(&memory, 1).unwrap());
        let (notify, notified) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..MESSAGES {
                    while producer.push(&number.to_le_bytes()) == Err(RingError::Full) {
                        std::thread::yield_now();
                    }
                    if producer.take_notify_request() {
                        notify.send(()).unwrap();
                    }
                }
            });
            let mut received = 0;
            while received < MESSAGES {
                match consumer.pop(&mut [0; 8]).unwrap() {
                    Some(_) => received += 1,
                    // Fails, for the producer is gone, if a notification was lost.
                    None if consumer.prepare_wait() => notified.recv().unwrap(),
                    None => {}
                }
            }
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 256 }))]

        #[test]
        fn a_ring_is_a_queue(
            capacity in 2usize..40,
            steps in prop::collection::vec((any::<bool>(), 0usize..80), 0..80),
        ) {
            let memory = memory(HEADER_WORDS + 2 * capacity);
            let ends = (open(&memory, 0).unwrap(), open(&memory, 1).unwrap());
            let ((mut producer, _), (_, mut consumer)) = ends;
            let (mut model, mut used) = (VecDeque::new(), 0);
            for (push, length) in steps {
                if push {
                    let message: Vec<u8> = (0..length).map(|byte| (byte * 7) as u8).collect();
                    let words = message_words(length);
                    let expected = match () {
                        () if words > capacity => Err(RingError::TooLong { most: (capacity - 1) * 8 }),
                        () if words > capacity - used => Err(RingError::Full),
                        () => Ok(()),
                    };
                    prop_assert_eq!(producer.push(&message), expected);
                    if expected.is_ok() {
                        used += words;
                        model.push_back(message);
                    }
                } else {
                    let mut buffer = [0; 80];
                    let popped = consumer.pop(&mut buffer).unwrap().map(|length| buffer[..length].to_vec());
                    used -= model.front().map_or(0, |message| message_words(message.len()));
                    prop_assert_eq!(popped, model.pop_front());
                }
            }
        }

        #[test]
        fn garbage_is_at_worst_nonsense(
            words in 0usize..120,
            writes in prop::collection::vec((any::<usize>(), edge()), 1..200),
        ) {
            let memory = memory(words);
            let mut ends = open(&memory, 0).ok();
            for (place, value) in writes {
                if let Some(word) = memory.get(place % memory.len().max(1)) {
                    word.store(value, Relaxed);
                }
                let _ = open(&memory, 1);
                if let Some((producer, consumer)) = &mut ends {
                    let _ = producer.push(&[1; 13]);
                    let _ = consumer.pop(&mut [0; 32]);
                    let _ = (producer.take_notify_request(), consumer.prepare_wait());
                }
            }
        }
    }

    /// Values near which indices and lengths go wrong.
    fn edge() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..64, any::<u64>(), (0u64..16).prop_map(|below| u64::MAX - below)]
    }
}
