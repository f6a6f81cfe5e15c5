//! Calls in machine code, written in a way that compresses better.
//!
//! An x86 `call` has the distance to what it calls, so calls of one function differ from place to place.
//! Before an image is compressed each distance becomes the place that it leads to, as in Microsoft's cabinets
//! (LZX E8 translation, \[MS-PATCH\] 2.5.1); the loader turns it back. What looks like a call and is none
//! suffers no harm: whatever the bytes are, the way back leads to them.

/// The opcode of a call with a distance of 32 bits.
const CALL: u8 = 0xe8;
/// Bytes of such a call.
const CALL_BYTES: usize = 5;

/// Replaces distances by places, counted from the start of `code`, which has less than 2 GiB.
pub fn to_places(code: &mut [u8]) {
    translate(code, |value, at, size| if value < size - at { value + at } else { value - size });
}

/// Replaces places by distances: undoes [`to_places`].
pub fn to_distances(code: &mut [u8]) {
    translate(code, |value, at, size| if value >= 0 { value - at } else { value + size });
}

/// Changes the value of each call at `at` that is between `-at` and the size of the code. Both changes lead
/// from this range into itself, so that the same values are changed on the way back.
fn translate(code: &mut [u8], change: impl Fn(i32, i32, i32) -> i32) {
    let size = code.len() as i32;
    let mut at = 0;
    while let Some([CALL, distance @ ..]) = code.get_mut(at..).and_then(|rest| seek(rest, &mut at)) {
        let value = i32::from_le_bytes(*distance);
        let place = at as i32;
        if (-place..size).contains(&value) {
            *distance = change(value, place, size).to_le_bytes();
        }
        at += CALL_BYTES;
    }
}

/// The next call in what is left of the code, by which `at` advances to it.
fn seek<'c>(rest: &'c mut [u8], at: &mut usize) -> Option<&'c mut [u8; CALL_BYTES]> {
    let offset = rest.iter().position(|byte| *byte == CALL)?;
    *at += offset;
    rest.get_mut(offset..)?.first_chunk_mut()
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
        assert_eq!(code[..5], call(100));
    }

    proptest! {
        #[test]
        fn the_way_back_leads_to_the_same_bytes(
            bytes in proptest::collection::vec(
                prop_oneof![Just(CALL), Just(0), Just(0xff), any::<u8>()],
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
