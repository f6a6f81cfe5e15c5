//! The channel between applications, whose memory a peer may write at any time.

use crate::input::Input;
use nom_abi::ipc::{RingError, open};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORDS: usize = 64 + 2 * 16;

/// Both ends push and pop; now and then a word is overwritten. As long as none is, what comes out is what
/// went in.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let memory: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let (mut sender, mut receiver) = {
        let (producer, _) = open(&memory, 0).expect("memory of zeros is a new channel");
        let (_, consumer) = open(&memory, 1).expect("the other end");
        (producer, consumer)
    };
    let (mut waiting, mut is_hostile) = (std::collections::VecDeque::new(), false);
    while !input.is_empty() {
        match input.byte() & 7 {
            0..=2 => {
                let len = input.byte();
                let message = input.bytes(usize::from(len)).to_vec();
                match sender.push(&message) {
                    Ok(()) => waiting.push_back(message),
                    Err(RingError::TooLong { most }) => assert!(message.len() > most),
                    Err(error) => assert!(is_hostile || error == RingError::Full, "{error:?}"),
                }
            }
            3..=5 => {
                let mut buffer = vec![0; usize::from(input.byte())];
                let popped = receiver.pop(&mut buffer);
                if !is_hostile {
                    match popped {
                        Ok(Some(len)) => assert_eq!(waiting.pop_front().as_deref(), Some(&buffer[..len])),
                        Ok(None) => assert!(waiting.is_empty()),
                        Err(RingError::BufferTooSmall { needed }) => assert!(needed > buffer.len()),
                        Err(error) => panic!("{error:?}"),
                    }
                }
            }
            6 => {
                let may_sleep = receiver.prepare_wait();
                assert!(is_hostile || may_sleep == waiting.is_empty());
            }
            _ => {
                is_hostile = true;
                let at = usize::from(input.byte()) % WORDS;
                let word = u64::from(input.word()) << (input.byte() % 64);
                memory[at].store(word, Relaxed);
                // Who comes anew finds what is there.
                if let Ok((producer, _)) = open(&memory, 0) {
                    sender = producer;
                }
                if let Ok((_, consumer)) = open(&memory, 1) {
                    receiver = consumer;
                }
            }
        }
    }
}
