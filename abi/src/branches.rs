//! Calls in machine code, and addresses that it computes, written in a way that compresses better.
//!
//! An x86 `call` has the distance to what it calls, so calls of one function differ from place to place; so
//! does a `lea` relative to the instruction pointer, by which code finds its constants. Before an image is
//! compressed each distance becomes the place that it leads to, as in Microsoft's cabinets (LZX E8
//! translation, \[MS-PATCH\] 2.5.1), the most significant byte first, which places near each other have in
//! common; the loader turns it back. What looks like a call and is none suffers no harm: whatever the bytes
//! are, the way back leads to them.

/// The opcode of a call with a distance of 32 bits.
const CALL: u8 = 0xe8;
/// The opcode of `lea`, and which bits of its operands' byte (Intel's manual, volume 2, table 2-2) say that
/// a distance of 32 bits follows.
const LEA: u8 = 0x8d;
const OPERAND: u8 = 0b1100_0111;
const BY_DISTANCE: u8 = 0b0000_0101;
/// Bytes of a distance.
const DISTANCE: usize = 4;

/// Replaces distances by places, counted from the start of `code`, which has less than 2 GiB.
pub fn to_places(code: &mut [u8]) {
    translate(code, |field, at, size| {
        let value = i32::from_le_bytes(field);
        let place = if value < size - at { value + at } else { value - size };
        if (-at..size).contains(&value) { place } else { value }.to_be_bytes()
    });
}

/// Replaces places by distances: undoes [`to_places`].
pub fn to_distances(code: &mut [u8]) {
    translate(code, |field, at, size| {
        let value = i32::from_be_bytes(field);
        let distance = if value >= 0 { value - at } else { value + size };
        if (-at..size).contains(&value) { distance } else { value }.to_le_bytes()
    });
}

/// Changes the distance, or place, of each instruction at `at` that has one. Both changes lead the values
/// between `-at` and the size of the code into themselves and leave all others alone, so that the same
/// values are changed on the way back; what says where they are does not change.
fn translate(code: &mut [u8], change: impl Fn([u8; DISTANCE], i32, i32) -> [u8; DISTANCE]) {
    let size = code.len() as i32;
    let mut at = 0;
    while let Some(found) = seek(&code[at..]) {
        at += found;
        let skipped = match code[at..] {
            [LEA, operand, ..] if operand & OPERAND == BY_DISTANCE => 2,
            [LEA, ..] => {
                at += 1;
                continue;
            }
            _ => 1,
        };
        let field = code.get_mut(at + skipped..).and_then(|rest| rest.first_chunk_mut::<DISTANCE>());
        let Some(field) = field else { return };
        *field = change(*field, at as i32, size);
        at += skipped + DISTANCE;
    }
}

/// Where the next instruction may be that has a distance: four bytes are looked at together.
#[inline]
fn seek(code: &[u8]) -> Option<usize> {
    let (words, rest) = code.as_chunks::<4>();
    let skipped = words.iter().position(|word| {
        let word = u32::from_le_bytes(*word);
        has_zero(word ^ (REPEATED * u32::from(CALL))) || has_zero(word ^ (REPEATED * u32::from(LEA)))
    });
    let from = skipped.unwrap_or(words.len()) * 4;
    let near = if skipped.is_some() { &code[from..from + 4] } else { rest };
    near.iter().position(|byte| matches!(*byte, CALL | LEA)).map(|offset| from + offset)
}

/// A byte in each place.
const REPEATED: u32 = 0x0101_0101;

/// Whether any byte is zero.
#[inline]
fn has_zero(word: u32) -> bool {
    word.wrapping_sub(REPEATED) & !word & (REPEATED << 7) != 0
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::vec;

    #[test]
    fn calls_of_one_function_become_the_same() {
        let call = |distance: i32| [&[CALL][..], &distance.to_le_bytes()].concat();
        let mut code = [call(100), call(95), vec![0x90; 200]].concat();
        to_places(&mut code);
        assert_eq!(code[..5], code[5..10]);
        assert_eq!(code[..5], [CALL, 0, 0, 0, 100]);
    }

    #[test]
    fn addresses_of_one_constant_become_the_same() {
        let lea = |distance: i32| [&[0x48, LEA, 0x3d][..], &distance.to_le_bytes()].concat();
        let mut code = [lea(100), lea(93), vec![0x90; 200]].concat();
        to_places(&mut code);
        assert_eq!(code[..7], code[7..14]);
        let other = vec![LEA, 0x44, 0x8d, 5, 0, 0];
        let mut code = other.clone();
        to_places(&mut code);
        assert_eq!(code, other, "a distance of one byte, and one that is cut off");
    }

    /// Whatever lies before it, and wherever in a word it begins: four bytes are looked at together.
    #[test]
    fn no_call_is_overlooked() {
        for filler in (0..=255).filter(|filler| ![CALL, LEA].contains(filler)) {
            for before in 0..12 {
                let call = [&vec![filler; before][..], &[CALL, 50, 0, 0, 0], &[0; 100]].concat();
                let mut code = call.clone();
                to_places(&mut code);
                assert_eq!(code[before..before + 5], [CALL, 0, 0, 0, 50 + before as u8], "{before} {filler}");
                to_distances(&mut code);
                assert_eq!(code, call);
            }
        }
    }

    /// Distances at both ends of those that are places, and one beyond.
    #[test]
    fn values_at_the_edges_come_back() {
        let (at, size) = (7_i32, 40_i32);
        for (distance, place) in
            [(-8_i32, -8), (-7, 0), (-1, 6), (0, 7), (32, 39), (33, -7), (39, -1), (40, 40), (41, 41)]
        {
            let call = [&[0x90; 7][..], &[CALL], &distance.to_le_bytes(), &[0x90; 28]].concat();
            let mut code = call.clone();
            to_places(&mut code);
            let field: [u8; DISTANCE] = *code[at as usize + 1..].first_chunk().expect("it has room");
            assert_eq!((code.len() as i32, i32::from_be_bytes(field)), (size, place), "{distance}");
            to_distances(&mut code);
            assert_eq!(code, call, "{distance}");
        }
    }

    proptest! {
        #[test]
        fn the_way_back_leads_to_the_same_bytes(
            bytes in proptest::collection::vec(
                prop_oneof![Just(CALL), Just(LEA), Just(BY_DISTANCE), Just(0), Just(0xff), any::<u8>()],
                0..200,
            ),
        ) {
            let mut code = bytes.clone();
            to_places(&mut code);
            to_distances(&mut code);
            prop_assert_eq!(code, bytes);
        }
    }
}
