//! What a program finds on its first stack (x86-64 psABI, "Initial Stack and Register State"): arguments,
//! environment, auxiliary vector.

use alloc::vec::Vec;
use core::ops::Range;

/// A word of the auxiliary vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auxiliary {
    /// A number.
    Word(u64),
    /// The address of bytes, which are put on the stack, with a zero behind them.
    Bytes(Vec<u8>),
}

/// A first stack: what is written below its top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstStack {
    /// The stack pointer, where the bytes go; a multiple of 16.
    pub pointer: u64,
    /// Up to the top.
    pub bytes: Vec<u8>,
    /// Where among them the auxiliary vector is.
    pub auxiliary: Range<usize>,
}

/// Builds the stack whose top is at `top`, a multiple of 16; keys of the auxiliary vector are
/// linux/auxvec.h's.
pub fn build(
    top: u64,
    arguments: &[Vec<u8>],
    environment: &[Vec<u8>],
    auxiliary: &[(u32, Auxiliary)],
) -> FirstStack {
    let mut strings = Vec::new();
    let mut place = |bytes: &[u8]| {
        let at = strings.len() as u64;
        strings.extend_from_slice(bytes);
        strings.push(0);
        at
    };
    let arguments: Vec<u64> = arguments.iter().map(|bytes| place(bytes)).collect();
    let environment: Vec<u64> = environment.iter().map(|bytes| place(bytes)).collect();
    let values: Vec<_> = auxiliary
        .iter()
        .map(|(key, value)| match value {
            Auxiliary::Word(word) => (*key, *word, false),
            Auxiliary::Bytes(bytes) => (*key, place(bytes), true),
        })
        .collect();
    let strings_at = (top - strings.len() as u64) & !15;
    let words = 1 + arguments.len() + 1 + environment.len() + 1 + 2 * (values.len() + 1);
    let pointer = (strings_at - 8 * words as u64) & !15;
    let mut bytes = Vec::with_capacity((top - pointer) as usize);
    let mut word = |word: u64| bytes.extend_from_slice(&word.to_le_bytes());
    word(arguments.len() as u64);
    for list in [&arguments, &environment] {
        list.iter().for_each(|offset| word(strings_at + offset));
        word(0);
    }
    let start = 8 * (words - 2 * (values.len() + 1));
    for (key, value, is_address) in values {
        word(key.into());
        word(if is_address { strings_at + value } else { value });
    }
    word(0);
    word(0);
    bytes.resize((strings_at - pointer) as usize, 0);
    bytes.extend_from_slice(&strings);
    bytes.resize((top - pointer) as usize, 0);
    FirstStack { pointer, bytes, auxiliary: start..8 * words }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOP: u64 = 0x7000_0000;

    fn word(stack: &FirstStack, index: usize) -> u64 {
        u64::from_le_bytes(stack.bytes[8 * index..][..8].try_into().unwrap())
    }

    fn string(stack: &FirstStack, address: u64) -> Vec<u8> {
        let from = &stack.bytes[(address - stack.pointer) as usize..];
        from[..from.iter().position(|byte| *byte == 0).expect("a zero")].to_vec()
    }

    fn names() -> impl Strategy<Value = Vec<Vec<u8>>> {
        proptest::collection::vec(proptest::collection::vec(1..=255u8, 0..20), 0..6)
    }

    proptest! {
        #[test]
        fn a_program_finds_what_it_was_given(arguments in names(), environment in names()) {
            let auxiliary = [(6, Auxiliary::Word(4096)), (31, Auxiliary::Bytes(b"/bin/true".to_vec()))];
            let stack = build(TOP, &arguments, &environment, &auxiliary);
            prop_assert_eq!(stack.pointer % 16, 0);
            prop_assert_eq!(stack.pointer + stack.bytes.len() as u64, TOP);
            prop_assert_eq!(word(&stack, 0), arguments.len() as u64);
            let mut index = 1;
            for list in [arguments, environment] {
                for expected in list {
                    prop_assert_eq!(string(&stack, word(&stack, index)), expected);
                    index += 1;
                }
                prop_assert_eq!(word(&stack, index), 0);
                index += 1;
            }
            prop_assert_eq!(stack.auxiliary.clone(), 8 * index..8 * (index + 6));
            prop_assert_eq!((word(&stack, index), word(&stack, index + 1)), (6, 4096));
            prop_assert_eq!(word(&stack, index + 2), 31);
            prop_assert_eq!(string(&stack, word(&stack, index + 3)), b"/bin/true");
            prop_assert_eq!((word(&stack, index + 4), word(&stack, index + 5)), (0, 0));
        }
    }
}
