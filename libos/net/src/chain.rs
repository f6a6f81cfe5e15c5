//! Cutting a chain of slices as if it were one piece.

use crate::buffer::{Buffer, Chain, chain_len};

/// Forgets the first `count` bytes, or all if there are fewer.
pub fn advance<B: Buffer>(chain: &mut Chain<B>, mut count: usize) {
    if let Some(slice) = chain.first_mut()
        && slice.len() > count
    {
        return slice.advance(count);
    }
    let mut whole = 0;
    for slice in chain.iter_mut() {
        if count < slice.len() {
            slice.advance(count);
            break;
        }
        count -= slice.len();
        whole += 1;
    }
    chain.drain(..whole);
}

/// Forgets what stands after the first `len` bytes.
pub fn truncate<B: Buffer>(chain: &mut Chain<B>, len: usize) {
    let mut left = len;
    for slice in chain.iter_mut() {
        slice.truncate(left);
        left -= slice.len();
    }
    while chain.last().is_some_and(|slice| slice.is_empty()) {
        chain.pop();
    }
}

/// Keeps the bytes from `start`, `len` of them; `false`, and nothing done, if there are not so many.
pub fn keep<B: Buffer>(chain: &mut Chain<B>, start: usize, len: usize) -> bool {
    // Nearly all frames are in one piece.
    if let [slice] = &mut chain[..]
        && slice.len() >= start + len
        && len > 0
    {
        slice.truncate(start + len);
        slice.advance(start);
        return true;
    }
    if chain_len(chain) < start + len {
        return false;
    }
    truncate(chain, start + len);
    advance(chain, start);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Slice;
    use alloc::rc::Rc;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cutting_pieces_is_cutting_the_whole(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..5), 0..6),
            start in 0usize..30,
            len in 0usize..30,
        ) {
            let whole: Vec<u8> = pieces.concat();
            let pieces = pieces.into_iter().map(|piece| Slice::new(Rc::from(piece)));
            let mut chain: Chain<Rc<[u8]>> = pieces.collect();
            let is_there = whole.len() >= start + len;
            prop_assert_eq!(keep(&mut chain, start, len), is_there);
            let expected = if is_there { &whole[start..start + len] } else { &whole[..] };
            prop_assert_eq!(nom_port::nic::gather(&chain), expected);
        }
    }
}
